"""The inverse of a masked convolution in one launch: a program takes some images and all rows."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from macow.ops.launch import Precision, elu, high_part, power_of_two, product
from macow.ops.masked_conv.reference import MaskedConvWeights, Order
from macow.ops.serving import on_chip

SCANS = {"down": (2, 3, False), "up": (2, 3, True), "right": (3, 2, False), "left": (3, 2, True)}
"""Which dimension of `[B, C, H, W]` holds the rows of the scan, which the columns, and whether the
scan starts at the far end."""

STRIDES = [
    "images", "rows", "columns", "y_image", "y_channel", "y_row", "y_column",
    "x_image", "x_row", "x_column", "c_image", "c_channel", "c_row", "c_column",
]  # fmt: skip
"""Arguments that differ between orders and batches: one compiled kernel serves all of them."""


@triton.jit
def _mixing(
    mix, unit, out, C: tl.constexpr, HIDDEN: tl.constexpr, AFFINE: tl.constexpr
):  # fmt: skip
    """Some units' rows of `mix` in two parts, shift and raw scale of a channel side by side."""
    outputs: tl.constexpr = 2 * C if AFFINE else C
    mask = (unit < HIDDEN)[:, None] & _is_output(out, C, AFFINE)[None, :]
    pointers = mix + unit[:, None] * outputs + (out // 2 + out % 2 * C)[None, :]
    weight = tl.load(pointers, mask=mask, other=0.0)
    high = high_part(weight)
    return high, weight - high


@triton.jit
def _is_output(out, C: tl.constexpr, AFFINE: tl.constexpr):
    return (out // 2 < C) & ((out % 2 == 0) | AFFINE)


@triton.jit
def _taps(
    kernel, x_pixel, there, column, columns, x_row, x_column, k, unit,
    C: tl.constexpr, HIDDEN: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
):  # fmt: skip
    """Some taps and channels of the kernel: weights in two parts, and where each pixel reads them.

    Entry k is channel `k % C` of tap `k // C`. Returns the pointers for row 0, whether they lie
    inside the columns, and from which row on they lie inside the rows.
    """
    mask = (k < KH * KW * C)[:, None] & (unit < HIDDEN)[None, :]
    weight = tl.load(kernel + k[:, None] * HIDDEN + unit[None, :], mask=mask, other=0.0)
    high = high_part(weight)
    back = KH - k // (KW * C)
    aside = (k // C) % KW - KW // 2
    at = column[:, None] + aside[None, :]
    inside = there[:, None] & (at >= 0) & (at < columns) & (k < KH * KW * C)[None, :]
    pointers = x_pixel[:, None] + (k % C + aside * x_column - back * x_row)[None, :]
    return high, weight - high, pointers, inside, at * 0 + back[None, :]


@triton.jit(do_not_specialize=STRIDES)
def _scan_resident(
    y, x, context, kernel, bias, mix, mix_bias, scale, offset,
    images, rows, columns,
    y_image, y_channel, y_row, y_column,
    x_image, x_row, x_column,
    c_image, c_channel, c_row, c_column,
    C: tl.constexpr, HIDDEN: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    AFFINE: tl.constexpr, CONDITIONAL: tl.constexpr, NORMED: tl.constexpr,
    IMAGES: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_H: tl.constexpr,
    BLOCK_K: tl.constexpr, REST_K: tl.constexpr, AHEAD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """`x[row] = (y[row] - shift) / scale`, both from the rows of x above; all weights on chip.

    With AHEAD, for kernels of two rows, a finished row is read once: its part in the row after next
    is summed while nothing waits for it.
    """
    PIXELS: tl.constexpr = IMAGES * COLUMNS
    pixel = tl.arange(0, PIXELS)
    image = (tl.program_id(0) * IMAGES + pixel // COLUMNS).to(tl.int64)
    column = pixel % COLUMNS
    there = (image < images) & (column < columns)
    channel = tl.arange(0, BLOCK_C)
    mask = there[:, None] & (channel < C)[None, :]
    unit = tl.arange(0, BLOCK_H)
    out = tl.arange(0, 2 * BLOCK_C)
    y_pixels = y + (image * y_image + column * y_column)[:, None] + channel[None, :] * y_channel
    x_pixel = x + image * x_image + column * x_column
    x_pixels = x_pixel[:, None] + channel[None, :]
    c_pixels = context + (image * c_image + column * c_column)[:, None] + unit[None, :] * c_channel
    k = tl.arange(0, BLOCK_K)
    if AHEAD:
        far_high, far_low, pointers, inside, since = _taps(
            kernel, x_pixel, there, column, columns, x_row, x_column, k, unit, C, HIDDEN, 1, KW
        )
        high, low, pointers, inside, since = _taps(
            kernel + KW * C * HIDDEN,
            x_pixel, there, column, columns, x_row, x_column, k, unit, C, HIDDEN, 1, KW,
        )  # fmt: skip
    else:
        high, low, pointers, inside, since = _taps(
            kernel, x_pixel, there, column, columns, x_row, x_column, k, unit, C, HIDDEN, KH, KW
        )
    if REST_K > 0:
        rest_high, rest_low, rest_pointers, rest_inside, rest_since = _taps(
            kernel, x_pixel, there, column, columns, x_row, x_column,
            BLOCK_K + tl.arange(0, REST_K), unit, C, HIDDEN, KH, KW,
        )  # fmt: skip
    mix_high, mix_low = _mixing(mix, unit, out, C, HIDDEN, AFFINE)
    unit_bias = tl.load(bias + unit, mask=unit < HIDDEN, other=0.0)
    out_bias = tl.load(mix_bias + out // 2 + out % 2 * C, _is_output(out, C, AFFINE), other=0.0)
    if NORMED:
        factor = tl.load(scale + channel, mask=channel < C, other=0.0)
        moved = tl.load(offset + channel, mask=channel < C, other=0.0)
    begun = tl.zeros([PIXELS, BLOCK_H], tl.float32) + unit_bias[None, :]
    for row in range(rows):
        values = tl.load(y_pixels + row * y_row, mask, other=0.0)
        if NORMED:
            values = values * factor[None, :] + moved[None, :]
        window = tl.load(pointers + row * x_row, inside & (since <= row), other=0.0)
        h = begun + product(window, high, low, PRECISION)
        if REST_K > 0:
            rest = tl.load(
                rest_pointers + row * x_row, rest_inside & (rest_since <= row), other=0.0
            )
            h += product(rest, rest_high, rest_low, PRECISION)
        if CONDITIONAL:
            given = there[:, None] & (unit < HIDDEN)[None, :]
            h += tl.load(c_pixels + row * c_row, given, other=0.0)
        total = product(elu(h), mix_high, mix_low, PRECISION) + out_bias[None, :]
        shift, raw = tl.split(tl.reshape(total, [PIXELS, BLOCK_C, 2]))
        values -= shift
        if AFFINE:
            values *= 1 + tl.exp(-(raw + 2))
        tl.store(x_pixels + row * x_row, values, mask)
        if AHEAD:
            begun = product(window, far_high, far_low, PRECISION) + unit_bias[None, :]
        tl.debug_barrier()  # the next row reads what other threads of the program have written


@triton.jit(do_not_specialize=STRIDES)
def _scan_streaming(
    y, x, context, kernel, bias, mix, mix_bias, scale, offset,
    images, rows, columns,
    y_image, y_channel, y_row, y_column,
    x_image, x_row, x_column,
    c_image, c_channel, c_row, c_column,
    C: tl.constexpr, HIDDEN: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    AFFINE: tl.constexpr, CONDITIONAL: tl.constexpr, NORMED: tl.constexpr,
    IMAGES: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_H: tl.constexpr,
    BLOCK_K: tl.constexpr, REST_K: tl.constexpr, AHEAD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The same for any kernel and any number of channels: each row reads all weights again.

    A block of hidden units is computed tap by tap, mixed into shift and scale, and forgotten.
    """
    PIXELS: tl.constexpr = IMAGES * COLUMNS
    K: tl.constexpr = KH * KW * C
    OUTPUTS: tl.constexpr = 2 * C if AFFINE else C
    pixel = tl.arange(0, PIXELS)
    image = (tl.program_id(0) * IMAGES + pixel // COLUMNS).to(tl.int64)
    column = pixel % COLUMNS
    there = (image < images) & (column < columns)
    channel = tl.arange(0, BLOCK_C)
    mask = there[:, None] & (channel < C)[None, :]
    y_pixels = y + (image * y_image + column * y_column)[:, None] + channel[None, :] * y_channel
    x_pixel = x + image * x_image + column * x_column
    c_pixel = context + image * c_image + column * c_column
    for row in range(rows):
        shift = tl.zeros([PIXELS, BLOCK_C], tl.float32)
        raw = tl.zeros([PIXELS, BLOCK_C], tl.float32)
        for first_unit in range(0, HIDDEN, BLOCK_H):
            unit = first_unit + tl.arange(0, BLOCK_H)
            h = tl.zeros([PIXELS, BLOCK_H], tl.float32)
            h += tl.load(bias + unit, mask=unit < HIDDEN, other=0.0)[None, :]
            if CONDITIONAL:
                given = there[:, None] & (unit < HIDDEN)[None, :]
                pointers = c_pixel[:, None] + row * c_row + unit[None, :] * c_channel
                h += tl.load(pointers, given, other=0.0)
            for first in range(0, K, BLOCK_K):
                k = first + tl.arange(0, BLOCK_K)
                seen = row - KH + k // (KW * C)
                aside = (k // C) % KW - KW // 2
                at = column[:, None] + aside[None, :]
                inside = there[:, None] & (at >= 0) & (at < columns)
                inside &= ((seen >= 0) & (k < K))[None, :]
                steps = seen * x_row + aside * x_column + k % C
                window = tl.load(x_pixel[:, None] + steps[None, :], mask=inside, other=0.0)
                weight = tl.load(
                    kernel + k[:, None] * HIDDEN + unit[None, :],
                    mask=(k < K)[:, None] & (unit < HIDDEN)[None, :],
                    other=0.0,
                )
                h = tl.dot(window, weight, h, input_precision=PRECISION)
            h = elu(h)
            mixing = mix + unit[:, None] * OUTPUTS + channel[None, :]
            mixed = (unit < HIDDEN)[:, None] & (channel < C)[None, :]
            to_shift = tl.load(mixing, mask=mixed, other=0.0)
            shift = tl.dot(h, to_shift, shift, input_precision=PRECISION)
            if AFFINE:
                to_raw = tl.load(mixing + C, mask=mixed, other=0.0)
                raw = tl.dot(h, to_raw, raw, input_precision=PRECISION)
        values = tl.load(y_pixels + row * y_row, mask, other=0.0)
        if NORMED:
            factor = tl.load(scale + channel, mask=channel < C, other=0.0)
            moved = tl.load(offset + channel, mask=channel < C, other=0.0)
            values = values * factor[None, :] + moved[None, :]
        values -= shift + tl.load(mix_bias + channel, mask=channel < C, other=0.0)[None, :]
        if AFFINE:
            raw += tl.load(mix_bias + C + channel, mask=channel < C, other=0.0)[None, :]
            values *= 1 + tl.exp(-(raw + 2))
        tl.store(x_pixel[:, None] + row * x_row + channel[None, :], values, mask)
        tl.debug_barrier()  # as above


class Blocks(NamedTuple):
    """How a program cuts its work; the rest of the taps is a second block of them, or 0."""

    images: int
    taps: int
    rest: int
    units: int
    warps: int
    ahead: bool = False
    resident: bool = True
    precision: Precision = "tf32x3"


BESIDES = 12_000
"""Bytes on chip for what is not weights."""


def _blocks(columns: int, channels: int, hidden: int, kh: int, kw: int, room: int) -> Blocks:
    """The cuts that were fastest on an H200 (`docs/experiments.md`), if weights have the room."""
    units, outputs = power_of_two(hidden, 16), 2 * power_of_two(channels, 16)
    warps = 8 if channels > 12 or columns > 16 and channels > 3 else 4
    size = kh * kw * channels
    taps, rest = power_of_two(size, 16), 0
    if taps > 16 and size <= taps // 2 + taps // 4:
        taps //= 2
        rest = power_of_two(size - taps, 16)
    row = power_of_two(kw * channels, 16)
    shorter = 2 * row <= taps + rest or columns > 16
    if kh == 2 and shorter and 8 * units * (2 * row + outputs) <= room:
        return Blocks(1, row, 0, units, warps, ahead=True)
    if 8 * units * (taps + rest + outputs) <= room:
        return Blocks(1, taps, rest, units, warps)
    units = min(units, 16384 // outputs)
    if columns <= 8:  # too few pixels to fill a tensor core's tile
        return Blocks(1, 32, 0, min(units, 64), 4, resident=False, precision="ieee")
    return Blocks(1, 32, 0, min(units, 128), 8, resident=False)


def inverse(
    y: Tensor,
    weights: MaskedConvWeights,
    order: Order,
    context: Tensor | None = None,
    *,
    norm: tuple[Tensor, Tensor] | None = None,
    blocks: Blocks | None = None,
) -> Tensor:
    """As `reference.inverse`; `norm` is a factor and an offset for each channel of y."""
    row_dim, column_dim, far = SCANS[order]
    batch, channels, rows, columns = y.shape[0], y.shape[1], y.shape[row_dim], y.shape[column_dim]
    hidden, _, kh, kw = weights.kernel.shape
    kernel = weights.kernel.permute(2, 3, 1, 0).contiguous()
    mix = weights.mix.t().contiguous()
    x = torch.empty_like(y, memory_format=torch.channels_last)

    def turned(t: Tensor) -> tuple[Tensor, int, int]:
        """Where the scan starts, and the steps from row to row and from column to column."""
        start = t.select(row_dim, rows - 1) if far else t
        return start, -t.stride(row_dim) if far else t.stride(row_dim), t.stride(column_dim)

    blocks = blocks or _blocks(columns, channels, hidden, kh, kw, on_chip(y.device) - BESIDES)
    y_start, y_row, y_column = turned(y)
    x_start, x_row, x_column = turned(x)
    c_start, c_row, c_column = turned(y if context is None else context)
    scan = _scan_resident if blocks.resident else _scan_streaming
    scan[(triton.cdiv(batch, blocks.images),)](
        y_start, x_start, c_start, kernel, weights.bias, mix, weights.mix_bias,
        *(norm or (y, y)),
        batch, rows, columns,
        y.stride(0), y.stride(1), y_row, y_column,
        x.stride(0), x_row, x_column,
        *(y if context is None else context).stride()[:2], c_row, c_column,
        C=channels, HIDDEN=hidden, KH=kh, KW=kw,
        AFFINE=weights.affine, CONDITIONAL=context is not None, NORMED=norm is not None,
        IMAGES=blocks.images, COLUMNS=power_of_two(columns),
        BLOCK_C=power_of_two(channels, 16), BLOCK_H=blocks.units,
        BLOCK_K=blocks.taps, REST_K=blocks.rest,
        AHEAD=blocks.ahead, PRECISION=blocks.precision, num_warps=blocks.warps,
    )  # fmt: skip
    return x
