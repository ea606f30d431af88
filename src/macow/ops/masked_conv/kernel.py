"""The inverse of a masked convolution in one launch: a program takes some images and all rows."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from macow.ops.compiling import launch
from macow.ops.launch import elu, halves, load_halves, power_of_two, product, split
from macow.ops.masked_conv.reference import MaskedConvWeights, Order
from macow.ops.serving import on_chip

SCANS = {"down": (2, 3, False), "up": (2, 3, True), "right": (3, 2, False), "left": (3, 2, True)}
"""Which dimension of `[B, C, H, W]` holds the rows of the scan, which the columns, and whether the
scan starts at the far end."""

STRIDES = [
    "images", "rows", "columns", "y_image", "y_channel", "y_row", "y_column",
    "x_row", "c_image", "c_channel", "c_row", "c_column",
]  # fmt: skip
"""Arguments that differ between orders and batches: one compiled kernel serves all of them."""


@triton.jit
def _reads(
    x_pixel, there, column, columns, x_row, k,
    BACK: tl.constexpr, C: tl.constexpr, KW: tl.constexpr,
):  # fmt: skip
    """Where each pixel reads taps and channels: pointers for row 0, whether inside the columns.

    Entry k is channel `k % C` of tap `k // C`: the first KW taps lie BACK rows above the pixel, the
    next one row less. Also returns how many rows above each entry lies.
    """
    above = BACK - k // (KW * C)
    at = column[:, None] + ((k // C) % KW - KW // 2)[None, :]
    inside = there[:, None] & (at >= 0) & (at < columns) & (k < BACK * KW * C)[None, :]
    steps = k % (KW * C) - KW // 2 * C - above * x_row * C
    return x_pixel[:, None] + steps[None, :], inside, above


@triton.jit
def _undo(values, total, AFFINE: tl.constexpr):
    """`(values - shift) / scale`; shift and raw scale of a channel lie side by side in total."""
    if AFFINE:
        shift, raw = tl.split(tl.reshape(total, [total.shape[0], total.shape[1] // 2, 2]))
        values = (values - shift) * (1 + tl.exp(-(raw + 2)))
    else:
        values -= total
    return values


@triton.jit(do_not_specialize=STRIDES)
def _scan_resident(
    y, x, context, kernel, bias, mix, mix_bias, scale, offset,
    images, rows, columns,
    y_image, y_channel, y_row, y_column,
    x_row,
    c_image, c_channel, c_row, c_column,
    C: tl.constexpr, HIDDEN: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    AFFINE: tl.constexpr, CONDITIONAL: tl.constexpr, NORMED: tl.constexpr,
    IMAGES: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_H: tl.constexpr,
    BLOCK_K: tl.constexpr, REST: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """`x[row] = (y[row] - shift) / scale`, both from the rows of x above; all weights on chip.

    With AHEAD, for kernels of two rows, a finished row is read once: its part in the row after next
    is summed while nothing waits for it.
    """
    PIXELS: tl.constexpr = IMAGES * COLUMNS
    OUTPUTS: tl.constexpr = 2 * C if AFFINE else C
    ALL: tl.constexpr = KH * KW * C
    pixel = tl.arange(0, PIXELS)
    image = (tl.program_id(0) * IMAGES + pixel // COLUMNS).to(tl.int64)
    column = pixel % COLUMNS
    there = (image < images) & (column < columns)
    channel = tl.arange(0, BLOCK_C)
    mask = there[:, None] & (channel < C)[None, :]
    unit = tl.arange(0, BLOCK_H)
    out = tl.arange(0, 2 * BLOCK_C if AFFINE else BLOCK_C)
    y_pixels = y + (image * y_image + column * y_column)[:, None] + channel[None, :] * y_channel
    x_pixel = x + (image * rows * columns + column) * C
    x_pixels = x_pixel[:, None] + channel[None, :]
    c_pixels = context + (image * c_image + column * c_column)[:, None] + unit[None, :] * c_channel
    k = tl.arange(0, BLOCK_K)
    if AHEAD:
        NEAR: tl.constexpr = KW * C
        far_high, far_low = load_halves(kernel, k, unit, NEAR, HIDDEN, ALL)
        high, low = load_halves(kernel + NEAR * HIDDEN, k, unit, NEAR, HIDDEN, ALL)
        pointers, inside, above = _reads(x_pixel, there, column, columns, x_row, k, 1, C, KW)
    else:
        high, low = load_halves(kernel, k, unit, ALL, HIDDEN, ALL)
        pointers, inside, above = _reads(x_pixel, there, column, columns, x_row, k, KH, C, KW)
    mix_high, mix_low = load_halves(mix, unit, out, HIDDEN, OUTPUTS, HIDDEN)
    unit_bias = tl.load(bias + unit, mask=unit < HIDDEN, other=0.0)
    out_bias = tl.load(mix_bias + out, mask=out < OUTPUTS, other=0.0)
    if NORMED:
        factor = tl.load(scale + channel, mask=channel < C, other=0.0)
        moved = tl.load(offset + channel, mask=channel < C, other=0.0)
    begun = tl.zeros([PIXELS, BLOCK_H], tl.float32) + unit_bias[None, :]
    for row in range(rows):
        values = tl.load(y_pixels + row * y_row, mask, other=0.0)
        if NORMED:
            values = values * factor[None, :] + moved[None, :]
        window = tl.load(pointers + row * x_row * C, inside & (above <= row)[None, :], other=0.0)
        window_high, window_low = split(window)
        h = begun + product(window_high, window_low, high, low)
        if CONDITIONAL:
            given = there[:, None] & (unit < HIDDEN)[None, :]
            h += tl.load(c_pixels + row * c_row, given, other=0.0)
        a, b = split(elu(h))
        total = product(a, b, mix_high, mix_low) + out_bias[None, :]
        tl.store(x_pixels + row * x_row * C, _undo(values, total, AFFINE), mask)
        if AHEAD:
            begun = product(window_high, window_low, far_high, far_low) + unit_bias[None, :]
        tl.debug_barrier()  # the next row reads what other threads of the program have written


@triton.jit
def _some_units(
    unit, row, out,
    x_pixel, c_pixel, kernel, bias, mix,
    there, column, columns, x_row, c_row, c_channel,
    C: tl.constexpr, HIDDEN: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    OUTPUTS: tl.constexpr, CONDITIONAL: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """What some hidden units add to shift and scale of a row; their taps are read in blocks."""
    ALL: tl.constexpr = KH * KW * C
    h = tl.zeros([there.shape[0], unit.shape[0]], tl.float32)
    h += tl.load(bias + unit, mask=unit < HIDDEN, other=0.0)[None, :]
    if CONDITIONAL:
        given = there[:, None] & (unit < HIDDEN)[None, :]
        context = c_pixel[:, None] + row * c_row + unit[None, :] * c_channel
        h += tl.load(context, given, other=0.0)
    for first in range(0, ALL, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        pointers, inside, above = _reads(x_pixel, there, column, columns, x_row, k, KH, C, KW)
        seen = inside & (above <= row)[None, :]
        a, b = split(tl.load(pointers + row * x_row * C, mask=seen, other=0.0))
        high, low = load_halves(kernel, k, unit, ALL, HIDDEN, ALL)
        h += product(a, b, high, low)
    mix_high, mix_low = load_halves(mix, unit, out, HIDDEN, OUTPUTS, HIDDEN)
    a, b = split(elu(h))
    return product(a, b, mix_high, mix_low)


@triton.jit(do_not_specialize=STRIDES)
def _scan_streaming(
    y, x, context, kernel, bias, mix, mix_bias, scale, offset,
    images, rows, columns,
    y_image, y_channel, y_row, y_column,
    x_row,
    c_image, c_channel, c_row, c_column,
    C: tl.constexpr, HIDDEN: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    AFFINE: tl.constexpr, CONDITIONAL: tl.constexpr, NORMED: tl.constexpr,
    IMAGES: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_H: tl.constexpr,
    BLOCK_K: tl.constexpr, REST: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """The same for any kernel and any number of channels: each row reads all weights again.

    Hidden units are computed in blocks of BLOCK_H and a last one of REST, mixed into shift and
    scale, and forgotten.
    """
    PIXELS: tl.constexpr = IMAGES * COLUMNS
    OUTPUTS: tl.constexpr = 2 * C if AFFINE else C
    FULL: tl.constexpr = HIDDEN // BLOCK_H * BLOCK_H if REST > 0 else HIDDEN
    pixel = tl.arange(0, PIXELS)
    image = (tl.program_id(0) * IMAGES + pixel // COLUMNS).to(tl.int64)
    column = pixel % COLUMNS
    there = (image < images) & (column < columns)
    channel = tl.arange(0, BLOCK_C)
    mask = there[:, None] & (channel < C)[None, :]
    out = tl.arange(0, 2 * BLOCK_C if AFFINE else BLOCK_C)
    y_pixels = y + (image * y_image + column * y_column)[:, None] + channel[None, :] * y_channel
    x_pixel = x + (image * rows * columns + column) * C
    c_pixel = context + image * c_image + column * c_column
    for row in range(rows):
        out_bias = tl.load(mix_bias + out, mask=out < OUTPUTS, other=0.0)
        total = tl.zeros([PIXELS, 2 * BLOCK_C if AFFINE else BLOCK_C], tl.float32)
        total += out_bias[None, :]
        for first_unit in range(0, FULL, BLOCK_H):
            total += _some_units(
                first_unit + tl.arange(0, BLOCK_H), row, out,
                x_pixel, c_pixel, kernel, bias, mix,
                there, column, columns, x_row, c_row, c_channel,
                C, HIDDEN, KH, KW, OUTPUTS, CONDITIONAL, BLOCK_K,
            )  # fmt: skip
        if REST > 0:
            total += _some_units(
                FULL + tl.arange(0, REST), row, out,
                x_pixel, c_pixel, kernel, bias, mix,
                there, column, columns, x_row, c_row, c_channel,
                C, HIDDEN, KH, KW, OUTPUTS, CONDITIONAL, BLOCK_K,
            )  # fmt: skip
        values = tl.load(y_pixels + row * y_row, mask, other=0.0)
        if NORMED:
            factor = tl.load(scale + channel, mask=channel < C, other=0.0)
            moved = tl.load(offset + channel, mask=channel < C, other=0.0)
            values = values * factor[None, :] + moved[None, :]
        x_pixels = x_pixel[:, None] + row * x_row * C + channel[None, :]
        tl.store(x_pixels, _undo(values, total, AFFINE), mask)
        tl.debug_barrier()  # as above


class Blocks(NamedTuple):
    """How a program cuts its work."""

    images: int
    columns: int
    taps: int
    units: int
    warps: int
    stages: int = 3
    ahead: bool = False
    resident: bool = True
    rest: int = 0


class Packed(NamedTuple):
    """The network of a masked convolution as the kernels read it."""

    kernel: Tensor
    """In halves, `[2, kh * kw * C, hidden]`."""
    bias: Tensor
    mix: Tensor
    """In halves, `[2, hidden, C]`, or `2C` with shift and raw scale of a channel side by side."""
    mix_bias: Tensor
    size: tuple[int, int]
    affine: bool


def pack(weights: MaskedConvWeights) -> Packed:
    """Done once for many scans."""
    kernel, bias, mix, mix_bias = weights
    hidden, _, kh, kw = kernel.shape
    kernel = halves(kernel.permute(2, 3, 1, 0).reshape(-1, hidden))
    if weights.affine:
        pairs = torch.arange(len(mix_bias), device=mix.device).view(2, -1).t().flatten()
        mix, mix_bias = mix[pairs], mix_bias[pairs]
    mix = halves(mix.t().contiguous())
    return Packed(kernel, bias.clone(), mix, mix_bias.clone(), (kh, kw), weights.affine)


BESIDES = 12_000
"""Bytes on chip for what is not weights."""


def _blocks(
    columns: int, channels: int, hidden: int, outputs: int, kh: int, kw: int, room: int
) -> Blocks:
    """The cuts that were fastest on an H200 (`docs/experiments.md`), if weights have the room."""
    lanes, units = power_of_two(columns, 16), power_of_two(hidden, 16)
    outputs = power_of_two(outputs, 16)
    rows = 2 if kh == 2 else 1
    taps = power_of_two(kh // rows * kw * channels, 16)
    if 4 * units * (rows * taps + outputs) <= room:
        warps = 4 if lanes == 64 or lanes == 16 and units <= 64 else 8
        return Blocks(1, lanes, taps, units, warps, ahead=rows == 2)
    units, rest = _two_blocks(hidden, min(256, 32768 // outputs))
    taps, stages = (32, 4) if units > 64 else (64, 3)
    return Blocks(1, lanes, taps, units, 4, stages, resident=False, rest=rest)


def _two_blocks(hidden: int, most: int) -> tuple[int, int]:
    """Blocks of units and a smaller one for the rest, powers of two with little beside them."""
    units = min(most, power_of_two(hidden, 16))
    if hidden % units == 0:
        return units, 0
    if units > hidden:
        units //= 2
    rest = power_of_two(hidden % units, 16)
    return (units, rest) if 2 * rest < units or 2 * units > most else (2 * units, 0)


def inverse(
    y: Tensor,
    weights: Packed,
    order: Order,
    context: Tensor | None = None,
    *,
    norm: tuple[Tensor, Tensor] | None = None,
    blocks: Blocks | None = None,
) -> Tensor:
    """As `reference.inverse`; `norm` is a factor and an offset for each channel of y."""
    row_dim, column_dim, far = SCANS[order]
    batch, channels, rows, columns = y.shape[0], y.shape[1], y.shape[row_dim], y.shape[column_dim]
    hidden, outputs = weights.mix.shape[1:]
    kh, kw = weights.size
    # The rows of the scan lie one after the other, so that a window is a piece of each.
    x = y.new_empty(batch, rows, columns, channels)

    def turned(t: Tensor) -> tuple[Tensor, int, int]:
        """Where the scan starts, and the steps from row to row and from column to column."""
        start = t.select(row_dim, rows - 1) if far else t
        return start, -t.stride(row_dim) if far else t.stride(row_dim), t.stride(column_dim)

    room = on_chip(y.device) - BESIDES
    blocks = blocks or _blocks(columns, channels, hidden, outputs, kh, kw, room)
    y_start, y_row, y_column = turned(y)
    c_start, c_row, c_column = turned(y if context is None else context)
    scan = _scan_resident if blocks.resident else _scan_streaming
    launch(
        scan, (triton.cdiv(batch, blocks.images),),
        y_start, x[:, -1] if far else x, c_start, *weights[:4],
        *(norm or (y, y)),
        batch, rows, columns,
        y.stride(0), y.stride(1), y_row, y_column,
        -columns if far else columns,
        *(y if context is None else context).stride()[:2], c_row, c_column,
        C=channels, HIDDEN=hidden, KH=kh, KW=kw,
        AFFINE=weights.affine, CONDITIONAL=context is not None, NORMED=norm is not None,
        IMAGES=blocks.images, COLUMNS=blocks.columns,
        BLOCK_C=power_of_two(channels, 16), BLOCK_H=blocks.units,
        BLOCK_K=blocks.taps, REST=blocks.rest,
        AHEAD=blocks.ahead, num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip
    return x.permute(0, 3, 1, 2) if row_dim == 2 else x.permute(0, 3, 2, 1)
