"""A Glow step: its coupling to learn, the same exactly, and to undo it with all beside it."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.cuda import device_of

from macow.ops.glow import reference
from macow.ops.glow.reference import GlowWeights
from macow.ops.serving import kernels_serve


def inverter(weights: GlowWeights) -> Callable[[Tensor, Tensor | None], Tensor]:
    """`(y, cond) -> x = matrix [y1, (y2 - shift(y1)) / scale(y1)] + offset`, for many images."""
    packed = None
    if kernels_serve(weights.first):
        from macow.ops.glow import kernel

        packed = kernel.pack(weights)

    def undo(y: Tensor, cond: Tensor | None = None) -> Tensor:
        if packed is not None and kernels_serve(y, cond):
            with device_of(y):  # type: ignore[no-untyped-call] # kernels are launched there
                return kernel.inverse(y, packed, cond)
        return reference.inverse(y, weights, cond)

    return undo


def couple(x: Tensor, cond: Tensor | None, *weights: Any) -> tuple[Tensor, Tensor | None]:
    """A coupling and its log-det by pixel; see `training.CouplingStep`."""
    from macow.ops.glow.training import CouplingStep

    with device_of(x):  # type: ignore[no-untyped-call] # kernels are launched there
        return CouplingStep.apply(x, cond, *weights)  # type: ignore[no-untyped-call]


def couple_exactly(
    x: Tensor,
    cond: Tensor | None,
    matrices: tuple[Tensor, Tensor, Tensor],
    biases: tuple[Tensor, Tensor, Tensor],
    *,
    affine: bool,
) -> tuple[Tensor, Tensor | None]:
    """The same in float32 and without gradients; the last matrix may end in columns of zeros.

    Products are of float16 halves: what outgrows these comes out as NaN, for plain torch to redo.
    """
    from macow.ops.glow import kernel
    from macow.ops.launch import halves

    with device_of(x):  # type: ignore[no-untyped-call] # kernels are launched there
        first, middle, last = map(halves, matrices)
        packed = kernel.Packed(
            first, biases[0], middle, biases[1], last, biases[2], affine, mixing=None
        )
        return kernel.forward(x, packed, cond)


__all__ = ["GlowWeights", "couple", "couple_exactly", "inverter"]
