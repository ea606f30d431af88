"""From pixel levels to continuous values: noise in [0, 1) and its density (paper, appendix A)."""

import math
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from macow.bijections.base import Bijection
from macow.bijections.conv1x1 import Conv1x1
from macow.ops.layout import laid

SPREAD = math.pi / math.sqrt(3)
"""The standard deviation of a logistic variable, which is what a sigmoid makes uniform."""
STEEPEST = 30.0
"""The largest slope of leaning noise, nats a level: half of it lies within a 40th of the edge."""


def quantize(images: Tensor, n_bits: int) -> Tensor:
    """The first `n_bits` of each uint8 value, as an integer level."""
    return images >> (8 - n_bits)


def from_images(images: Tensor, u: Tensor | float, n_bits: int, dtype: torch.dtype) -> Tensor:
    """Images and noise as `x = 2 (level + u) / 2^n_bits - 1` in [-1, 1)."""
    levels = quantize(images, n_bits).to(dtype)
    edge = 2 * (levels + 1) / 2**n_bits - 1
    x = 2 * (levels + u) / 2**n_bits - 1
    return torch.minimum(x, torch.nextafter(edge, -edge.new_ones(())))  # rounding may reach it


def to_images(x: Tensor, n_bits: int) -> Tensor:
    """Continuous images in [-1, 1) as uint8, `level << (8 - n_bits)`; what lies beyond is cut."""
    levels = ((x + 1) / 2 * 2**n_bits).floor().clamp(0, 2**n_bits - 1)
    return levels.to(torch.uint8) << (8 - n_bits)


def log_normal(z: Tensor) -> Tensor:
    """Log density of `N(0, I)`, `[B, ...] -> [B]`."""
    z = z.flatten(1)
    return -0.5 * (z.square().sum(dim=1) + z.shape[1] * math.log(2 * math.pi))


def lean_noise(u: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """Bends noise in [0, 1) to where a density rises: `(v, log_lean [B])`.

    Uniform u become v of density `t exp(t v) / (exp(t) - 1)` for a slope t, by the inverse of its
    distribution function, `v = log(1 + u (exp(t) - 1)) / t`; of any u, `log q(v) = log q(u) +
    log_lean`. Any slope that does not depend on u gives a bound.
    """
    t = slope.detach().double().clamp(-STEEPEST, STEEPEST)
    t = torch.where(t == 0, 1e-9, t)
    v = torch.log1p(u * torch.expm1(t)) / t
    log_lean = t * v - torch.log(torch.expm1(t) / t)
    v = v.to(u.dtype).clamp(max=1 - torch.finfo(u.dtype).eps)  # rounding may reach 1
    return v, log_lean.flatten(1).sum(dim=1).to(u.dtype)


class Dequantizer(nn.Module, ABC):
    """Gives each image noise `u` in [0, 1) and the log density of that noise."""

    @abstractmethod
    def forward(self, images: Tensor, eps: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`images -> (u [B, C, H, W], log_q [B])`; `eps` replaces what it would draw."""

    @abstractmethod
    def draw(self, images: Tensor, generator: Generator | None = None) -> Tensor:
        """The `eps` for these images, drawn where the generator lives (None: where they are)."""


class UniformDequantizer(Dequantizer):
    """`u ~ U[0, 1)`, whose log density is 0; `eps` is the noise itself."""

    def forward(self, images: Tensor, eps: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`(eps, 0)`."""
        u = self.draw(images) if eps is None else eps
        return u, u.new_zeros(u.shape[0])

    def draw(self, images: Tensor, generator: Generator | None = None) -> Tensor:
        """Uniform noise."""
        device = generator.device if generator else images.device
        u = torch.rand(images.shape, dtype=torch.float32, generator=generator, device=device)
        return u.to(images.device)


class VariationalDequantizer(Dequantizer):
    """`u = sigmoid(g(eps | s))`, `eps ~ N(0, I)`, with `s` what an encoder makes of the image.

    `g` is a small conditional flow run in its parallel direction, so
    `log q(u) = log N(eps) - log |det dg| - sum log sigmoid'`. Its 1x1 convolutions start as
    rotations times `SPREAD`, so what the last of them leaves makes u about uniform: a model may
    begin where uniform noise has brought it.
    """

    def __init__(self, flow: Bijection, encoder: nn.Module, n_bits: int) -> None:
        super().__init__()
        self.flow = flow
        self.encoder = encoder
        self.n_bits = n_bits
        with torch.no_grad():
            for part in flow.modules():
                if isinstance(part, Conv1x1):
                    part.weight.mul_(SPREAD)

    def forward(self, images: Tensor, eps: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One pass through encoder and flow."""
        eps = self.draw(images) if eps is None else eps
        levels = quantize(images, self.n_bits).to(eps.dtype)
        h, log_det = self.flow(eps, self.encoder(laid(2 * levels / 2**self.n_bits - 1)))
        log_slope = (F.logsigmoid(h) + F.logsigmoid(-h)).flatten(1).sum(dim=1)
        u = h.sigmoid().clamp(max=1 - torch.finfo(h.dtype).eps)  # a sigmoid may round up to 1
        return u, log_normal(eps) - log_det - log_slope

    def draw(self, images: Tensor, generator: Generator | None = None) -> Tensor:
        """Normal noise, in the type of the weights."""
        dtype = next(self.parameters()).dtype
        device = generator.device if generator else images.device
        eps = torch.randn(images.shape, dtype=dtype, generator=generator, device=device)
        return eps.to(images.device)
