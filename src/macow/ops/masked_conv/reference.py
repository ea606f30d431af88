"""Masked convolution in plain torch (paper, section 3.1): what every kernel is held to."""

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from macow.ops.affine import affine_forward, affine_inverse, affine_parameters
from macow.ops.layout import laid

Order = Literal["down", "up", "right", "left"]
ORDERS: tuple[Order, ...] = ("down", "up", "right", "left")


class MaskedConvWeights(NamedTuple):
    """The network of one masked convolution, oriented as a downward scan whatever its order."""

    kernel: Tensor
    """`[hidden, C, kh, kw]`: reads the kh rows above a pixel, never its own row."""
    bias: Tensor
    """`[hidden]`"""
    mix: Tensor
    """`[C, hidden]`, or `[2C, hidden]` when affine: shifts first, then raw scales."""
    mix_bias: Tensor
    """`[C]` or `[2C]`"""

    @property
    def affine(self) -> bool:
        """Whether the network also gives a scale."""
        return self.mix.shape[0] == 2 * self.kernel.shape[1]


class MaskedConvMatrices(NamedTuple):
    """A network's weights as matrices, and copies in the type that products compute in."""

    kernel: Tensor
    """`[kh * kw * C, hidden]`"""
    bias: Tensor
    mix: Tensor
    """`[hidden, C]`, or `[hidden, 2C]` if affine"""
    mix_bias: Tensor
    low_kernel: Tensor
    low_mix: Tensor


class MaskedConvLayer(NamedTuple):
    """A masked convolution as kernels take it, after an ActNorm if there is one."""

    matrices: MaskedConvMatrices
    size: tuple[int, int]
    """Its window's, (kh, kw)"""
    order: Order
    context: Tensor | None = None
    norm: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)
    """Log-scale and shift"""


def turn(x: Tensor, order: Order) -> Tensor:
    """Turns an image so that the scan goes down its rows."""
    if order in ("right", "left"):
        x = x.transpose(2, 3)
    return x.flip(2) if order in ("up", "left") else x


def turn_back(x: Tensor, order: Order) -> Tensor:
    """Undoes `turn`."""
    if order in ("up", "left"):
        x = x.flip(2)
    return x.transpose(2, 3) if order in ("right", "left") else x


def hidden(x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    """The masked convolution proper, on a turned image: row i sees rows i-kh .. i-1."""
    kh, kw = kernel.shape[2:]
    x = F.pad(x, (kw // 2, kw // 2, kh, -1))  # shift by one row: a row must never see itself
    return F.conv2d(x, kernel, bias)


def forward(
    x: Tensor, weights: MaskedConvWeights, order: Order, context: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """All rows at once: `x [B, C, H, W] -> (y, log_scale)`, both `[B, C, H, W]` (None if additive).

    `context [B, hidden, H, W]` is added before the ELU.
    """
    x = laid(turn(x, order))
    h = hidden(x, weights.kernel, weights.bias)
    if context is not None:
        h = h + laid(turn(context, order))
    raw = F.conv2d(F.elu_(h), weights.mix[:, :, None, None], weights.mix_bias)
    shift, log_scale = affine_parameters(raw, affine=weights.affine)
    y = laid(turn_back(affine_forward(x, shift, log_scale), order))
    return y, None if log_scale is None else turn_back(log_scale, order)


def inverse(
    y: Tensor, weights: MaskedConvWeights, order: Order, context: Tensor | None = None
) -> Tensor:
    """Row after row: each needs only the kh rows above it, so H steps of `NN(kh, W, C)` in all.

    The image lies as `[rows, B, columns, C]` with a margin of zeros, so that the window a row reads
    is one strided view and its network two matrix products.
    """
    y = turn(y, order).permute(2, 0, 3, 1).contiguous()
    height, batch, width, channels = y.shape
    kh, kw = weights.kernel.shape[2:]
    margin = kw // 2
    kernel = weights.kernel.permute(2, 3, 1, 0).reshape(kh * kw * channels, -1)
    mix = weights.mix.t()
    biases = weights.bias.expand(height, 1, -1)
    if context is not None:
        biases = biases + turn(context, order).permute(2, 0, 3, 1).flatten(1, 2)

    x = y.new_zeros(kh + height, batch, width + 2 * margin, channels)
    row, image, column, _ = x.stride()
    for i in range(height):
        window = x.as_strided((batch, width, kh, kw * channels), (image, column, row, 1), i * row)
        window = window.clone(memory_format=torch.contiguous_format)  # x goes on changing
        h = F.elu_(torch.addmm(biases[i], window.view(batch * width, -1), kernel))
        raw = torch.addmm(weights.mix_bias, h, mix).view(batch, width, -1)
        shift, log_scale = affine_parameters(raw, affine=weights.affine, dim=-1)
        x[kh + i, :, margin : margin + width] = affine_inverse(y[i], shift, log_scale)
    return laid(turn_back(x[kh:, :, margin : margin + width].permute(1, 3, 0, 2), order))
