"""The log-dets of a pass on their way to one sum."""

from collections import Counter, defaultdict

import torch
from torch import Tensor, nn

from macow.bijections.actnorm import ActNorm
from macow.bijections.conv1x1 import Conv1x1, log_abs_dets


class Volume:
    """Log-dets on their way to one sum: adding them one by one would be a launch for each."""

    def __init__(self) -> None:
        self._of_images: list[Tensor] = []
        self._of_pixels: dict[torch.Size, list[Tensor]] = defaultdict(list)
        self._norms: dict[int, list[ActNorm]] = defaultdict(list)
        self._matrices: dict[int, list[Conv1x1]] = defaultdict(list)

    def add(self, log_det: Tensor) -> None:
        """One of `[B]`."""
        self._of_images.append(log_det)

    def add_map(self, log_det: Tensor) -> None:
        """One of `[B, H, W]`."""
        self._of_pixels[log_det.shape].append(log_det)

    def add_scale(self, part: ActNorm, x: Tensor) -> None:
        """Of a scale by channel, the same at every pixel of x."""
        self._norms[x.shape[2] * x.shape[3]].append(part)

    def add_matrix(self, part: Conv1x1, x: Tensor) -> None:
        """Of a matrix that mixes channels, the same at every pixel of x."""
        self._matrices[x.shape[2] * x.shape[3]].append(part)

    def total(self, x: Tensor) -> Tensor:
        """`[B]`."""
        total = x.new_zeros(x.shape[0])
        if self._of_images:
            total = total + torch.stack(self._of_images).sum(dim=0)
        for maps in self._of_pixels.values():
            total = total + torch.stack(maps).sum(dim=(0, 2, 3))
        for pixels, norms in self._norms.items():
            for log_scales in _log_scales(norms):
                total = total + log_scales.sum() * pixels
        for pixels, parts in self._matrices.items():
            for log_dets in _log_dets(parts):
                total = total + log_dets.sum() * pixels
        return total


class Determinants:
    """Those of a model's 1x1 convolutions: a captured pass cannot take them and uses these.

    They are taken for all of a size at once, `log |det W|` and its gradient, the inverse turned.
    """

    def __init__(self, model: nn.Module) -> None:
        alike: dict[int, list[Conv1x1]] = defaultdict(list)
        for part in model.modules():
            if isinstance(part, Conv1x1):
                alike[len(part.weight)].append(part)
        self._groups: list[tuple[list[Conv1x1], Tensor, Tensor]] = []
        for size, parts in alike.items():
            weight = parts[0].weight
            log_dets, gradients = (
                weight.new_zeros(len(parts)),
                weight.new_zeros(len(parts), size, size),
            )
            for part, *views in zip(parts, log_dets, gradients, strict=True):
                part.measured = (views[0], views[1])
            self._groups.append((parts, log_dets, gradients))

    @torch.no_grad()
    def take(self) -> None:
        """Of the weights as they are now."""
        for parts, log_dets, gradients in self._groups:
            weights = torch.stack([part.weight for part in parts])
            log_dets.copy_(torch.linalg.slogdet(weights).logabsdet)
            gradients.copy_(torch.linalg.inv_ex(weights).inverse.mT)


def _log_scales(norms: list[ActNorm]) -> list[Tensor]:
    """Of those taken together all at once: their gradient is not many small ones."""
    stacks = _stacks([norm.made and norm.made.all_log_scales for norm in norms])
    return stacks or [norm.log_scale for norm in norms]


def _log_dets(parts: list[Conv1x1]) -> list[Tensor]:
    """In the same way."""
    stacks = _stacks([part.made and part.made.all_log_dets for part in parts])
    return stacks or [log_abs_dets([part], part.weight[None]) for part in parts]


def _stacks(rows_of: list[Tensor | None]) -> list[Tensor]:
    """The stacks that layers are rows of, if all rows of these and no others are there."""
    stacks = {id(stack): stack for stack in rows_of if stack is not None}
    found = Counter(map(id, rows_of))
    whole = all(found[name] == len(stack) for name, stack in stacks.items())
    return list(stacks.values()) if whole and not any(stack is None for stack in rows_of) else []
