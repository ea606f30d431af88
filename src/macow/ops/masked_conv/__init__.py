"""The masked convolution and its inverse: `ops.masked_conv.forward`, `inverse`."""

from macow.ops.masked_conv.reference import (
    ORDERS,
    MaskedConvWeights,
    Order,
    forward,
    hidden,
    inverse,
    turn,
    turn_back,
)

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
