"""The masked convolution and its gradients in a few launches."""

from collections.abc import Sequence
from functools import cache
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from macow.ops.aside import aside
from macow.ops.compiling import launch
from macow.ops.launch import by_image, power_of_two, sum_of_rows
from macow.ops.masked_conv import training_kernels as kernels
from macow.ops.masked_conv.reference import MaskedConvLayer, Order
from macow.ops.masked_conv.weight_kernels import backward_weights

Norm = tuple[Tensor, Tensor]
"""Log-scale and shift of an ActNorm, `[C]` each."""


class _Layout(NamedTuple):
    """How a scan walks over images: the arguments PLACES, and its rows and columns."""

    pixels: int
    start: int
    row_step: int
    column_step: int
    rows: int
    columns: int


def _layout(x: Tensor, order: Order) -> _Layout:
    batch, _, height, width = x.shape
    down = order in ("down", "up")
    rows, columns = (height, width) if down else (width, height)
    row_step, column_step = (width, 1) if down else (1, width)
    start = 0
    if order in ("up", "left"):
        start, row_step = (rows - 1) * row_step, -row_step
    return _Layout(batch * height * width, start, row_step, column_step, rows, columns)


class _Blocks(NamedTuple):
    """What a program works on at once: pixels, hidden units, entries of a window."""

    pixels: int
    units: int
    entries: int
    warps: int
    stages: int = 1


# What was fastest on an H200 (docs/experiments.md). Never 64 pixels with 4 warps: for such products
# Triton 3.6 takes other instructions, and with few channels it gets their addresses wrong.


def _network_blocks(channels: int) -> _Blocks:
    """For the network, forward, and back if it is computed again."""
    if channels <= 4:
        return _Blocks(64, 16, 64, 2)
    if channels <= 32:
        return _Blocks(32 if 9 < channels <= 16 else 64, 64 if channels <= 16 else 32, 32, 2)
    return _Blocks(32, 64, 64, 4)


def _kept_blocks(channels: int) -> _Blocks:
    """For the way back through the network, if its hidden units were kept."""
    if channels <= 32:
        return _Blocks(32, 16, 64, 2 if 4 < channels <= 16 else 1)
    return _Blocks(32, 64, 64, 4)


def _weights_blocks(channels: int) -> _Blocks:
    """For sums over pixels."""
    if channels <= 16:
        return _Blocks(64, 16 if channels <= 4 else 64, 32, 1)
    return _Blocks(64, 32, 64, 1)


def _x_blocks(channels: int) -> _Blocks:
    """For what a pixel gets back from those that have read it."""
    if channels <= 4:
        return _Blocks(32, 16, 0, 1)
    if channels <= 32:
        return _Blocks(64, 64 if channels <= 16 else 128, 0, 2)
    return _Blocks(32, 64, 0, 2, 3)


PROGRAMS = 1056
"""So many share the pixels of a sum over all of them."""
KEPT_UP_TO = 32 * 32
"""Up to so many pixels of an image hidden units are kept for the gradients, not computed again."""


class MaskedConvolution(torch.autograd.Function):
    """`(y, log_det_map [B, H, W])` of `x [B, C, H, W]`; products in low precision, sums in float32.

    The map of an additive layer is None. `low` is what windows are read from, if that is there
    already; with the ActNorm of another convolution after this one, the third result is its `low`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        log_scale: Tensor | None,
        shift: Tensor | None,
        kernel: Tensor,
        bias: Tensor,
        mix: Tensor,
        mix_bias: Tensor,
        context: Tensor | None,
        low_kernel: Tensor,
        low_mix: Tensor,
        low: Tensor | None,
        then: Norm | None,
        size: tuple[int, int],
        order: Order,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Keeps its arguments for the gradients, and hidden units of small images."""
        ctx.set_materialize_grads(False)
        x = x.contiguous(memory_format=torch.channels_last)
        if context is not None:
            context = context.contiguous(memory_format=torch.channels_last)
        affine = mix.shape[1] == 2 * x.shape[1]
        y = torch.empty_like(x)
        log_det = x.new_empty(x.shape[0], *x.shape[2:]) if affine else None
        layout, blocks = _layout(x, order), _network_blocks(x.shape[1])
        keep = any(ctx.needs_input_grad) and layout.rows * layout.columns <= KEPT_UP_TO
        h = low_kernel.new_empty(layout.pixels, kernel.shape[1]) if keep else None
        norm = _norm(x, log_scale, shift)
        low = _prepared(x, norm, low_kernel.dtype) if low is None else low
        then_low = None if then is None else torch.empty_like(low)
        launch(
            kernels.forward, (triton.cdiv(layout.pixels, blocks.pixels),),
            x, *norm, low, x if context is None else context, low_kernel, bias, low_mix, mix_bias,
            y, y if log_det is None else log_det, low if h is None else h,
            *(then or norm), low if then_low is None else then_low, *layout[:4],
            **_sizes(x, layout, kernel, size, blocks, BLOCK_C=power_of_two(x.shape[1], 16)),
            AFFINE=affine, CONDITIONAL=context is not None, KEEP=keep, THEN=then is not None,
            num_warps=blocks.warps, num_stages=blocks.stages,
        )  # fmt: skip
        ctx.save_for_backward(x, log_scale, shift, bias, mix_bias, context, low_kernel, low_mix, h)
        ctx.size, ctx.order = size, order
        if then_low is not None:
            ctx.mark_non_differentiable(then_low)
        return y, log_det, then_low

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor | None, d_log_det: Tensor | None, _: None) -> Any:
        """Those of the network's outputs and hidden units, that of x, those of the weights."""
        kept = _Kept(ctx.size, _layout(ctx.saved_tensors[0], ctx.order), *ctx.saved_tensors)
        low = kept.low() if kept.h is None else None  # kept units need no windows
        back = _back_through_network(kept, low, d_y, d_log_det)
        _add_what_windows_say(kept, back)
        d_context = None
        if kept.context is not None:
            batch, hidden, *size = kept.context.shape
            d_context = back.d_h.to(kept.x.dtype).view(batch, *size, hidden).permute(0, 3, 1, 2)
        d_weights, d_norm = aside(lambda: _weight_gradients(kept, low, back), *kept[2:], low, *back)
        return (back.d_x, *d_norm, *d_weights, d_context, *[None] * 6)


class _Kept(NamedTuple):
    """What a forward pass leaves for its gradients; the matrices are in low precision."""

    size: tuple[int, int]
    layout: _Layout
    x: Tensor
    log_scale: Tensor | None
    shift: Tensor | None
    bias: Tensor
    mix_bias: Tensor
    context: Tensor | None
    kernel: Tensor
    mix: Tensor
    h: Tensor | None

    @property
    def norm(self) -> Norm:
        """Log-scale and shift of the ActNorm."""
        return _norm(self.x, self.log_scale, self.shift)

    def low(self) -> Tensor:
        """What windows are read from."""
        return _prepared(self.x, self.norm, self.kernel.dtype)

    def sizes(self, blocks: _Blocks, **more: int) -> dict[str, int | str]:
        """Constants of a kernel."""
        return _sizes(self.x, self.layout, self.kernel, self.size, blocks, **more)


class _Back(NamedTuple):
    """Hidden units, their gradients, those of what the network said, and that of x."""

    h: Tensor
    d_h: Tensor
    d_said: Tensor
    d_x: Tensor


def _back_through_network(
    kept: _Kept, low: Tensor | None, d_y: Tensor | None, d_log_det: Tensor | None
) -> _Back:
    """Of d_x its direct part."""
    x, pixels, outputs = kept.x, kept.layout.pixels, kept.mix.shape[1]
    d_y = torch.zeros_like(x) if d_y is None else d_y
    d_log_det, steps = by_image(d_log_det, x)
    h = kept.kernel.new_empty(pixels, kept.kernel.shape[1]) if kept.h is None else kept.h
    d_h, d_said, d_x = torch.empty_like(h), h.new_empty(pixels, outputs), torch.empty_like(x)
    blocks = (_network_blocks if kept.h is None else _kept_blocks)(x.shape[1])
    launch(
        kernels.backward, (triton.cdiv(pixels, blocks.pixels),),
        x, *kept.norm, h if low is None else low, x if kept.context is None else kept.context,
        kept.kernel, kept.bias, kept.mix, kept.mix_bias,
        d_y.contiguous(memory_format=torch.channels_last), d_log_det,
        h, d_h, d_said, d_x, *kept.layout[:4], *steps,
        **kept.sizes(blocks, BLOCK_O=power_of_two(outputs, 16)),
        AFFINE=outputs == 2 * x.shape[1], CONDITIONAL=kept.context is not None,
        KEPT=kept.h is not None, num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip
    return _Back(h, d_h, d_said, d_x)


def _add_what_windows_say(kept: _Kept, back: _Back) -> None:
    """Completes d_x."""
    channels = kept.x.shape[1]
    blocks, block_c = _x_blocks(channels), min(power_of_two(channels, 16), 64)
    programs = triton.cdiv(kept.layout.pixels, blocks.pixels)
    launch(
        kernels.backward_x, (programs, triton.cdiv(channels, block_c)),
        kept.norm[0], back.d_h, kept.kernel, back.d_x, *kept.layout[:4],
        **_shape(kept.x, kept.layout, kept.kernel, kept.size),
        BLOCK_P=blocks.pixels, BLOCK_C=block_c, BLOCK_K=blocks.units,
        num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip


def _weight_gradients(
    kept: _Kept, low: Tensor | None, back: _Back
) -> tuple[tuple[Tensor, ...], tuple[Tensor | None, ...]]:
    """Of kernel, bias, mix and its bias, and of the ActNorm: sums that programs share."""
    channels, (taps, hidden), outputs = kept.x.shape[1], kept.kernel.shape, kept.mix.shape[1]
    blocks, block_o = _weights_blocks(channels), min(64, power_of_two(outputs, 16))
    entries = taps // channels * _width(channels)
    tiles = (
        triton.cdiv(entries, blocks.entries)
        + triton.cdiv(outputs, block_o)
        + (kept.log_scale is not None),
        triton.cdiv(hidden, blocks.units),
    )
    block_c = power_of_two(triton.cdiv(channels, tiles[1]), 16)
    most = max(1, PROGRAMS * (4 if channels <= 4 else 1) // (tiles[0] * tiles[1]))
    programs = min(most, triton.cdiv(kept.layout.pixels, blocks.pixels))
    lengths = [taps * hidden, hidden, hidden * outputs, outputs, channels, channels]
    parts = kept.x.new_empty(programs, sum(lengths))
    launch(
        backward_weights, (programs, *tiles),
        kept.low() if low is None else low,
        back.h, back.d_h, back.d_said, kept.x, back.d_x, kept.norm[0], parts,
        *kept.layout[:4], programs, OUTPUTS=outputs,
        **kept.sizes(blocks, BLOCK_O=block_o, BLOCK_C=block_c),
        num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip
    if kept.log_scale is None:
        lengths = lengths[:4]
    found = sum_of_rows(parts[:, : sum(lengths)])
    d_kernel, d_bias, d_mix, d_mix_bias, *d_norm = torch.split(found, lengths)
    d_weights = (d_kernel.view(taps, hidden), d_bias, d_mix.view(hidden, outputs), d_mix_bias)
    return d_weights, tuple(d_norm) or (None, None)


def _norm(x: Tensor, log_scale: Tensor | None, shift: Tensor | None) -> Norm:
    if log_scale is None or shift is None:
        zeros = _zeros(x.shape[1], x.device)
        return zeros, zeros
    return log_scale, shift


@cache
def _zeros(channels: int, device: torch.device) -> Tensor:
    """An ActNorm that changes nothing."""
    return torch.zeros(channels, device=device)


def _width(channels: int) -> int:
    """Channels of what windows are read from: wide loads take eight numbers."""
    return triton.cdiv(channels, 8) * 8


def _prepared(x: Tensor, norm: Norm, dtype: torch.dtype) -> Tensor:
    batch, channels, height, width = x.shape
    pixels = batch * height * width
    low = x.new_empty(pixels, _width(channels), dtype=dtype)
    block_c = power_of_two(_width(channels))
    block_p = max(1, 2048 // block_c)
    launch(
        kernels.prepare, (triton.cdiv(pixels, block_p),),
        x, *norm, low, pixels, C=channels, WIDTH=_width(channels),
        BLOCK_P=block_p, BLOCK_C=block_c, num_warps=4,
    )  # fmt: skip
    return low


def _shape(
    x: Tensor, layout: _Layout, kernel: Tensor, size: tuple[int, int]
) -> dict[str, int | str]:
    return {
        "ROWS": layout.rows, "COLUMNS": layout.columns, "C": x.shape[1],
        "HIDDEN": kernel.shape[1], "KH": size[0], "KW": size[1], "PRECISION": _precision(kernel),
    }  # fmt: skip


def _precision(matrix: Tensor) -> str:
    """How float32 is multiplied: as torch's own convolutions do it."""
    cudnn: Any = torch.backends.cudnn
    rounded = matrix.dtype == torch.float32 and cudnn.conv.fp32_precision == "tf32"
    return "tf32" if rounded else "ieee"


def _sizes(
    x: Tensor, layout: _Layout, kernel: Tensor, size: tuple[int, int], blocks: _Blocks, **more: int
) -> dict[str, int | str]:
    return _shape(x, layout, kernel, size) | {
        "WIDTH": _width(x.shape[1]),
        "BLOCK_P": blocks.pixels, "BLOCK_H": blocks.units, "BLOCK_K": blocks.entries, **more,
    }  # fmt: skip


def masked_convolutions(
    x: Tensor, layers: Sequence[MaskedConvLayer]
) -> tuple[Tensor, list[Tensor | None]]:
    """As `masked_conv.forward`, layer after layer: y, and a map of log-dets for each."""
    low, log_dets = None, []
    for layer, after in zip_longest(layers, layers[1:]):
        *trained, low_kernel, low_mix = layer.matrices
        then = None if after is None else _norm(x, *after.norm)
        x, log_det, low = MaskedConvolution.apply(  # type: ignore[no-untyped-call]
            x, *layer.norm, *trained, layer.context, low_kernel, low_mix,
            low, then, layer.size, layer.order,
        )  # fmt: skip
        log_dets.append(log_det)
    return x, log_dets
