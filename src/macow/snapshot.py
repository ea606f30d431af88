"""The inverse of a flow with all done once that can be: what `model.sampler()` draws with."""

from collections.abc import Callable
from copy import deepcopy
from functools import singledispatch

import torch
import torch.nn.functional as F
from torch import Tensor

from macow.bijections.actnorm import ActNorm
from macow.bijections.base import Bijection, Chain
from macow.bijections.conv1x1 import Conv1x1
from macow.bijections.coupling import Coupling
from macow.bijections.given import Given
from macow.bijections.masked_conv import MaskedConv
from macow.bijections.multiscale import Factor, MultiScale, Registered, Squeezed, squeeze, unsqueeze
from macow.nets.conv_net import ConvNet
from macow.nets.precision import set_network_precision
from macow.ops import glow, masked_conv
from macow.ops.glow import GlowWeights
from macow.ops.layout import laid
from macow.ops.masked_conv import MaskedConvWeights

Undo = Callable[[Tensor, Tensor | None], Tensor]
"""`(y, cond) -> x`."""


@torch.no_grad()
def snapshot(flow: Bijection) -> Undo:
    """The inverse of a flow as it is now: weight norms folded, 1x1 convolutions inverted."""
    return _undo(flow)


@singledispatch
def _undo(part: Bijection) -> Undo:
    return _itself(part)


def _itself(part: Bijection) -> Undo:
    """Any other map undoes itself, in a copy that nothing changes any more."""
    copy = deepcopy(part).requires_grad_(requires_grad=False)
    set_network_precision(copy, None)  # pictures are float32, whatever training is
    return copy.inverse


@_undo.register
def _(part: MultiScale) -> Undo:
    tower = _undo(part.tower)
    return lambda y, cond: tower(laid(y), cond).contiguous()


@_undo.register
def _(part: Registered) -> Undo:
    return _undo(part.block)


@_undo.register
def _(part: Squeezed) -> Undo:
    inner, squeeze_cond = _undo(part.inner), part.squeeze_cond
    return lambda y, cond: unsqueeze(inner(squeeze(y), squeeze_cond(cond)))


@_undo.register
def _(part: Factor) -> Undo:
    block, rest, keep = _undo(part.block), _undo(part.rest), part.keep

    def undo(y: Tensor, cond: Tensor | None) -> Tensor:
        kept = rest(y[:, :keep], cond)
        return block(torch.cat([kept, y[:, keep:]], dim=1), cond)

    return undo


@_undo.register
def _(part: Given) -> Undo:
    inner, label_map, label = _undo(part.inner), deepcopy(part.label_map), part.label

    def undo(y: Tensor, cond: Tensor | None) -> Tensor:
        labels = torch.full((len(y),), label, device=y.device)
        return inner(y, label_map(labels, (y.shape[2], y.shape[3])))

    return undo


@_undo.register
def _(part: ActNorm) -> Undo:
    factor, offset = (v[:, None, None] for v in _norm(part))
    return lambda y, cond: torch.addcmul(offset, y, factor)


@_undo.register
def _(part: Conv1x1) -> Undo:
    weight = torch.linalg.inv(part.weight.double()).to(part.weight.dtype)[:, :, None, None]
    return lambda y, cond: F.conv2d(y, weight)


@_undo.register
def _(part: MaskedConv) -> Undo:
    return _masked_conv(part, None)


@_undo.register
def _(part: Coupling) -> Undo:
    return _glow(part, None) if isinstance(part.net, ConvNet) else _itself(part)


@_undo.register
def _(part: Chain) -> Undo:
    """Last part first; an ActNorm joins the masked convolution after it, a Glow step is one."""
    undos: list[Undo] = []
    parts = list(part.flat())[::-1]
    while parts:
        first, *others = parts
        if _is_glow(parts):
            coupling, mix, norm = parts[:3]
            undos.append(_glow(coupling, _mixing(mix, norm)))  # type: ignore[arg-type]
            parts = parts[3:]
        elif isinstance(first, ActNorm) and others and isinstance(others[0], MaskedConv):
            undos.append(_masked_conv(others[0], _norm(first)))
            parts = parts[2:]
        else:
            undos.append(_undo(first))
            parts = others

    def undo(y: Tensor, cond: Tensor | None) -> Tensor:
        for one in undos:
            y = one(y, cond)
        return y

    return undo


def _norm(part: ActNorm) -> tuple[Tensor, Tensor]:
    """Undoing an ActNorm as a factor and an offset."""
    factor = (-part.log_scale.double()).exp()
    offset = -part.shift.double() * factor
    return factor.to(part.shift.dtype), offset.to(part.shift.dtype)


def _masked_conv(part: MaskedConv, norm: tuple[Tensor, Tensor] | None) -> Undo:
    kernel, bias, mix, mix_bias = part.weights()
    weights = MaskedConvWeights(
        _output_last(kernel), bias.clone(), mix.t().contiguous().t(), mix_bias.clone()
    )
    invert, context = masked_conv.inverter(weights, part.order, norm), None
    if part.context is not None:
        context = part.context.weight(), part.context.bias.clone(), part.context.padding

    def undo(y: Tensor, cond: Tensor | None) -> Tensor:
        given = None
        if context is not None:
            assert cond is not None, "a conditional flow is given a condition"
            given = F.conv2d(cond, context[0], context[1], padding=context[2])
        return invert(y, given)

    return undo


def _is_glow(parts: list[Bijection]) -> bool:
    kinds = [Coupling, Conv1x1, ActNorm]
    alike = len(parts) >= 3 and all(map(isinstance, parts[:3], kinds))
    return alike and isinstance(parts[0].net, ConvNet)


def _mixing(mix: Conv1x1, norm: ActNorm) -> tuple[Tensor, Tensor]:
    """Undoing a 1x1 convolution and the ActNorm before it as a matrix and an offset."""
    factor, offset = _norm(norm)
    matrix = factor.double()[:, None] * torch.linalg.inv(mix.weight.double())
    return matrix.to(mix.weight.dtype).contiguous(), offset  # an inverse lies column by column


def _glow(coupling: Coupling, mixing: tuple[Tensor, Tensor] | None) -> Undo:
    net = coupling.net
    assert isinstance(net, ConvNet)
    weights = GlowWeights(
        first=_output_last(net.first.weight()),
        first_bias=net.first.bias.clone(),
        middle=_output_last(net.middle.weight()),
        middle_bias=net.middle.bias.clone(),
        last=_output_last(net.last.weight()),
        last_bias=net.last.bias.clone(),
        affine=coupling.affine,
        mixing=mixing,
    )
    return glow.inverter(weights)


def _output_last(weight: Tensor) -> Tensor:
    """The same `[out, in, kh, kw]`, lying in memory as kernels and matrix products read it."""
    return weight.permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1)
