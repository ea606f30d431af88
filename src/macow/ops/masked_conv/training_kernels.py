"""Kernels of the masked convolution and its gradients: products in DTYPE, sums in float32."""

import triton
import triton.language as tl

from macow.ops.launch import elu_in, log_sigmoid_in

PLACES = ["pixels", "start", "row_step", "column_step"]
"""Where things lie: a tensor is `[B * H * W, channels]`, and a scan's pixel (image, row, column) is
number `image * ROWS * COLUMNS + start + row * row_step + column * column_step` of it."""
ROWS_OF_STACKS = ["norm_scale", "norm_shift", "bias", "mix_bias", "then_scale", "then_shift"]
"""They begin anywhere, and kernels are the same for all of them."""


@triton.jit
def places(
    block, pixels, start, row_step, column_step,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """A block's pixels: which exist, their row and column in the scan, and where they lie."""
    pixel = block * BLOCK_P + tl.arange(0, BLOCK_P)
    row, column = (pixel // COLUMNS) % ROWS, pixel % COLUMNS
    image = pixel // (ROWS * COLUMNS)
    place = image * (ROWS * COLUMNS) + start + row * row_step + column * column_step
    return pixel < pixels, row, column, place.to(tl.int64)


@triton.jit
def _normed(values, norm_scale, norm_shift, channel, known):
    """Values after the ActNorm that stands before the convolution."""
    factor = tl.exp(tl.load(norm_scale + channel, mask=known, other=0.0))
    shift = tl.load(norm_shift + channel, mask=known, other=0.0)
    return values * factor[None, :] + shift[None, :]


@triton.jit(do_not_specialize=["pixels"], do_not_specialize_on_alignment=ROWS_OF_STACKS)
def prepare(
    x, norm_scale, norm_shift, low, pixels,
    C: tl.constexpr, WIDTH: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """What windows are read from: `low [pixels, WIDTH]` is x after the ActNorm, then zeros."""
    pixel = tl.program_id(0).to(tl.int64) * BLOCK_P + tl.arange(0, BLOCK_P)
    channel = tl.arange(0, BLOCK_C)
    mask = (pixel < pixels)[:, None] & (channel < C)[None, :]
    values = tl.load(x + pixel[:, None] * C + channel[None, :], mask=mask, other=0.0)
    values = _normed(values, norm_scale, norm_shift, channel, channel < C)
    mask = (pixel < pixels)[:, None] & (channel < WIDTH)[None, :]
    values = tl.where((channel < C)[None, :], values, 0.0)
    tl.store(low + pixel[:, None] * WIDTH + channel[None, :], values, mask=mask)


@triton.jit
def window(
    low, there, row, column, place, k, row_step, column_step,
    COLUMNS: tl.constexpr, WIDTH: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
):  # fmt: skip
    """What pixels read: entry k is channel `k % WIDTH` of tap `k // WIDTH`."""
    up, aside = k // (KW * WIDTH) - KH, (k // WIDTH) % KW - KW // 2
    at_row, at_column = row[:, None] + up[None, :], column[:, None] + aside[None, :]
    inside = there[:, None] & (k < KH * KW * WIDTH)[None, :]
    inside &= (at_row >= 0) & (at_column >= 0) & (at_column < COLUMNS)
    steps = (up * row_step + aside * column_step) * WIDTH + k % WIDTH
    return tl.load(low + place[:, None] * WIDTH + steps[None, :], mask=inside, other=0.0)


@triton.jit
def _block(matrix, row, column, known, COLUMNS: tl.constexpr):
    """A block of a matrix; of its rows those that are known."""
    mask = known[:, None] & (column < COLUMNS)[None, :]
    return tl.load(matrix + row[:, None] * COLUMNS + column[None, :], mask=mask, other=0.0)


@triton.jit
def row_of(k, C: tl.constexpr, WIDTH: tl.constexpr, TAPS: tl.constexpr):
    """The kernel's row for an entry of a window, and whether there is one."""
    return k // WIDTH * C + k % WIDTH, (k % WIDTH < C) & (k < TAPS * WIDTH)


@triton.jit
def _units(
    low, context, kernel, bias, unit, there, row, column, place, row_step, column_step,
    COLUMNS: tl.constexpr, C: tl.constexpr, WIDTH: tl.constexpr, HIDDEN: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, CONDITIONAL: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Some hidden units after their ELU, in float32."""
    h = tl.zeros([there.shape[0], unit.shape[0]], tl.float32)
    for first in range(0, KH * KW * WIDTH, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        seen = window(
            low, there, row, column, place, k, row_step, column_step, COLUMNS, WIDTH, KH, KW
        )
        weight_row, known = row_of(k, C, WIDTH, KH * KW)
        weight = _block(kernel, weight_row, unit, known, HIDDEN)
        h = tl.dot(seen, weight, h, input_precision=PRECISION)
    h += tl.load(bias + unit, mask=unit < HIDDEN, other=0.0)[None, :]
    if CONDITIONAL:
        mask = there[:, None] & (unit < HIDDEN)[None, :]
        at_units = context + place[:, None] * HIDDEN + unit[None, :]
        h += tl.load(at_units, mask=mask, other=0.0)
    return elu_in(low.dtype.element_ty, h)


@triton.jit(do_not_specialize=PLACES, do_not_specialize_on_alignment=ROWS_OF_STACKS)
def forward(
    x, norm_scale, norm_shift, low, context, kernel, bias, mix, mix_bias, y, log_det, h_out,
    then_scale, then_shift, then_low,
    pixels, start, row_step, column_step,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, C: tl.constexpr, WIDTH: tl.constexpr,
    HIDDEN: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    AFFINE: tl.constexpr, CONDITIONAL: tl.constexpr, KEEP: tl.constexpr, THEN: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """`y = x * scale + shift`, and the sum of a pixel's log-scales; KEEP also hidden units.

    THEN another convolution follows: also writes what its windows are read from, as `prepare` does.
    """
    OUTPUTS: tl.constexpr = 2 * C if AFFINE else C
    there, row, column, place = places(
        tl.program_id(0), pixels, start, row_step, column_step, ROWS, COLUMNS, BLOCK_P
    )
    channel = tl.arange(0, BLOCK_C)
    known = channel < C
    shift = tl.zeros([BLOCK_P, BLOCK_C], tl.float32)
    raw = tl.zeros([BLOCK_P, BLOCK_C], tl.float32)
    for first_unit in range(0, HIDDEN, BLOCK_H):
        unit = first_unit + tl.arange(0, BLOCK_H)
        h = _units(
            low, context, kernel, bias, unit, there, row, column, place, row_step, column_step,
            COLUMNS, C, WIDTH, HIDDEN, KH, KW, CONDITIONAL, PRECISION, BLOCK_K,
        ).to(low.dtype.element_ty)  # fmt: skip
        if KEEP:
            mask = there[:, None] & (unit < HIDDEN)[None, :]
            tl.store(h_out + place[:, None] * HIDDEN + unit[None, :], h, mask=mask)
        mask = (unit < HIDDEN)[:, None] & known[None, :]
        pointers = mix + unit[:, None] * OUTPUTS + channel[None, :]
        shift = tl.dot(h, tl.load(pointers, mask=mask, other=0.0), shift, input_precision=PRECISION)
        if AFFINE:
            weight = tl.load(pointers + C, mask=mask, other=0.0)
            raw = tl.dot(h, weight, raw, input_precision=PRECISION)
    shift += tl.load(mix_bias + channel, mask=known, other=0.0)[None, :]
    there_too = there[:, None] & known[None, :]
    at = place[:, None] * C + channel[None, :]
    values = tl.load(x + at, mask=there_too, other=0.0)
    values = _normed(values, norm_scale, norm_shift, channel, known)
    if AFFINE:
        raw += tl.load(mix_bias + C + channel, mask=known, other=0.0)[None, :]
        log_scale = log_sigmoid_in(low.dtype.element_ty, raw + 2)
        values *= tl.exp(log_scale)
        tl.store(log_det + place, tl.sum(tl.where(there_too, log_scale, 0.0), axis=1), mask=there)
    values += shift
    tl.store(y + at, values, mask=there_too)
    if THEN:
        values = _normed(values, then_scale, then_shift, channel, known)
        values = tl.where(known[None, :], values, 0.0)
        mask = there[:, None] & (channel < WIDTH)[None, :]
        tl.store(then_low + place[:, None] * WIDTH + channel[None, :], values, mask=mask)


@triton.jit
def _slopes(
    x, norm_scale, norm_shift, d_y, d_log_det, d_x, said, there, place, output,
    image_step, pixel_step,
    PIXELS: tl.constexpr, C: tl.constexpr, AFFINE: tl.constexpr,
):  # fmt: skip
    """The gradients of what the network said: shifts, then raw scales; d_x gets its direct part."""
    channel = output % C
    known = output < (2 * C if AFFINE else C)
    mask = there[:, None] & known[None, :]
    at = place[:, None] * C + channel[None, :]
    slope = tl.load(d_y + at, mask=mask, other=0.0)
    if AFFINE:
        scales = mask & (output >= C)[None, :]
        values = tl.load(x + at, mask=scales, other=0.0)
        values = _normed(values, norm_scale, norm_shift, channel, known)
        scale = tl.sigmoid(said + 2)
        direct = slope * scale
        tl.store(d_x + at, direct, mask=scales)
        image = place // PIXELS
        given = d_log_det + image * image_step + (place - image * PIXELS) * pixel_step
        given = tl.load(given, mask=there, other=0.0)[:, None]
        slope = tl.where(scales, (direct * values + given) * (1 - scale), slope)
    else:
        tl.store(d_x + at, slope, mask=mask)
    return slope


@triton.jit(
    do_not_specialize=[*PLACES, "image_step", "pixel_step"],
    do_not_specialize_on_alignment=ROWS_OF_STACKS,
)
def backward(
    x, norm_scale, norm_shift, low, context, kernel, bias, mix, mix_bias,
    d_y, d_log_det, units, d_h, d_said_out, d_x,
    pixels, start, row_step, column_step, image_step, pixel_step,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, C: tl.constexpr, WIDTH: tl.constexpr,
    HIDDEN: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    AFFINE: tl.constexpr, CONDITIONAL: tl.constexpr, KEPT: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The gradients before and after hidden units; d_x gets its direct part.

    Unless they were KEPT, the units are computed again and written.

    The gradient of an image's log-dets lies `image_step` after the last one's, that of a pixel
    `pixel_step`: 0 if they are all the same.
    """
    OUTPUTS: tl.constexpr = 2 * C if AFFINE else C
    there, row, column, place = places(
        tl.program_id(0), pixels, start, row_step, column_step, ROWS, COLUMNS, BLOCK_P
    )
    output = tl.arange(0, BLOCK_O)
    said = tl.zeros([BLOCK_P, BLOCK_O], tl.float32)
    for first_unit in range(0, HIDDEN, BLOCK_H):
        unit = first_unit + tl.arange(0, BLOCK_H)
        mask = there[:, None] & (unit < HIDDEN)[None, :]
        pointers = units + place[:, None] * HIDDEN + unit[None, :]
        if KEPT:
            h = tl.load(pointers, mask=mask, other=0.0)
        else:
            h = _units(
                low, context, kernel, bias, unit, there, row, column, place, row_step, column_step,
                COLUMNS, C, WIDTH, HIDDEN, KH, KW, CONDITIONAL, PRECISION, BLOCK_K,
            ).to(low.dtype.element_ty)  # fmt: skip
            tl.store(pointers, h, mask=mask)
        if AFFINE:
            weight = _block(mix, unit, output, unit < HIDDEN, OUTPUTS)
            said = tl.dot(h, weight, said, input_precision=PRECISION)
    said += tl.load(mix_bias + output, mask=output < OUTPUTS, other=0.0)[None, :]
    d_said = _slopes(
        x, norm_scale, norm_shift, d_y, d_log_det, d_x, said, there, place, output,
        image_step, pixel_step, ROWS * COLUMNS, C, AFFINE,
    ).to(low.dtype.element_ty)  # fmt: skip
    mask = there[:, None] & (output < OUTPUTS)[None, :]
    tl.store(d_said_out + place[:, None] * OUTPUTS + output[None, :], d_said, mask=mask)
    if not KEPT:
        tl.debug_barrier()  # what was written is read
    for first_unit in range(0, HIDDEN, BLOCK_H):
        unit = first_unit + tl.arange(0, BLOCK_H)
        weight = _block(mix, unit, output, unit < HIDDEN, OUTPUTS)
        d_units = tl.dot(d_said, tl.trans(weight), input_precision=PRECISION)
        known = there[:, None] & (unit < HIDDEN)[None, :]
        at_units = place[:, None] * HIDDEN + unit[None, :]
        h = tl.load(units + at_units, mask=known, other=0.0).to(tl.float32)
        tl.store(d_h + at_units, d_units * tl.where(h > 0, 1.0, h + 1), mask=known)


@triton.jit(do_not_specialize=PLACES, do_not_specialize_on_alignment=ROWS_OF_STACKS)
def backward_x(
    norm_scale, d_h, kernel, d_x,
    pixels, start, row_step, column_step,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, C: tl.constexpr, HIDDEN: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Completes d_x: adds what the windows that hold a pixel say, tap by tap; then the ActNorm."""
    there, row, column, place = places(
        tl.program_id(0), pixels, start, row_step, column_step, ROWS, COLUMNS, BLOCK_P
    )
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    known = channel < C
    total = tl.zeros([BLOCK_P, BLOCK_C], tl.float32)
    for tap in range(KH * KW):
        down, aside = KH - tap // KW, KW // 2 - tap % KW
        inside = there & (row + down < ROWS) & (column + aside >= 0) & (column + aside < COLUMNS)
        reading = place + down * row_step + aside * column_step
        for first in range(0, HIDDEN, BLOCK_K):
            unit = first + tl.arange(0, BLOCK_K)
            mask = inside[:, None] & (unit < HIDDEN)[None, :]
            values = tl.load(d_h + reading[:, None] * HIDDEN + unit[None, :], mask=mask, other=0.0)
            pointers = kernel + (tap * C + channel)[None, :] * HIDDEN + unit[:, None]
            used = (unit < HIDDEN)[:, None] & known[None, :]
            weight = tl.load(pointers, mask=used, other=0.0)
            total = tl.dot(values, weight, total, input_precision=PRECISION)
    mask = there[:, None] & known[None, :]
    at = place[:, None] * C + channel[None, :]
    total += tl.load(d_x + at, mask=mask, other=0.0)
    factor = tl.exp(tl.load(norm_scale + channel, mask=known, other=0.0))
    tl.store(d_x + at, total * factor[None, :], mask=mask)
