"""A coupling and its gradients as matrix products: its input and raw scales are kept for them."""

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from macow.ops.aside import aside
from macow.ops.compiling import launch
from macow.ops.glow import training_kernels as kernels
from macow.ops.launch import Blocks, by_image, power_of_two, sum_of_rows
from macow.ops.serving import on_chip


def gather(x: Tensor, width: int, dtype: torch.dtype, *, mirrored: bool = False) -> Tensor:
    """`[B, C, H, W] -> [pixels, width]`: nine times C, then zeros."""
    batch, channels, rows, columns = x.shape
    pixels = batch * rows * columns
    out = x.new_empty(pixels, width, dtype=dtype)
    block = min(power_of_two(width, 16), 128)
    launch(
        kernels.gather, (triton.cdiv(pixels, 32), triton.cdiv(width, block)),
        x, out, pixels, rows, columns, *x.stride(),
        C=channels, WIDTH=width, MIRRORED=mirrored, BLOCK_P=32, BLOCK_K=block, num_warps=4,
    )  # fmt: skip
    return out


def scatter(parts: Tensor, d_x: Tensor, kept: int, cond: Tensor | None) -> Tensor | None:
    """The gradient of `gather`: of the channels kept added to `d_x [B, H, W, C]`, that of cond."""
    batch, height, width, channels = d_x.shape
    pixels, more = batch * height * width, 0 if cond is None else cond.shape[1]
    d_cond = d_x.new_empty(batch, height, width, more)
    block = min(power_of_two(kept + more, 16), 64)
    launch(
        kernels.scatter, (triton.cdiv(pixels, 64), triton.cdiv(kept + more, block)),
        parts, d_x, d_cond, pixels, height, width,
        C=kept + more, GIVEN=kept, CHANNELS=channels, WIDTH=parts.shape[1],
        BLOCK_P=64, BLOCK_C=block, num_warps=4,
    )  # fmt: skip
    return None if cond is None else d_cond.permute(0, 3, 1, 2)


def _blocks(a: Tensor, channels: int, *, gradient: bool) -> Blocks:
    """What was fastest on an H200 (docs/experiments.md); of float32 what fits."""
    if a.dtype == torch.float32:
        return Blocks(64, 64, 32, 4, 3)
    if gradient or channels < 256:
        return Blocks(128, 128 if channels > 64 else 64, 64, 4, 3)
    if a.shape[1] <= 64:
        return Blocks(64, 128, 64, 4, 4)
    return Blocks(128, 256, 64, 8, 4 if on_chip(a.device) > 200_000 else 3)


def _product(
    a: Tensor, b: Tensor, bias: Tensor, h: Tensor, out: Tensor, *, gradient: bool
) -> Tensor:
    (pixels, size), channels = a.shape, b.shape[1]
    blocks = _blocks(a, channels, gradient=gradient)
    rows = triton.cdiv(pixels, blocks.pixels)
    inner = min(blocks.inner, power_of_two(size, 16))
    sums = a.new_empty(rows if gradient else 0, channels, dtype=torch.float32)
    launch(
        kernels.product, (rows * triton.cdiv(channels, blocks.channels),),
        a, b, bias, h, out, sums, pixels, *b.stride(),
        K=size, N=channels, GRADIENT=gradient,
        WHOLE=not (pixels % blocks.pixels or size % inner or channels % blocks.channels),
        BLOCK_P=blocks.pixels, BLOCK_N=blocks.channels, BLOCK_K=inner,
        num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip
    return sums


def units(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    """`elu(a @ b + bias)`, `[pixels, k] -> [pixels, n]`, in their type."""
    out = a.new_empty(len(a), b.shape[1])
    _product(a, b, bias, a, out, gradient=False)
    return out


def units_gradient(a: Tensor, b: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """`(a @ b) * elu'` where the ELU gave h, and its sum over pixels."""
    out = torch.empty_like(h)
    sums = _product(a, b, a, h, out, gradient=True)
    return out, aside(lambda: sum_of_rows(sums), sums)


class CouplingStep(torch.autograd.Function):
    """A coupling by a network 3x3, ELU, 1x1, ELU, 3x3: `x [B, C, H, W] -> (y, log_det_map)`.

    The weights are matrices, of the last convolution `[in, 9 * out]`; products take their copies in
    low precision, to which `reading` may have rows and `writing` columns of zeros added: products
    of multiples of 64 need no masks. An additive layer's map is None.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        cond: Tensor | None,
        first: Tensor,
        first_bias: Tensor,
        middle: Tensor,
        middle_bias: Tensor,
        last: Tensor,
        last_bias: Tensor,
        reading: Tensor,
        mixing: Tensor,
        writing: Tensor,
        transformed: int,
    ) -> tuple[Tensor, Tensor | None]:
        """Keeps its arguments and the raw scales."""
        ctx.set_materialize_grads(False)
        batch, channels, height, width = x.shape
        pixels, affine = batch * height * width, len(last_bias) == 2 * transformed
        given = _given(x, cond, transformed)
        h = units(gather(given, len(reading), reading.dtype), reading, first_bias)
        parts = units(h, mixing, middle_bias) @ writing
        raw = x.new_empty(pixels if affine else 0, transformed)
        y = x.new_empty(batch, height, width, channels)
        log_det = x.new_empty(batch, height, width) if affine else None
        launch(
            kernels.couple, (triton.cdiv(pixels, 64),),
            x, parts, last_bias, raw, y, y if log_det is None else log_det,
            pixels, height, width, *x.stride(),
            C=channels, T=transformed, AFFINE=affine, WIDTH=parts.shape[1],
            BLOCK_P=64, BLOCK_C=power_of_two(channels, 16), num_warps=4,
        )  # fmt: skip
        ctx.save_for_backward(
            x, cond, reading, first_bias, mixing, middle_bias, writing, last_bias, raw
        )
        ctx.transformed, ctx.rows, ctx.columns = transformed, len(first), last.shape[1]
        return y.permute(0, 3, 1, 2), log_det

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor | None, d_log_det: Tensor | None) -> Any:
        """The network is computed again up to its last product, then six products more."""
        x, cond, reading, first_bias, mixing, middle_bias, writing, last_bias, raw = (
            ctx.saved_tensors
        )
        batch, channels, height, width = x.shape
        pixels, outputs, dtype = batch * height * width, len(last_bias), reading.dtype
        d_said, d_x = x.new_empty(pixels, outputs), x.new_empty(batch, height, width, channels)
        d_log_det, steps = by_image(d_log_det, x)
        d_y = torch.zeros_like(x) if d_y is None else d_y
        launch(
            kernels.uncouple, (triton.cdiv(pixels, 64),),
            x, raw, d_y, d_log_det, d_said, d_x,
            pixels, height, width, *steps, *x.stride(), *d_y.stride(),
            C=channels, T=ctx.transformed, AFFINE=outputs == 2 * ctx.transformed,
            BLOCK_P=64, BLOCK_C=power_of_two(channels, 16), num_warps=4,
        )  # fmt: skip
        given = _given(x, cond, ctx.transformed)
        window = gather(given, len(reading), dtype)
        h1 = units(window, reading, first_bias)
        h2 = units(h1, mixing, middle_bias)
        d_out = d_said.view(batch, height, width, outputs).permute(0, 3, 1, 2)
        d_parts = gather(d_out, writing.shape[1], dtype, mirrored=True)
        d_h2, d_middle_bias = units_gradient(d_parts, writing.t(), h2)
        d_h1, d_first_bias = units_gradient(d_h2, mixing.t(), h1)
        d_last_bias = aside(lambda: d_said.sum(dim=0), d_said)
        d_cond = scatter(d_h1 @ reading.t(), d_x, channels - ctx.transformed, cond)
        return (
            d_x.permute(0, 3, 1, 2), d_cond, _over_pixels(window, d_h1)[: ctx.rows], d_first_bias,
            _over_pixels(h1, d_h2), d_middle_bias,
            _over_pixels(h2, d_parts)[:, : ctx.columns], d_last_bias, None, None, None, None,
        )  # fmt: skip


def _given(x: Tensor, cond: Tensor | None, transformed: int) -> Tensor:
    given = x[:, :-transformed]
    return given if cond is None else torch.cat([given, cond], dim=1)


def _over_pixels(a: Tensor, b: Tensor) -> Tensor:
    """`a^T b` in float32."""
    if a.is_cuda and a.dtype != torch.float32:
        return torch.mm(a.t(), b, out_dtype=torch.float32)
    return a.float().t() @ b.float()
