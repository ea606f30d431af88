"""Kernels of a coupling and its gradients: products in the type they are given, sums in float32."""

import triton
import triton.language as tl

from macow.ops.launch import elu_in, log_sigmoid_in


@triton.jit
def _places(pixels, height, width, BLOCK_P: tl.constexpr):
    """A program's pixels: their numbers, which exist, their image, row and column."""
    pixel = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    image = (pixel // (height * width)).to(tl.int64)
    return pixel, pixel < pixels, image, (pixel // width) % height, pixel % width


@triton.jit(do_not_specialize=["pixels"])
def gather(
    x, out, pixels, height, width, x_image, x_channel, x_row, x_column,
    C: tl.constexpr, WIDTH: tl.constexpr, MIRRORED: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The 3x3 neighbourhoods of pixels, then zeros; MIRRORED, those that a pixel is in."""
    pixel, there, image, row, column = _places(pixels, height, width, BLOCK_P)
    k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    down, aside = k // (3 * C) - 1, (k // C) % 3 - 1
    if MIRRORED:
        down, aside = -down, -aside
    at_row, at_column = row[:, None] + down[None, :], column[:, None] + aside[None, :]
    inside = there[:, None] & (k < 9 * C)[None, :]
    inside &= (at_row >= 0) & (at_row < height) & (at_column >= 0) & (at_column < width)
    start = x + image * x_image + row * x_row + column * x_column
    steps = down * x_row + aside * x_column + (k % C) * x_channel
    values = tl.load(start[:, None] + steps[None, :], mask=inside, other=0.0)
    mask = there[:, None] & (k < WIDTH)[None, :]
    tl.store(out + pixel.to(tl.int64)[:, None] * WIDTH + k[None, :], values, mask=mask)


@triton.jit(do_not_specialize=["pixels"])
def scatter(
    parts, d_x, d_cond, pixels, height, width,
    C: tl.constexpr, GIVEN: tl.constexpr, CHANNELS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """What the nine pixels that have read one say of it, of C channels.

    The first GIVEN are added to those of `d_x [pixels, CHANNELS]`, the others are d_cond.
    """
    pixel, there, _, row, column = _places(pixels, height, width, BLOCK_P)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    mask = there[:, None] & (channel < C)[None, :]
    total = tl.zeros([BLOCK_P, BLOCK_C], tl.float32)
    for tap in tl.static_range(9):
        down, aside = 1 - tap // 3, 1 - tap % 3
        inside = (row + down >= 0) & (row + down < height)
        inside &= (column + aside >= 0) & (column + aside < width)
        at = (pixel + down * width + aside).to(tl.int64)[:, None] * WIDTH
        at += tap * C + channel[None, :]
        total += tl.load(parts + at, mask=mask & inside[:, None], other=0.0).to(tl.float32)
    kept = mask & (channel < GIVEN)[None, :]
    at_x = d_x + pixel.to(tl.int64)[:, None] * CHANNELS + channel[None, :]
    tl.store(at_x, total + tl.load(at_x, mask=kept, other=0.0), mask=kept)
    if C > GIVEN:
        at_cond = d_cond + pixel.to(tl.int64)[:, None] * (C - GIVEN) + channel[None, :] - GIVEN
        tl.store(at_cond, total, mask=mask & (channel >= GIVEN)[None, :])


@triton.jit
def _read(pointers, known, WHOLE: tl.constexpr):
    """What is known, 0 elsewhere; WHOLE, all of it."""
    return tl.load(pointers) if WHOLE else tl.load(pointers, mask=known, other=0.0)


@triton.jit(do_not_specialize=["pixels"], do_not_specialize_on_alignment=["bias"])
def product(
    a, b, bias, h, out, sums, pixels, b_row, b_column,
    K: tl.constexpr, N: tl.constexpr, GRADIENT: tl.constexpr, WHOLE: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """`elu(a @ b + bias)`; or the GRADIENT of that, `a @ b` times the ELU's where it gave h.

    A gradient is also summed over the program's pixels: `sums [programs, N]`. WHOLE promises that
    pixels, K and N are multiples of the blocks.
    """
    BLOCKS: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    first_pixel = (tl.program_id(0) // BLOCKS).to(tl.int64) * BLOCK_P
    pixel = first_pixel + tl.arange(0, BLOCK_P)
    channel = tl.program_id(0) % BLOCKS * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_block = a + pixel[:, None] * K + k[None, :]
    b_block = b + k[:, None] * b_row + channel[None, :] * b_column
    pointers = pixel[:, None] * N + channel[None, :]
    mask = (pixel < pixels)[:, None] & (channel < N)[None, :]
    if GRADIENT and K <= 128:  # a short loop: what comes after it must not wait
        given = _read(h + pointers, mask, WHOLE)
    total = tl.zeros([BLOCK_P, BLOCK_N], tl.float32)
    for first in range(0, K, BLOCK_K):
        known = first + k < K
        values = _read(a_block, (pixel < pixels)[:, None] & known[None, :], WHOLE)
        weight = _read(b_block, known[:, None] & (channel < N)[None, :], WHOLE)
        total = tl.dot(values, weight, total, input_precision="ieee")
        a_block += BLOCK_K
        b_block += BLOCK_K * b_row
    if GRADIENT:
        if K > 128:
            given = _read(h + pointers, mask, WHOLE)
        slope = given.to(tl.float32)
        total *= tl.where(slope > 0, 1.0, slope + 1)
        place = sums + tl.program_id(0) // BLOCKS * N + channel
        tl.store(place, tl.sum(total, axis=0), mask=channel < N)
    else:
        total += _read(bias + channel, channel < N, WHOLE)[None, :]
        total = elu_in(out.dtype.element_ty, total)
    if WHOLE:
        tl.store(out + pointers, total)
    else:
        tl.store(out + pointers, total, mask=mask)


@triton.jit
def _held(
    parts, bias, pixel, row, column, height, width, j, mask,
    OUTPUTS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Outputs j of the last convolution: the sum of what nine pixels hold for this one."""
    total = tl.load(bias + j, mask=(j >= 0) & (j < OUTPUTS), other=0.0)[None, :]
    for tap in tl.static_range(9):
        down, aside = tap // 3 - 1, tap % 3 - 1
        inside = (row + down >= 0) & (row + down < height)
        inside &= (column + aside >= 0) & (column + aside < width)
        at = (pixel + down * width + aside).to(tl.int64)[:, None] * WIDTH
        at += tap * OUTPUTS + j[None, :]
        total += tl.load(parts + at, mask=inside[:, None] & mask, other=0.0).to(tl.float32)
    return total


@triton.jit(do_not_specialize=["pixels"], do_not_specialize_on_alignment=["bias"])
def couple(
    x, parts, bias, raw, y, log_det,
    pixels, height, width, x_image, x_channel, x_row, x_column,
    C: tl.constexpr, T: tl.constexpr, AFFINE: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """The last T channels of x shifted and scaled; the raw scales are kept."""
    OUTPUTS: tl.constexpr = 2 * T if AFFINE else T
    pixel, there, image, row, column = _places(pixels, height, width, BLOCK_P)
    channel = tl.arange(0, BLOCK_C)
    start = x + image * x_image + row * x_row + column * x_column
    mask = there[:, None] & (channel < C)[None, :]
    values = tl.load(start[:, None] + channel[None, :] * x_channel, mask=mask, other=0.0)
    j = channel - (C - T)
    changed = mask & (j >= 0)[None, :]
    shift = _held(parts, bias, pixel, row, column, height, width, j, changed, OUTPUTS, WIDTH)
    new = values + shift
    if AFFINE:
        v = _held(parts, bias, pixel, row, column, height, width, j + T, changed, OUTPUTS, WIDTH)
        tl.store(raw + pixel.to(tl.int64)[:, None] * T + j[None, :], v, mask=changed)
        log_scale = tl.where(changed, log_sigmoid_in(parts.dtype.element_ty, v + 2), 0.0)
        new = values * tl.exp(log_scale) + shift
        tl.store(log_det + pixel, tl.sum(log_scale, axis=1), mask=there)
    out = y + pixel.to(tl.int64)[:, None] * C + channel[None, :]
    tl.store(out, tl.where(changed, new, values), mask=mask)


@triton.jit(do_not_specialize=["pixels", "image_step", "pixel_step"])
def uncouple(
    x, raw, d_y, d_log_det, d_said, d_x,
    pixels, height, width, image_step, pixel_step,
    x_image, x_channel, x_row, x_column, d_image, d_channel, d_row, d_column,
    C: tl.constexpr, T: tl.constexpr, AFFINE: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """The gradients of what the network said, and the direct part of that of x."""
    OUTPUTS: tl.constexpr = 2 * T if AFFINE else T
    pixel, there, image, row, column = _places(pixels, height, width, BLOCK_P)
    channel = tl.arange(0, BLOCK_C)
    mask = there[:, None] & (channel < C)[None, :]
    d_start = d_y + image * d_image + row * d_row + column * d_column
    slope = tl.load(d_start[:, None] + channel[None, :] * d_channel, mask=mask, other=0.0)
    j = channel - (C - T)
    changed = mask & (j >= 0)[None, :]
    said_at = d_said + pixel.to(tl.int64)[:, None] * OUTPUTS + j[None, :]
    tl.store(said_at, slope, mask=changed)
    if AFFINE:
        start = x + image * x_image + row * x_row + column * x_column
        values = tl.load(start[:, None] + channel[None, :] * x_channel, mask=changed, other=0.0)
        raw_at = raw + pixel.to(tl.int64)[:, None] * T + j[None, :]
        scale = tl.sigmoid(tl.load(raw_at, mask=changed, other=0.0) + 2)
        given = d_log_det + image * image_step + (row * width + column) * pixel_step
        given = tl.load(given, mask=there, other=0.0)[:, None]
        tl.store(said_at + T, (slope * values * scale + given) * (1 - scale), mask=changed)
        slope = tl.where(changed, slope * scale, slope)
    tl.store(d_x + pixel.to(tl.int64)[:, None] * C + channel[None, :], slope, mask=mask)
