"""Activation normalisation (Glow, section 3.1)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from macow.bijections.base import Bijection
from macow.nets.weight_norm import standardisation


class NormRow(NamedTuple):
    """An ActNorm's parameters as rows of those of all that are like it."""

    log_scale: Tensor
    shift: Tensor
    all_log_scales: Tensor


class ActNorm(Bijection):
    """A scale and a shift per channel: `y = x * exp(log_scale) + shift`.

    The first batch sets both so that outputs have mean 0 and standard deviation 1.
    """

    made: NormRow | None = None
    """Its parameters, within `alike.Alike.together`."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(0.05 * torch.randn(channels))
        self.shift = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`log_det = H W sum(log_scale)`."""
        y = x * self.log_scale.exp()[:, None, None] + self.shift[:, None, None]
        return y, (self.log_scale.sum() * (x.shape[2] * x.shape[3])).expand(x.shape[0])

    def inverse(self, y: Tensor, cond: Tensor | None = None) -> Tensor:
        """`x = (y - shift) / exp(log_scale)`."""
        return (y - self.shift[:, None, None]) / self.log_scale.exp()[:, None, None]

    @torch.no_grad()
    def initialize_(self, x: Tensor, cond: Tensor | None = None) -> None:
        """Sets scale and shift from the first batch."""
        mean, factor = standardisation(self.forward(x)[0])
        self.log_scale.add_(factor.log())
        self.shift.sub_(mean).mul_(factor)
