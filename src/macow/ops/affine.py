"""Shift and scale: the one elementwise map that couplings and masked convolutions end in."""

import torch.nn.functional as F
from torch import Tensor


def affine_parameters(raw: Tensor, *, affine: bool, dim: int = 1) -> tuple[Tensor, Tensor | None]:
    """Reads a network's output as `(shift, log_scale)`; an additive map has no scale.

    `log_scale = logsigmoid(raw + 2)`, so a network that says 0 scales by sigmoid(2) = 0.88 and no
    network can scale by more than 1.
    """
    if not affine:
        return raw, None
    shift, raw_scale = raw.chunk(2, dim=dim)
    return shift, F.logsigmoid(raw_scale + 2.0)


def affine_forward(x: Tensor, shift: Tensor, log_scale: Tensor | None) -> Tensor:
    """`y = x * exp(log_scale) + shift`."""
    return x + shift if log_scale is None else x * log_scale.exp() + shift


def affine_inverse(y: Tensor, shift: Tensor, log_scale: Tensor | None) -> Tensor:
    """`x = (y - shift) / exp(log_scale)`: divides by what `affine_forward` multiplied with."""
    return y - shift if log_scale is None else (y - shift) / log_scale.exp()
