"""Kernel of the gradients of a masked convolution's weights and ActNorm: sums over pixels."""

import triton
import triton.language as tl

from macow.ops.masked_conv.training_kernels import PLACES, ROWS_OF_STACKS, places, row_of, window


@triton.jit(do_not_specialize=[*PLACES, "programs"], do_not_specialize_on_alignment=ROWS_OF_STACKS)
def backward_weights(
    low, h, d_h, d_said, x, d_x, norm_scale, parts,
    pixels, start, row_step, column_step, programs,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, C: tl.constexpr, WIDTH: tl.constexpr,
    HIDDEN: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, PRECISION: tl.constexpr,
    OUTPUTS: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_O: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """The gradients of kernel, bias, mix and its bias over every so-manieth block of pixels.

    A program of `programs` fills one row of parts, where they lie one after the other; of its
    blocks of outputs the first ones are entries of a window, then come outputs of mix, and if there
    is one more, the ActNorm's log-scale and shift.
    """
    TAPS: tl.constexpr = KH * KW
    WINDOWS: tl.constexpr = (TAPS * WIDTH + BLOCK_K - 1) // BLOCK_K
    MIXES: tl.constexpr = (OUTPUTS + BLOCK_O - 1) // BLOCK_O
    unit = tl.program_id(2) * BLOCK_H + tl.arange(0, BLOCK_H)
    known = unit < HIDDEN
    out_of = parts + tl.program_id(0).to(tl.int64) * (
        TAPS * C * HIDDEN + HIDDEN + HIDDEN * OUTPUTS + OUTPUTS + 2 * C
    )
    if tl.program_id(1) < WINDOWS:
        k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
        total = tl.zeros([BLOCK_K, BLOCK_H], tl.float32)
        biases = tl.zeros([BLOCK_H], tl.float32)
        for block in range(tl.program_id(0), tl.cdiv(pixels, BLOCK_P), programs):
            there, row, column, place = places(
                block, pixels, start, row_step, column_step, ROWS, COLUMNS, BLOCK_P
            )
            seen = window(
                low, there, row, column, place, k, row_step, column_step, COLUMNS, WIDTH, KH, KW
            )
            mask = there[:, None] & known[None, :]
            values = tl.load(d_h + place[:, None] * HIDDEN + unit[None, :], mask=mask, other=0.0)
            total = tl.dot(tl.trans(seen), values, total, input_precision=PRECISION)
            if tl.program_id(1) == 0:
                biases += tl.sum(values.to(tl.float32), axis=0)
        weight_row, is_row = row_of(k, C, WIDTH, TAPS)
        pointers = out_of + weight_row[:, None] * HIDDEN + unit[None, :]
        tl.store(pointers, total, mask=is_row[:, None] & known[None, :])
        if tl.program_id(1) == 0:
            tl.store(out_of + TAPS * C * HIDDEN + unit, biases, mask=known)
    elif tl.program_id(1) < WINDOWS + MIXES:
        out = (tl.program_id(1) - WINDOWS) * BLOCK_O + tl.arange(0, BLOCK_O)
        mixed = tl.zeros([BLOCK_H, BLOCK_O], tl.float32)
        mixed_biases = tl.zeros([BLOCK_O], tl.float32)
        for number in range(tl.program_id(0), tl.cdiv(pixels, BLOCK_P), programs):
            exist, _, _, lie = places(
                number, pixels, start, row_step, column_step, ROWS, COLUMNS, BLOCK_P
            )
            h_mask = exist[:, None] & known[None, :]
            units = tl.load(h + lie[:, None] * HIDDEN + unit[None, :], mask=h_mask, other=0.0)
            d_mask = exist[:, None] & (out < OUTPUTS)[None, :]
            d_out = tl.load(d_said + lie[:, None] * OUTPUTS + out[None, :], mask=d_mask, other=0.0)
            mixed = tl.dot(tl.trans(units), d_out, mixed, input_precision=PRECISION)
            if tl.program_id(2) == 0:
                mixed_biases += tl.sum(d_out.to(tl.float32), axis=0)
        mix_of = out_of + TAPS * C * HIDDEN + HIDDEN
        written = known[:, None] & (out < OUTPUTS)[None, :]
        tl.store(mix_of + unit[:, None] * OUTPUTS + out[None, :], mixed, mask=written)
        if tl.program_id(2) == 0:
            tl.store(mix_of + HIDDEN * OUTPUTS + out, mixed_biases, mask=out < OUTPUTS)
    else:
        channel = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
        factor = tl.exp(tl.load(norm_scale + channel, mask=channel < C, other=0.0))
        scales = tl.zeros([BLOCK_C], tl.float32)
        shifts = tl.zeros([BLOCK_C], tl.float32)
        for turn in range(tl.program_id(0), tl.cdiv(pixels, BLOCK_P), programs):
            pixel = (turn * BLOCK_P + tl.arange(0, BLOCK_P)).to(tl.int64)
            mask = (pixel < pixels)[:, None] & (channel < C)[None, :]
            at = pixel[:, None] * C + channel[None, :]
            slopes = tl.load(d_x + at, mask=mask, other=0.0)
            scales += tl.sum(slopes * tl.load(x + at, mask=mask, other=0.0), axis=0)
            shifts += tl.sum(slopes, axis=0)
        norm_of = out_of + TAPS * C * HIDDEN + HIDDEN + HIDDEN * OUTPUTS + OUTPUTS + channel
        tl.store(norm_of, scales, mask=channel < C)
        tl.store(norm_of + C, shifts / factor, mask=channel < C)
