"""Invertible 1x1 convolution (Glow, section 3.2)."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from macow.bijections.base import Bijection


class Mix(NamedTuple):
    """What a 1x1 convolution and the ActNorm before it do; and `log |det W|` of all like it."""

    weight: Tensor
    bias: Tensor
    all_log_dets: Tensor


class Conv1x1(Bijection):
    """Mixes the channels of each pixel: `y = W x`, W starting as a random rotation."""

    measured: tuple[Tensor, Tensor] | None = None
    """`log |det W|` and its gradient, where `volume.Determinants` takes them."""
    made: Mix | None = None
    """Itself with its ActNorm, within `alike.Alike.together`."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.orthogonal_(torch.empty(channels, channels)))

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`log_det = H W log |det W|`."""
        log_det = torch.linalg.slogdet(self.weight).logabsdet * (x.shape[2] * x.shape[3])
        return F.conv2d(x, self.weight[:, :, None, None]), log_det.expand(x.shape[0])

    def inverse(self, y: Tensor, cond: Tensor | None = None) -> Tensor:
        """`x = W^-1 y`, inverted in float64."""
        weight = torch.linalg.inv(self.weight.double()).to(y.dtype)
        return F.conv2d(y, weight[:, :, None, None])


def log_abs_dets(parts: list[Conv1x1], weights: Tensor) -> Tensor:
    """`log |det W|` of each, of their stacked weights; its gradient is the inverse, turned.

    What was measured is of the weights that an update begins with, so only where gradients are
    asked for does it count.
    """
    measured = [part.measured for part in parts if part.measured is not None]
    if not measured or not torch.is_grad_enabled():
        return torch.linalg.slogdet(weights).logabsdet
    log_dets, gradients = (torch.stack(tensors) for tensors in zip(*measured, strict=True))
    return log_dets + ((weights - weights.detach()) * gradients).sum(dim=(1, 2))
