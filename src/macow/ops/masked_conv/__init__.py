"""The masked convolution and its inverse: `ops.masked_conv.forward`, `inverse`."""

from torch import Tensor

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
    if kernels_serve(y, *weights, context):
        from macow.ops.masked_conv import kernel

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
