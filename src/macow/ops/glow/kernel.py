"""The inverse of a Glow step in four launches: its network's three convolutions, and the rest."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from macow.ops.glow.reference import GlowWeights
from macow.ops.launch import elu, high_part, power_of_two, product


@triton.jit(do_not_specialize=["pixels"])
def _convolve(
    x, weight, bias, out,
    pixels, height, width,
    x_image, x_channel, x_row, x_column,
    CIN: tl.constexpr, COUT: tl.constexpr, SIDE: tl.constexpr, ELU: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A SIDE x SIDE convolution as a matrix product over taps and channels, `[pixels, COUT]`."""
    pixel = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    channel = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    there = pixel < pixels
    image = (pixel // (height * width)).to(tl.int64)
    row = (pixel // width) % height
    column = pixel % width
    x_pixel = x + image * x_image + row * x_row + column * x_column
    total = tl.zeros([BLOCK_P, BLOCK_N], tl.float32)
    total += tl.load(bias + channel, mask=channel < COUT, other=0.0)[None, :]
    for first in range(0, SIDE * SIDE * CIN, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        down = k // (SIDE * CIN) - SIDE // 2
        aside = (k // CIN) % SIDE - SIDE // 2
        inside = there[:, None] & (k < SIDE * SIDE * CIN)[None, :]
        if SIDE > 1:
            at_row, at_column = row[:, None] + down[None, :], column[:, None] + aside[None, :]
            inside &= (at_row >= 0) & (at_row < height) & (at_column >= 0) & (at_column < width)
        steps = down * x_row + aside * x_column + (k % CIN) * x_channel
        window = tl.load(x_pixel[:, None] + steps[None, :], mask=inside, other=0.0)
        read = (k < SIDE * SIDE * CIN)[:, None] & (channel < COUT)[None, :]
        taps = tl.load(weight + k[:, None] * COUT + channel[None, :], mask=read, other=0.0)
        if WIDE:
            total = tl.dot(window, taps, total, input_precision="tf32x3")
        else:
            high = high_part(taps)
            total += product(window, high, taps - high, "tf32x3")
    if ELU:
        total = elu(total)
    written = there[:, None] & (channel < COUT)[None, :]
    tl.store(out + pixel.to(tl.int64)[:, None] * COUT + channel[None, :], total, mask=written)


@triton.jit(do_not_specialize=["pixels"])
def _finish(
    y, raw, matrix, offset, out,
    pixels, size, width,
    y_image, y_channel, y_row, y_column,
    C: tl.constexpr, T: tl.constexpr, AFFINE: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """`out = matrix [y1, (y2 - shift) / scale] + offset`, pixel by pixel; out is `[pixels, C]`."""
    pixel = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    channel = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    there = pixel < pixels
    image = (pixel // size).to(tl.int64)
    y_pixel = y + image * y_image + (pixel % size) // width * y_row + pixel % width * y_column
    outputs: tl.constexpr = 2 * T if AFFINE else T
    raw_pixel = raw + pixel.to(tl.int64) * outputs
    total = tl.zeros([BLOCK_P, BLOCK_N], tl.float32)
    total += tl.load(offset + channel, mask=channel < C, other=0.0)[None, :]
    for first in range(0, C, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        mask = there[:, None] & (k < C)[None, :]
        changed = mask & (k >= C - T)[None, :]
        values = tl.load(y_pixel[:, None] + k[None, :] * y_channel, mask=mask, other=0.0)
        shifts = raw_pixel[:, None] + (k - (C - T))[None, :]
        values -= tl.load(shifts, mask=changed, other=0.0)
        if AFFINE:
            scale = tl.load(shifts + T, mask=changed, other=0.0)
            values = tl.where(changed, values * (1 + tl.exp(-(scale + 2))), values)
        read = (k < C)[:, None] & (channel < C)[None, :]
        columns = tl.load(matrix + channel[None, :] * C + k[:, None], mask=read, other=0.0)
        total = tl.dot(values, columns, total, input_precision="ieee")
    written = there[:, None] & (channel < C)[None, :]
    tl.store(out + pixel.to(tl.int64)[:, None] * C + channel[None, :], total, mask=written)


class Blocks(NamedTuple):
    """How a convolution is cut into programs; `wide` leaves the splitting of floats to Triton."""

    pixels: int
    channels: int
    taps: int
    warps: int
    stages: int
    wide: bool = False


def _blocks(size: int, channels: int, pixels: int) -> Blocks:
    """The cuts that were fastest on an H200 (`docs/experiments.md`)."""
    if channels <= 16:
        return Blocks(128, 16, 64 if size > 1024 else 32, 4, 3)
    if channels <= 64:
        return Blocks(64, 32 if pixels > 4096 else 16, 64, 4, 3)
    if size >= 256 or pixels <= 4096:
        return Blocks(128, 64, 32, 8, 3, wide=True)
    return Blocks(128, 64, 64, 4, 3)


def convolve(
    x: Tensor, weight: Tensor, bias: Tensor, *, activated: bool, blocks: Blocks | None = None
) -> Tensor:
    """A padded convolution, with ELU after it if asked: `[B, in, H, W] -> [B, out, H, W]`."""
    batch, channels, height, width = x.shape
    cout, side = weight.shape[0], weight.shape[-1]
    pixels, size = batch * height * width, side * side * channels
    taps = weight.permute(2, 3, 1, 0).reshape(size, cout).contiguous()
    out = x.new_empty(pixels, cout)
    blocks = blocks or _blocks(size, cout, pixels)
    _convolve[(triton.cdiv(pixels, blocks.pixels), triton.cdiv(cout, blocks.channels))](
        x, taps, bias, out, pixels, height, width, *x.stride(),
        CIN=channels, COUT=cout, SIDE=side, ELU=activated,
        BLOCK_P=blocks.pixels, BLOCK_N=blocks.channels,
        BLOCK_K=min(blocks.taps, power_of_two(size, 16)), WIDE=blocks.wide,
        num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip
    return out.view(batch, height, width, cout).permute(0, 3, 1, 2)


def inverse(y: Tensor, weights: GlowWeights, cond: Tensor | None = None) -> Tensor:
    """As `reference.inverse`."""
    batch, channels, height, width = y.shape
    transformed = weights.last.shape[0] // (2 if weights.affine else 1)
    h = y[:, :-transformed]
    h = h if cond is None else torch.cat([h, cond], dim=1)
    h = convolve(h, weights.first, weights.first_bias, activated=True)
    h = convolve(h, weights.middle, weights.middle_bias, activated=True)
    raw = convolve(h, weights.last, weights.last_bias, activated=False)
    pixels = batch * height * width
    out = y.new_empty(pixels, channels)
    block = min(power_of_two(channels, 16), 64)
    _finish[(triton.cdiv(pixels, 64), triton.cdiv(channels, block))](
        y, raw, weights.matrix.contiguous(), weights.offset, out,
        pixels, height * width, width, *y.stride(),
        C=channels, T=transformed, AFFINE=weights.affine,
        BLOCK_P=64, BLOCK_N=block, BLOCK_K=min(block, 32), num_warps=4,
    )  # fmt: skip
    return out.view(batch, height, width, channels).permute(0, 3, 1, 2)
