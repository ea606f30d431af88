"""The forward pass of a flow in few launches, to learn and evaluate on a GPU. `snapshot`'s twin."""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial, singledispatch
from typing import Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from macow.alike import Alike
from macow.bijections.actnorm import ActNorm, NormRow
from macow.bijections.base import Bijection, Chain
from macow.bijections.conv1x1 import Conv1x1
from macow.bijections.coupling import Coupling
from macow.bijections.given import Given
from macow.bijections.masked_conv import MaskedConv
from macow.bijections.multiscale import Factor, MultiScale, Registered, Squeezed, squeeze, unsqueeze
from macow.dequantize import VariationalDequantizer
from macow.model import FlowModel
from macow.nets.conv_net import ConvNet
from macow.nets.weight_norm import Made, WeightNormConv2d, normalised
from macow.ops import glow, masked_conv
from macow.ops.masked_conv import MaskedConvLayer, MaskedConvMatrices
from macow.ops.mixing import mix
from macow.ops.serving import kernels_train
from macow.volume import Volume

Pass = Callable[[Tensor, Tensor | None, Volume], Tensor]
"""`(x, cond, volume) -> y`; its log-det goes to the volume."""
B = TypeVar("B", bound=Bijection)


class Planned(Protocol):
    """As a flow's `forward`, networks computing in type `low` by kernels if one is given."""

    def __call__(
        self, x: Tensor, cond: Tensor | None = None, low: torch.dtype | None = None
    ) -> tuple[Tensor, Tensor]:
        """`(y, log_det)`."""
        ...


def plan(flow: Bijection) -> Planned:
    """A flow's `forward` with the parameters that it has when it is called.

    A flow with a part that stands in several places computes as it is: gradients of a layer that is
    used twice would be added before they are there.
    """
    chains = [part for part in flow.modules() if isinstance(part, Chain)]
    places = Counter(part for chain in chains for part in chain.parts)
    if places and max(places.values()) > 1:
        return lambda x, cond=None, low=None: type(flow).forward(flow, x, cond)
    run, alike = _pass(flow), Alike(flow)

    def forward(
        x: Tensor, cond: Tensor | None = None, low: torch.dtype | None = None
    ) -> tuple[Tensor, Tensor]:
        volume = Volume()
        with alike.together(), nullcontext() if low is None else normalised(flow, low):
            y = run(x, cond, volume)
            return y, volume.total(x)

    return forward


class Plans:
    """The plans of a model's flows, that of its dequantizer included."""

    def __init__(self, model: FlowModel) -> None:
        flows = [model.flow]
        if isinstance(model.dequantizer, VariationalDequantizer):
            flows.append(model.dequantizer.flow)
        self._plans = [(flow, plan(flow)) for flow in flows]

    @contextmanager
    def in_use(self, low: torch.dtype) -> Iterator[None]:
        """Within it the flows compute `forward` as planned, their networks in type `low`."""
        for flow, forward in self._plans:
            flow.forward = partial(forward, low=low)  # type: ignore[method-assign]
        try:
            yield
        finally:
            for flow, _ in self._plans:
                del flow.forward


@singledispatch
def _pass(part: Bijection) -> Pass:
    """Any other map as it is."""

    def run(x: Tensor, cond: Tensor | None, volume: Volume) -> Tensor:
        y, log_det = part(x, cond)
        volume.add(log_det)
        return y

    return run


@_pass.register
def _(part: MultiScale) -> Pass:
    return _pass(part.tower)


@_pass.register
def _(part: Registered) -> Pass:
    return _pass(part.block)


@_pass.register
def _(part: Squeezed) -> Pass:
    inner = _pass(part.inner)
    return lambda x, cond, volume: unsqueeze(inner(squeeze(x), part.squeeze_cond(cond), volume))


@_pass.register
def _(part: Factor) -> Pass:
    block, rest, keep = _pass(part.block), _pass(part.rest), part.keep

    def run(x: Tensor, cond: Tensor | None, volume: Volume) -> Tensor:
        y = block(x, cond, volume)
        return torch.cat([rest(y[:, :keep], cond, volume), y[:, keep:]], dim=1)

    return run


@_pass.register
def _(part: ActNorm) -> Pass:
    return lambda x, cond, volume: _normed(part, x, volume)


@_pass.register
def _(part: Conv1x1) -> Pass:
    return _mixed(None, part)


@_pass.register
def _(part: MaskedConv) -> Pass:
    return _convolved([(None, part)])


@_pass.register
def _(part: Coupling) -> Pass:
    def run(x: Tensor, cond: Tensor | None, volume: Volume) -> Tensor:
        y, log_det = _coupled(part, x, cond)
        if part.affine:
            assert log_det is not None
            volume.add_map(log_det)
        return y

    return run


def _coupled(part: Coupling, x: Tensor, cond: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """By kernels, where there are some: in low precision, or exact ones that know no gradients.

    They were tried with hidden units that wide loads can take, a multiple of eight.
    """
    net = part.net
    if isinstance(net, ConvNet) and len(net.middle.bias) % 8 == 0 and _served(net.last, x):
        first, middle, last = made = [_made(layer) for layer in (net.first, net.middle, net.last)]
        if net.compute_dtype is not None:
            trained = [tensor for layer in made for tensor in (layer.matrix, layer.bias)]
            low = [layer.low for layer in made]
            return glow.couple(x, cond, *trained, *low, part.num_transformed)
        if not torch.is_grad_enabled() and last.low.dtype == torch.float32:
            matrices = first.matrix, middle.matrix, last.low  # its rows begin where wide loads may
            biases = first.bias, middle.bias, last.bias
            return glow.couple_exactly(x, cond, matrices, biases, affine=part.affine)
    return part.forward_with_map(x, cond)


def _served(layer: WeightNormConv2d, x: Tensor) -> bool:
    return layer.made is not None and kernels_train(x)


def _made(layer: WeightNormConv2d) -> Made:
    assert layer.made is not None
    return layer.made


@_pass.register
def _(part: Chain) -> Pass:
    """An ActNorm joins the 1x1 convolution after it, masked convolutions join each other."""
    runs: list[Pass] = []
    parts = deque(part.flat())
    while parts:
        convolutions: list[tuple[ActNorm | None, MaskedConv]] = []
        while convolution := _next(parts, MaskedConv):
            convolutions.append(convolution)
        if convolutions:
            runs.append(_convolved(convolutions))
        elif mixing := _next(parts, Conv1x1):
            runs.append(_mixed(*mixing))
        else:
            runs.append(_pass(parts.popleft()))

    def run(x: Tensor, cond: Tensor | None, volume: Volume) -> Tensor:
        for one in runs:
            x = one(x, cond, volume)
        return x

    return run


def _next(parts: deque[Bijection], kind: type[B]) -> tuple[ActNorm | None, B] | None:
    """Takes the next part if it is of a kind, with an ActNorm before it if there is one."""
    norm = parts[0] if parts and isinstance(parts[0], ActNorm) else None
    place = 0 if norm is None else 1
    part = parts[place] if len(parts) > place else None
    if not isinstance(part, kind):
        return None
    for _ in range(place + 1):
        parts.popleft()
    return norm, part


def _normed(norm: ActNorm, x: Tensor, volume: Volume) -> Tensor:
    volume.add_scale(norm, x)
    row = _row(norm)
    return torch.addcmul(row.shift[:, None, None], x, row.log_scale.exp()[:, None, None])


def _row(norm: ActNorm) -> NormRow:
    assert norm.made is not None
    return norm.made


def _mixed(norm: ActNorm | None, part: Conv1x1) -> Pass:
    def run(x: Tensor, cond: Tensor | None, volume: Volume) -> Tensor:
        volume.add_matrix(part, x)
        if norm is None:
            return F.conv2d(x, part.weight[:, :, None, None])
        volume.add_scale(norm, x)
        assert part.made is not None
        return mix(x, part.made.weight, part.made.bias)

    return run


def _convolved(parts: list[tuple[ActNorm | None, MaskedConv]]) -> Pass:
    def run(x: Tensor, cond: Tensor | None, volume: Volume) -> Tensor:
        if x.shape[1] <= 128 and _served(parts[0][1].read, x):
            x, log_dets = masked_conv.convolve(x, [_layer(*both, cond) for both in parts])
            for norm, _ in parts:
                if norm is not None:
                    volume.add_scale(norm, x)
        else:
            log_dets = []
            for norm, part in parts:
                x = x if norm is None else _normed(norm, x, volume)
                x, log_scales = part.forward_with_map(x, cond)
                log_dets.append(log_scales)
        for (_, part), log_det in zip(parts, log_dets, strict=True):
            if part.affine:
                assert log_det is not None
                volume.add_map(log_det)
        return x

    return run


def _layer(norm: ActNorm | None, part: MaskedConv, cond: Tensor | None) -> MaskedConvLayer:
    read, out = _made(part.read), _made(part.mix)
    _, _, kh, kw = part.read.direction.shape
    return MaskedConvLayer(
        MaskedConvMatrices(read.matrix, read.bias, out.matrix, out.bias, read.low, out.low),
        (kh, kw),
        part.order,
        part.context_of(cond),
        (None, None) if norm is None else _row(norm)[:2],
    )


@_pass.register
def _(part: Given) -> Pass:
    inner = _pass(part.inner)

    def run(x: Tensor, cond: Tensor | None, volume: Volume) -> Tensor:
        labels = torch.full((len(x),), part.label, device=x.device)
        return inner(x, part.label_map(labels, (x.shape[2], x.shape[3])), volume)

    return run
