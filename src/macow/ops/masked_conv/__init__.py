"""The masked convolution and its inverse: `ops.masked_conv.forward`, `inverse`."""

from torch import Tensor
from torch.cuda import device_of

from macow.ops.masked_conv import reference
from macow.ops.masked_conv.reference import (
    ORDERS,
    MaskedConvWeights,
    Order,
    forward,
    hidden,
    turn,
    turn_back,
)
from macow.ops.serving import kernels_serve


def inverse(
    y: Tensor,
    weights: MaskedConvWeights,
    order: Order,
    context: Tensor | None = None,
    norm: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Undoes `forward`; `norm` is a factor and an offset by channel that y goes through first."""
    if kernels_serve(y, *weights, context) and max(y.shape[2:]) <= 256:
        from macow.ops.masked_conv import kernel

        with device_of(y):  # type: ignore[no-untyped-call] # kernels are launched there
            return kernel.inverse(y, weights, order, context, norm=norm)
    if norm is not None:
        y = y * norm[0][:, None, None] + norm[1][:, None, None]
    return reference.inverse(y, weights, order, context)


__all__ = [
    "ORDERS",
    "MaskedConvWeights",
    "Order",
    "forward",
    "hidden",
    "inverse",
    "turn",
    "turn_back",
]
