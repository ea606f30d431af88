"""The inverse of a Glow step, coupling, 1x1 convolution and ActNorm at once: `ops.glow.inverse`."""

from torch import Tensor
from torch.cuda import device_of

from macow.ops.glow import reference
from macow.ops.glow.reference import GlowWeights
from macow.ops.serving import kernels_serve


def inverse(y: Tensor, weights: GlowWeights, cond: Tensor | None = None) -> Tensor:
    """`x = matrix [y1, (y2 - shift(y1)) / scale(y1)] + offset`."""
    if kernels_serve(y, weights.first, cond):
        from macow.ops.glow import kernel

        with device_of(y):  # type: ignore[no-untyped-call] # kernels are launched there
            return kernel.inverse(y, weights, cond)
    return reference.inverse(y, weights, cond)


__all__ = ["GlowWeights", "inverse"]
