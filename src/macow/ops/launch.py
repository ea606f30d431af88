"""What kernels share: exact products on tensor cores, and how shapes become blocks."""

from typing import Literal

import triton
import triton.language as tl

Precision = Literal["ieee", "tf32x3"]
"""How float32 matrices are multiplied: plainly, or in three exact parts on tensor cores."""


def power_of_two(size: int, least: int = 1) -> int:
    """The smallest power of two that holds `size`, at least `least`."""
    return max(least, 1 << (size - 1).bit_length())


@triton.jit
def high_part(v):
    """A float32 rounded to the 10 bits of mantissa that tensor cores read."""
    return ((v.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def product(a, b_high, b_low, PRECISION: tl.constexpr):
    """`a @ b` in float32.

    With three products of parts only `a_low b_low` is lost, 2^-22 of the whole. Tensor cores do not
    round as they add, so sums in them must be short: a block's sum is added to others outside, as
    Triton does of itself for its `tf32x3`.
    """
    if PRECISION == "ieee":
        return tl.dot(a, b_high + b_low, input_precision="ieee")
    a_high = high_part(a)
    a_low = a - a_high
    small = tl.dot(a_low, b_high, input_precision="tf32")
    small += tl.dot(a_high, b_low, input_precision="tf32")
    return small + tl.dot(a_high, b_high, input_precision="tf32")


@triton.jit
def elu(v):
    """`v` above 0, `exp(v) - 1` below."""
    return tl.where(v > 0, v, tl.exp(tl.minimum(v, 0.0)) - 1)
