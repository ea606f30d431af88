"""What a class-conditional flow is given of a label."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn


class LabelMap(nn.Module):
    """A few learnt values for each label, spread over the image as constant planes."""

    def __init__(self, names: Sequence[str], channels: int) -> None:
        super().__init__()
        self.names = tuple(names)
        self.values = nn.Parameter(torch.randn(len(names), channels))

    def forward(self, labels: Tensor, size: tuple[int, int]) -> Tensor:
        """`labels [B] -> [B, channels, H, W]`."""
        return self.values[labels][:, :, None, None].expand(-1, -1, *size)

    def number(self, name: str) -> int:
        """A label's number by its name."""
        if name not in self.names:
            raise ValueError(f"label must be one of {', '.join(self.names)}, got {name!r}")
        return self.names.index(name)

    def in_turn(self, numbers: Iterable[int]) -> Tensor:
        """The labels of images number so and so when all take turns."""
        turns = [number % len(self.names) for number in numbers]
        return torch.tensor(turns, device=self.values.device)

    def check(self, labels: Tensor, count: int) -> None:
        """Raises unless these are the labels of so many images."""
        if labels.dtype != torch.long or labels.shape != (count,):
            found = f"{labels.dtype} of shape {list(labels.shape)}"
            raise ValueError(f"labels must be int64 of shape [{count}], got {found}")
        if not 0 <= int(labels.min()) <= int(labels.max()) < len(self.names):
            found = f"{int(labels.min())} to {int(labels.max())}"
            raise ValueError(f"labels must be from 0 to {len(self.names) - 1}, got {found}")


def condition(
    label_map: LabelMap | None, labels: Tensor | None, size: tuple[int, int]
) -> Tensor | None:
    """What a flow is given of labels `[B]`; None if it knows none, and then takes none."""
    if (label_map is None) != (labels is None):
        what = "knows no labels" if labels is not None else "is conditional: which label?"
        raise ValueError(f"the model {what}")
    return None if label_map is None else label_map(labels, size)
