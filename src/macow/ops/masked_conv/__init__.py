"""The masked convolution, to learn (`forward`, `convolve`) and to undo (`inverse`, `inverter`)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.cuda import device_of

from macow.ops.masked_conv import reference
from macow.ops.masked_conv.reference import (
    ORDERS,
    MaskedConvLayer,
    MaskedConvMatrices,
    MaskedConvWeights,
    Order,
    forward,
    hidden,
    turn,
    turn_back,
)
from macow.ops.serving import kernels_serve

GRAIN = 32768
"""Numbers from which on torch gives a CPU's second thread a share."""


def inverse(
    y: Tensor, weights: MaskedConvWeights, order: Order, context: Tensor | None = None
) -> Tensor:
    """Undoes `forward`."""
    return inverter(weights, order)(y, context)


def inverter(
    weights: MaskedConvWeights, order: Order, norm: tuple[Tensor, Tensor] | None = None
) -> Callable[[Tensor, Tensor | None], Tensor]:
    """Undoes `forward` for many images: `(y, context) -> x`.

    `norm` is a factor and an offset by channel that y goes through first.
    """
    packed = None
    if kernels_serve(*weights):
        from macow.ops.masked_conv import kernel

        packed = kernel.pack(weights)

    def undo(y: Tensor, context: Tensor | None = None) -> Tensor:
        if packed is not None and kernels_serve(y, context) and max(y.shape[2:]) <= 256:
            with device_of(y):  # type: ignore[no-untyped-call] # kernels are launched there
                return kernel.inverse(y, packed, order, context, norm=norm)
        if norm is not None:
            y = y * norm[0][:, None, None] + norm[1][:, None, None]
        width = y.shape[3 if order in ("down", "up") else 2]
        with _threads_for(len(y) * width * len(weights.bias), y.device):
            return reference.inverse(y, weights, order, context)

    return undo


@contextmanager
def _threads_for(units: int, device: torch.device) -> Iterator[None]:
    """A row of so few hidden units is done before a second thread has begun: one is faster."""
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1 or units >= GRAIN:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def convolve(x: Tensor, layers: Sequence[MaskedConvLayer]) -> tuple[Tensor, list[Tensor | None]]:
    """`forward` of layers by kernels that also know gradients: y, a map `[B, H, W]` for each.

    A map holds the sum of a pixel's log-scales; an additive layer has none.
    """
    from macow.ops.masked_conv.training import masked_convolutions

    with device_of(x):  # type: ignore[no-untyped-call] # kernels are launched there
        return masked_convolutions(x, layers)


__all__ = [
    "ORDERS",
    "MaskedConvLayer",
    "MaskedConvMatrices",
    "MaskedConvWeights",
    "Order",
    "convolve",
    "forward",
    "hidden",
    "inverse",
    "inverter",
    "turn",
    "turn_back",
]
