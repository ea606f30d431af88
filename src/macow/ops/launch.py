"""What kernels share: float32 products on tensor cores, sums, and how shapes become blocks."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from macow.ops.compiling import launch


class Blocks(NamedTuple):
    """How a product is cut into programs."""

    pixels: int
    channels: int
    inner: int
    warps: int
    stages: int


def power_of_two(size: int, least: int = 1) -> int:
    """The smallest power of two that holds `size`, at least `least`."""
    return max(least, 1 << (size - 1).bit_length())


def by_image(given: Tensor | None, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
    """A map `[B, H, W]`, and its steps from image to image and from pixel to pixel.

    Gradients of sums are the same at every pixel: they are read as they are. None stands for 0.
    """
    if given is None:
        return x.new_zeros(1), (0, 0)
    if given.stride(1) == 0 and given.stride(2) == 0:
        return given, (given.stride(0), 0)
    return given.contiguous(), (given.shape[1] * given.shape[2], 1)


def sum_of_rows(parts: Tensor) -> Tensor:
    """`parts.sum(dim=0)` of a float32 matrix with few rows, in half of torch's time."""
    rows, columns = parts.shape
    out = parts.new_empty(columns)
    launch(
        _sum_of_rows, (triton.cdiv(columns, 16),),
        parts, out, rows, columns, parts.stride(0), BLOCK_R=128, BLOCK_C=16, num_warps=4,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["rows", "columns", "step"])
def _sum_of_rows(parts, out, rows, columns, step, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    column = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    total = tl.zeros([BLOCK_C], tl.float32)
    for first in range(0, rows, BLOCK_R):
        row = first + tl.arange(0, BLOCK_R)
        mask = (row < rows)[:, None] & (column < columns)[None, :]
        at = row[:, None] * step + column[None, :]
        total += tl.sum(tl.load(parts + at, mask=mask, other=0.0), axis=0)
    tl.store(out + column, total, mask=column < columns)


def halves(t: Tensor) -> Tensor:
    """A float32 tensor as two of float16, `[2, *shape]`: `t = first + second / 2^11`.

    Each holds 11 bits of the mantissa; the factor keeps the second above what float16 rounds to 0.
    What float16 cannot hold, 65,520 and more, becomes infinite and so NaN in every sum it enters.
    """
    high = t.half()
    return torch.stack([high, ((t - high.float()) * 2048).half()])


@triton.jit
def split(v):
    """As `halves`, within a kernel."""
    high = v.to(tl.float16)
    return high, ((v - high.to(tl.float32)) * 2048).to(tl.float16)


@triton.jit
def load_halves(matrix, row, column, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ALL: tl.constexpr):
    """A block out of the first ROWS of a matrix in halves, `[2, ALL, COLUMNS]`."""
    mask = (row < ROWS)[:, None] & (column < COLUMNS)[None, :]
    pointers = matrix + row[:, None] * COLUMNS + column[None, :]
    high = tl.load(pointers, mask=mask, other=0.0)
    return high, tl.load(pointers + ALL * COLUMNS, mask=mask, other=0.0)


@triton.jit
def product(a_high, a_low, b_high, b_low):
    """`a @ b` in float32 out of halves: only `a_low b_low` is lost, 2^-22 of the whole.

    Tensor cores do not round as they add, so sums in them must be short and begin with what is
    small: what a product is added to is added outside.
    """
    small = tl.dot(a_low, b_high)
    small = tl.dot(a_high, b_low, small)
    return tl.dot(a_high, b_high, small * (1 / 2048))


@triton.jit
def elu(v):
    """`v` above 0, `exp(v) - 1` below; NaN stays."""
    return tl.where(v > 0, v, tl.exp(v) - 1)


@triton.jit
def elu_exactly(v):
    """The same without what `exp(v) - 1` loses near 0, where a series takes its place."""
    series = 1 + v * (1 / 2 + v * (1 / 6 + v * (1 / 24 + v * (1 / 120 + v * (1 / 720)))))
    return tl.where(v > 0, v, tl.where(v > -0.25, v * series, tl.exp(v) - 1))


@triton.jit
def elu_in(dtype: tl.constexpr, v):
    """As exactly as numbers of a type can tell."""
    return elu_exactly(v) if dtype == tl.float32 else elu(v)


@triton.jit
def log_sigmoid_in(dtype: tl.constexpr, v):
    """`log(1 / (1 + exp(-v)))`, as exactly as numbers of a type deserve."""
    small = tl.exp(-tl.abs(v))
    if dtype == tl.float32:
        more = 1 + small  # its logarithm, corrected for what the sum has rounded away
        log1p = tl.where(more == 1, small, tl.log(more) * (small / (more - 1)))
    else:  # a polynomial, off by 2e-7 at most and a third of the work
        log1p = -0.0085746762 * small + 0.044214192
        log1p = log1p * small - 0.10785368
        log1p = log1p * small + 0.17757024
        log1p = log1p * small - 0.24499612
        log1p = log1p * small + 0.33276177
        log1p = log1p * small - 0.49997449
        log1p = (log1p * small + 0.99999981) * small
    return tl.minimum(v, 0.0) - log1p
