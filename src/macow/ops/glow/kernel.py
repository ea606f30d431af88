"""A coupling, and the inverse of a Glow step, in four launches: three convolutions and the rest."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from macow.ops.compiling import launch
from macow.ops.glow.reference import GlowWeights
from macow.ops.launch import (
    Blocks,
    elu,
    halves,
    load_halves,
    log_sigmoid_in,
    power_of_two,
    product,
    split,
)


@triton.jit(do_not_specialize=["pixels"])
def _read(
    x, weight, bias, out,
    pixels, height, width,
    x_image, x_channel, x_row, x_column,
    CIN: tl.constexpr, COUT: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A 3x3 convolution and ELU as a product over taps and channels; out is `[2, pixels, COUT]`."""
    BLOCKS: tl.constexpr = (COUT + BLOCK_N - 1) // BLOCK_N
    SIZE: tl.constexpr = 9 * CIN
    pixel = tl.program_id(0) // BLOCKS * BLOCK_P + tl.arange(0, BLOCK_P)
    channel = tl.program_id(0) % BLOCKS * BLOCK_N + tl.arange(0, BLOCK_N)
    there = pixel < pixels
    image = (pixel // (height * width)).to(tl.int64)
    row, column = (pixel // width) % height, pixel % width
    x_pixel = x + image * x_image + row * x_row + column * x_column
    total = tl.zeros([BLOCK_P, BLOCK_N], tl.float32)
    for first in range(0, SIZE, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        down = k // (3 * CIN) - 1
        aside = (k // CIN) % 3 - 1
        at_row, at_column = row[:, None] + down[None, :], column[:, None] + aside[None, :]
        inside = there[:, None] & (k < SIZE)[None, :]
        inside &= (at_row >= 0) & (at_row < height) & (at_column >= 0) & (at_column < width)
        steps = down * x_row + aside * x_column + (k % CIN) * x_channel
        high, low = split(tl.load(x_pixel[:, None] + steps[None, :], mask=inside, other=0.0))
        weight_high, weight_low = load_halves(weight, k, channel, SIZE, COUT, SIZE)
        total += product(high, low, weight_high, weight_low)
    _store_halves(out, total, bias, pixel, channel, pixels, COUT)


@triton.jit(do_not_specialize=["pixels"])
def _multiply(
    a, b, bias, out, pixels, out_pixel, out_channel,
    K: tl.constexpr, N: tl.constexpr, ACTIVATED: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """`a @ b`, both in halves: with bias and ELU, and in halves again, if ACTIVATED."""
    BLOCKS: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    pixel = tl.program_id(0) // BLOCKS * BLOCK_P + tl.arange(0, BLOCK_P)
    channel = tl.program_id(0) % BLOCKS * BLOCK_N + tl.arange(0, BLOCK_N)
    there = pixel < pixels
    a_pixel = a + pixel.to(tl.int64) * K
    a_low = a_pixel + pixels.to(tl.int64) * K
    total = tl.zeros([BLOCK_P, BLOCK_N], tl.float32)
    for first in range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        mask = there[:, None] & (k < K)[None, :]
        high = tl.load(a_pixel[:, None] + k[None, :], mask=mask, other=0.0)
        low = tl.load(a_low[:, None] + k[None, :], mask=mask, other=0.0)
        b_high, b_low = load_halves(b, k, channel, K, N, K)
        total += product(high, low, b_high, b_low)
    if ACTIVATED:
        _store_halves(out, total, bias, pixel, channel, pixels, N)
    else:
        pointers = out + pixel.to(tl.int64)[:, None] * out_pixel
        pointers += channel.to(tl.int64)[None, :] * out_channel
        tl.store(pointers, total, mask=there[:, None] & (channel < N)[None, :])


@triton.jit(do_not_specialize=["pixels"])
def _multiply_twice(
    a, b, bias, c, out, pixels, out_pixel, out_channel,
    K: tl.constexpr, HIDDEN: tl.constexpr, N: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """`elu(a @ b + bias) @ c`, all in halves; what is between never leaves the chip."""
    pixel = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    channel = tl.arange(0, BLOCK_N)
    there = pixel < pixels
    a_pixel = a + pixel.to(tl.int64) * K
    a_low = a_pixel + pixels.to(tl.int64) * K
    total = tl.zeros([BLOCK_P, BLOCK_N], tl.float32)
    for first_unit in range(0, HIDDEN, BLOCK_H):
        unit = first_unit + tl.arange(0, BLOCK_H)
        h = tl.zeros([BLOCK_P, BLOCK_H], tl.float32)
        for first in range(0, K, BLOCK_K):
            k = first + tl.arange(0, BLOCK_K)
            mask = there[:, None] & (k < K)[None, :]
            high = tl.load(a_pixel[:, None] + k[None, :], mask=mask, other=0.0)
            low = tl.load(a_low[:, None] + k[None, :], mask=mask, other=0.0)
            b_high, b_low = load_halves(b, k, unit, K, HIDDEN, K)
            h += product(high, low, b_high, b_low)
        h += tl.load(bias + unit, mask=unit < HIDDEN, other=0.0)[None, :]
        high, low = split(elu(h))
        c_high, c_low = load_halves(c, unit, channel, HIDDEN, N, HIDDEN)
        total += product(high, low, c_high, c_low)
    pointers = out + pixel.to(tl.int64)[:, None] * out_pixel
    pointers += channel.to(tl.int64)[None, :] * out_channel
    tl.store(pointers, total, mask=there[:, None] & (channel < N)[None, :])


@triton.jit
def _store_halves(out, total, bias, pixel, channel, pixels, N: tl.constexpr):
    total += tl.load(bias + channel, mask=channel < N, other=0.0)[None, :]
    high, low = split(elu(total))
    pointers = out + pixel.to(tl.int64)[:, None] * N + channel[None, :]
    written = (pixel < pixels)[:, None] & (channel < N)[None, :]
    tl.store(pointers, high, mask=written)
    tl.store(pointers + pixels.to(tl.int64) * N, low, mask=written)


@triton.jit
def _folded(
    taps, bias, there, pixel, row, column, height, width, t_pixel, t_channel, j, known,
    OUTPUTS: tl.constexpr,
):  # fmt: skip
    """Outputs j of the last convolution: the sum of what nine pixels hold for this one.

    It is done with pixels side by side, as they lie in memory.
    """
    total = tl.load(bias + j, mask=known, other=0.0)[:, None]
    for tap in tl.static_range(9):
        down, aside = tap // 3 - 1, tap % 3 - 1
        inside = there & (row + down >= 0) & (row + down < height)
        inside &= (column + aside >= 0) & (column + aside < width)
        at = (pixel + down * width + aside).to(tl.int64)[None, :] * t_pixel
        at += (tap * OUTPUTS + j).to(tl.int64)[:, None] * t_channel
        total += tl.load(taps + at, mask=known[:, None] & inside[None, :], other=0.0)
    return tl.trans(total)


@triton.jit(do_not_specialize=["pixels"])
def _finish(
    y, taps, bias, matrix, offset, out, log_det,
    pixels, height, width,
    y_image, y_channel, y_row, y_column, t_pixel, t_channel,
    C: tl.constexpr, T: tl.constexpr, AFFINE: tl.constexpr, MIXED: tl.constexpr,
    UNDO: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """`out = matrix [y1, (y2 - shift) / scale] + offset`, pixel by pixel; out is `[pixels, C]`.

    Unless MIXED there is no matrix and no offset. That is to UNDO a coupling; else it is done,
    `out = [y1, y2 * scale + shift]`, with the sums of its log-scales, `log_det [pixels]`.
    """
    OUTPUTS: tl.constexpr = 2 * T if AFFINE else T
    pixel = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    channel = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    there = pixel < pixels
    image = (pixel // (height * width)).to(tl.int64)
    row, column = (pixel // width) % height, pixel % width
    y_pixel = y + image * y_image + row * y_row + column * y_column
    out_pixel = out + pixel.to(tl.int64)[:, None] * C
    log_scales = tl.zeros([BLOCK_P], tl.float32)
    if MIXED:
        total = tl.zeros([BLOCK_P, BLOCK_N], tl.float32)
        total += tl.load(offset + channel, mask=channel < C, other=0.0)[None, :]
    for first in range(0, C, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        mask = there[:, None] & (k < C)[None, :]
        values = tl.load(y_pixel[:, None] + k[None, :] * y_channel, mask=mask, other=0.0)
        if first + BLOCK_K > C - T:
            j = k - (C - T)
            known = (j >= 0) & (k < C)
            shift = _folded(
                taps, bias, there, pixel, row, column, height, width, t_pixel, t_channel, j,
                known, OUTPUTS,
            )  # fmt: skip
            scale = 1.0
            if AFFINE:
                raw = _folded(
                    taps, bias, there, pixel, row, column, height, width, t_pixel, t_channel,
                    j + T, known, OUTPUTS,
                )  # fmt: skip
                if UNDO:
                    scale = 1 + tl.exp(-(raw + 2))
                else:
                    log_scale = log_sigmoid_in(tl.float32, raw + 2)
                    log_scales += tl.sum(tl.where(known[None, :], log_scale, 0.0), axis=1)
                    scale = tl.exp(log_scale)
            new = (values - shift) * scale if UNDO else values * scale + shift
            values = tl.where(known[None, :], new, values)
        if MIXED:
            used = (k < C)[:, None] & (channel < C)[None, :]
            columns = tl.load(matrix + channel[None, :] * C + k[:, None], mask=used, other=0.0)
            total = tl.dot(values, columns, total, input_precision="ieee")
        else:
            tl.store(out_pixel + k[None, :], values, mask=mask)
    if MIXED:
        tl.store(out_pixel + channel[None, :], total, mask=there[:, None] & (channel < C)[None, :])
    if AFFINE and not UNDO:
        tl.store(log_det + pixel, log_scales, mask=there)


class Packed(NamedTuple):
    """A Glow step as the kernels read it."""

    first: Tensor
    """In halves, `[2, 9 * given, hidden]`."""
    first_bias: Tensor
    middle: Tensor
    """In halves, `[2, hidden, hidden]`."""
    middle_bias: Tensor
    last: Tensor
    """In halves, `[2, hidden, 9 * outputs]`, with some zeros after them."""
    last_bias: Tensor
    affine: bool
    mixing: tuple[Tensor, Tensor] | None


def pack(weights: GlowWeights) -> Packed:
    """Done once for many passes."""
    hidden = weights.middle.shape[0]
    first = weights.first.permute(2, 3, 1, 0).reshape(-1, hidden)
    last = weights.last.permute(1, 2, 3, 0).reshape(hidden, -1)
    last = F.pad(last, (0, -last.shape[1] % 16))  # so that rows start where wide loads may
    return Packed(
        halves(first),
        weights.first_bias.clone(),
        halves(weights.middle[:, :, 0, 0].t().contiguous()),
        weights.middle_bias.clone(),
        halves(last),
        weights.last_bias.clone(),
        weights.affine,
        weights.mixing and (weights.mixing[0].contiguous(), weights.mixing[1]),
    )


def _blocks(channels: int, pixels: int) -> Blocks:
    """The cuts of products that were fastest on an H200 (`docs/experiments.md`)."""
    wide = channels > 128 and pixels > 4096
    return Blocks(64, 128, 32, 4, 3) if wide else Blocks(64, 64, 64, 4, 3)


def read(x: Tensor, weight: Tensor, bias: Tensor, blocks: Blocks | None = None) -> Tensor:
    """The first convolution and its ELU: `[B, given, H, W] -> [2, pixels, hidden]`, in halves."""
    batch, channels, height, width = x.shape
    pixels, cout = batch * height * width, weight.shape[-1]
    out = x.new_empty(2, pixels, cout, dtype=torch.float16)
    if blocks is None:
        taps = 64 if 9 * channels <= 64 else 32
        blocks = Blocks(128, 32, 32, 4, 3) if cout <= 32 else Blocks(64, 128, taps, 4, 3)
    launch(
        _read, (triton.cdiv(pixels, blocks.pixels) * triton.cdiv(cout, blocks.channels),),
        x, weight, bias, out, pixels, height, width, *x.stride(),
        CIN=channels, COUT=cout,
        BLOCK_P=blocks.pixels, BLOCK_N=blocks.channels,
        BLOCK_K=min(blocks.inner, power_of_two(9 * channels, 16)),
        num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip
    return out


def multiply(a: Tensor, b: Tensor, bias: Tensor | None, blocks: Blocks | None = None) -> Tensor:
    """`a [2, pixels, k] @ b -> [pixels, n]`; given a bias, with ELU and in halves."""
    _, pixels, size = a.shape
    channels = b.shape[-1]
    if bias is not None:
        out = a.new_empty(2, pixels, channels)
    else:
        out = a.new_empty(channels, pixels, dtype=torch.float32).t()  # read column by column
    blocks = blocks or _blocks(channels, pixels)
    launch(
        _multiply, (triton.cdiv(pixels, blocks.pixels) * triton.cdiv(channels, blocks.channels),),
        a, b, b if bias is None else bias, out, pixels, *out.stride()[-2:],
        K=size, N=channels, ACTIVATED=bias is not None,
        BLOCK_P=blocks.pixels, BLOCK_N=blocks.channels,
        BLOCK_K=min(blocks.inner, power_of_two(size, 16)),
        num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip
    return out


def multiply_twice(a: Tensor, b: Tensor, bias: Tensor, c: Tensor) -> Tensor:
    """`elu(a @ b + bias) @ c`, `[2, pixels, k] -> [pixels, n]`: what is between is not stored."""
    _, pixels, size = a.shape
    blocks = Blocks(64, 128, 32, 4, 3)
    out = a.new_empty(c.shape[-1], pixels, dtype=torch.float32).t()  # read column by column
    launch(
        _multiply_twice, (triton.cdiv(pixels, blocks.pixels),),
        a, b, bias, c, out, pixels, *out.stride(),
        K=size, HIDDEN=b.shape[-1], N=c.shape[-1],
        BLOCK_P=blocks.pixels, BLOCK_H=min(blocks.channels, power_of_two(b.shape[-1], 16)),
        BLOCK_N=power_of_two(c.shape[-1], 16), BLOCK_K=min(blocks.inner, power_of_two(size, 16)),
        num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip
    return out


def inverse(y: Tensor, weights: Packed, cond: Tensor | None = None) -> Tensor:
    """As `reference.inverse`."""
    return _coupled(y, weights, cond, undo=True)[0]


def forward(x: Tensor, weights: Packed, cond: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """The coupling alone: `(y, log_det_map [B, H, W])`; an additive one has no map."""
    return _coupled(x, weights, cond, undo=False)


def _coupled(
    y: Tensor, weights: Packed, cond: Tensor | None, *, undo: bool
) -> tuple[Tensor, Tensor | None]:
    batch, channels, height, width = y.shape
    transformed = len(weights.last_bias) // (2 if weights.affine else 1)
    h = y[:, :-transformed]
    h = h if cond is None else torch.cat([h, cond], dim=1)
    h = read(h, weights.first, weights.first_bias)
    if weights.last.shape[-1] <= 64 and weights.middle.shape[-1] <= 256:
        taps = multiply_twice(h, weights.middle, weights.middle_bias, weights.last)
    else:
        h = multiply(h, weights.middle, weights.middle_bias)
        taps = multiply(h, weights.last, None)
    pixels = batch * height * width
    out = y.new_empty(pixels, channels)
    log_det = y.new_empty(batch, height, width) if weights.affine and not undo else None
    block = min(power_of_two(channels, 16), 64)
    taps_at_once, warps = (block, 2) if channels <= 32 else (16, 4)  # more would not fit registers
    blocks = triton.cdiv(channels, block) if weights.mixing else 1
    launch(
        _finish, (triton.cdiv(pixels, 64), blocks),
        y, taps, weights.last_bias, *(weights.mixing or (y, y)), out,
        out if log_det is None else log_det,
        pixels, height, width, *y.stride(), *taps.stride(),
        C=channels, T=transformed, AFFINE=weights.affine, MIXED=weights.mixing is not None,
        UNDO=undo, BLOCK_P=64, BLOCK_N=block, BLOCK_K=taps_at_once, num_warps=warps,
    )  # fmt: skip
    return out.view(batch, height, width, channels).permute(0, 3, 1, 2), log_det
