"""The inverse of a Glow step in plain torch: what its kernels are held to."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from macow.ops.affine import affine_inverse, affine_parameters


class GlowWeights(NamedTuple):
    """A Glow step ready to be undone: its network, and 1x1 convolution and ActNorm as one map."""

    first: Tensor
    """`[hidden, given, 3, 3]`"""
    first_bias: Tensor
    middle: Tensor
    """`[hidden, hidden, 1, 1]`"""
    middle_bias: Tensor
    last: Tensor
    """`[T, hidden, 3, 3]`, or `[2T, ...]` when affine: T shifts, then T raw scales."""
    last_bias: Tensor
    affine: bool
    mixing: tuple[Tensor, Tensor] | None
    """`[C, C]` and `[C]`: undoes 1x1 convolution and ActNorm; None for a coupling alone."""


def inverse(y: Tensor, weights: GlowWeights, cond: Tensor | None = None) -> Tensor:
    """`x = matrix [y1, (y2 - shift(y1)) / scale(y1)] + offset`, `[B, C, H, W]`."""
    transformed = weights.last.shape[0] // (2 if weights.affine else 1)
    given, y2 = y[:, :-transformed], y[:, -transformed:]
    h = given if cond is None else torch.cat([given, cond], dim=1)
    h = F.elu_(F.conv2d(h, weights.first, weights.first_bias, padding=1))
    h = F.elu_(F.conv2d(h, weights.middle, weights.middle_bias))
    raw = F.conv2d(h, weights.last, weights.last_bias, padding=1)
    x2 = affine_inverse(y2, *affine_parameters(raw, affine=weights.affine))
    x = torch.cat([given, x2], dim=1)
    if weights.mixing is not None:
        matrix, offset = weights.mixing
        x = F.conv2d(x, matrix[:, :, None, None], offset)
    return x
