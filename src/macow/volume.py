"""The log-dets of a pass on their way to one sum."""

from collections import defaultdict

import torch
from torch import Tensor, nn

from macow.bijections.conv1x1 import Conv1x1


class Volume:
    """Log-dets on their way to one sum: adding them one by one would be a launch for each."""

    def __init__(self) -> None:
        self._of_images: list[Tensor] = []
        self._of_pixels: dict[torch.Size, list[Tensor]] = defaultdict(list)
        self._log_scales: dict[int, list[Tensor]] = defaultdict(list)
        self._matrices: dict[tuple[int, int], list[Conv1x1]] = defaultdict(list)

    def add(self, log_det: Tensor) -> None:
        """One of `[B]`."""
        self._of_images.append(log_det)

    def add_map(self, log_det: Tensor) -> None:
        """One of `[B, H, W]`."""
        self._of_pixels[log_det.shape].append(log_det)

    def add_scale(self, log_scale: Tensor, x: Tensor) -> None:
        """Of a scale by channel, the same at every pixel of x."""
        self._log_scales[x.shape[2] * x.shape[3]].append(log_scale)

    def add_matrix(self, part: Conv1x1, x: Tensor) -> None:
        """Of a matrix that mixes channels, the same at every pixel of x."""
        self._matrices[len(part.weight), x.shape[2] * x.shape[3]].append(part)

    def total(self, x: Tensor) -> Tensor:
        """`[B]`."""
        total = x.new_zeros(x.shape[0])
        if self._of_images:
            total = total + torch.stack(self._of_images).sum(dim=0)
        for maps in self._of_pixels.values():
            total = total + torch.stack(maps).sum(dim=(0, 2, 3))
        for pixels, log_scales in self._log_scales.items():
            total = total + torch.cat(log_scales).sum() * pixels
        for (_, pixels), parts in self._matrices.items():
            total = total + _log_abs_det(parts).sum() * pixels
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


def _log_abs_det(parts: list[Conv1x1]) -> Tensor:
    """`log |det W|` of each; its gradient is the inverse, turned."""
    weights = torch.stack([part.weight for part in parts])
    measured = [part.measured for part in parts if part.measured is not None]
    if not measured:
        return torch.linalg.slogdet(weights).logabsdet
    log_dets, gradients = (torch.stack(tensors) for tensors in zip(*measured, strict=True))
    return log_dets + ((weights - weights.detach()) * gradients).sum(dim=(1, 2))
