"""Weight-normalised convolutions, initialised from the first batch (Salimans and Kingma, 2016)."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from macow.ops.aside import apart


def standardisation(y: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the factor, by channel, that make `(y - mean) * factor` standard."""
    y = y.transpose(0, 1).flatten(1)
    if y.shape[1] < 2:
        raise ValueError(
            "data-dependent initialisation needs at least two values per channel, got one: "
            "give it more images"
        )
    return y.mean(dim=1), 1.0 / (y.std(dim=1) + 1e-6)


FRESH = 0.05
"""Root mean square of a new direction."""


def lengthened(direction: Tensor) -> Tensor:
    """A direction in whole numbers as long as a fresh one, so that it can go on learning."""
    size = torch.linalg.vector_norm(direction.float()) / math.sqrt(direction.numel())
    return direction * (FRESH / size.clamp(min=1e-6))


class Made(NamedTuple):
    """A layer's weights as a matrix, a copy of it to compute with, and its bias."""

    matrix: Tensor
    low: Tensor
    bias: Tensor


class WeightNorm(nn.Module):
    """`weight = gain * direction / |direction|`, one gain per output channel, and a bias.

    A layer marked `zero` starts with gain and bias 0; any other takes them from the first batch, so
    that its outputs have mean 0 and standard deviation 1.
    """

    _out_dim = 0
    writes = False
    """Whether its matrix is what a pixel gives its neighbours, not what it reads of them."""
    multiple = 1
    """Of which that side of the matrix is, in the copy to compute with."""
    made: Made | None = None
    """Its parameters, within `normalised`."""

    def __init__(self, shape: tuple[int, ...], *, zero: bool) -> None:
        super().__init__()
        out_channels = shape[self._out_dim]
        self.zero = zero
        self.direction = nn.Parameter(FRESH * torch.randn(shape))
        gain = torch.zeros(out_channels) if zero else self._norm().detach().flatten()
        self.gain = nn.Parameter(gain)
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def weight(self) -> Tensor:
        """The normalised weight."""
        if self.made is not None:
            out, given, kh, kw = self.direction.shape
            if self.writes:
                return self.made.matrix.view(given, kh, kw, out).permute(3, 0, 1, 2)
            return self.made.matrix.view(kh, kw, given, out).permute(3, 2, 0, 1)
        gain = self.gain.view([-1 if dim == self._out_dim else 1 for dim in range(4)])
        return self.direction * (gain / self._norm())

    def kept(self, bits: int, name: str) -> Tensor:
        """Its direction in so many bits; as its length is free, 8 are whole numbers up to 127."""
        direction = self.direction.detach()
        if bits == 32:
            return direction
        if bits == 16:
            short = direction.half()
            before, after = (
                torch.linalg.vector_norm(w.double(), dim=self._others()) for w in (direction, short)
            )
            fits = torch.allclose(before, after, rtol=1e-3, atol=0)
        else:
            largest = direction.abs().amax(dim=self._others(), keepdim=True)
            scaled = direction / largest.clamp(min=torch.finfo(direction.dtype).tiny)
            short = (127 * scaled).round().to(torch.int8)
            fits = bool(direction.isfinite().all())
        if not fits:
            raise ValueError(f"{name} does not fit {bits} bits: its numbers are too large or small")
        return short

    def _norm(self) -> Tensor:
        return torch.linalg.vector_norm(self.direction, dim=self._others(), keepdim=True)

    def _others(self) -> list[int]:
        return [dim for dim in range(4) if dim != self._out_dim]

    @torch.no_grad()
    def initialize_(self, x: Tensor) -> None:
        """Standardises what the first batch makes of this layer."""
        if not self.zero:
            self.rescale_(*standardisation(self.forward(x)))

    @torch.no_grad()
    def rescale_(self, mean: Tensor, factor: Tensor) -> None:
        """From now on gives `(y - mean) * factor` where it gave `y`."""
        self.gain.mul_(factor)
        self.bias.sub_(mean).mul_(factor)


class WeightNormConv2d(WeightNorm):
    """Convolution `[B, in, H, W] -> [B, out, H / stride, W / stride]`, padded with zeros."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int | tuple[int, int],
        *,
        stride: int = 1,
        zero: bool = False,
    ) -> None:
        kh, kw = (kernel, kernel) if isinstance(kernel, int) else kernel
        super().__init__((out_channels, in_channels, kh, kw), zero=zero)
        self.stride = stride
        self.padding = (kh // 2, kw // 2)

    def forward(self, x: Tensor) -> Tensor:
        """The convolution."""
        return F.conv2d(x, self.weight(), self.bias, self.stride, self.padding)


class WeightNormUpsample2d(WeightNorm):
    """Transposed 3x3 convolution `[B, in, H, W] -> [B, out, 2H, 2W]`."""

    _out_dim = 1

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__((in_channels, out_channels, 3, 3), zero=False)

    def forward(self, x: Tensor) -> Tensor:
        """The transposed convolution."""
        return F.conv_transpose2d(x, self.weight(), self.bias, 2, padding=1, output_padding=1)


@contextmanager
def normalised(model: nn.Module, low: torch.dtype) -> Iterator[None]:
    """Within it the matrices of a model's layers are there, made for all of a shape together.

    A matrix is `[kh * kw * in, out]`, what a window is multiplied by, or `[in, kh * kw * out]`, if
    the layer `writes`. Products take its copy in type `low`. Gradients may be put aside, so a layer
    is used once within it: two gradients would be added before they are there.
    """
    alike: dict[tuple[torch.Size, bool, int], list[WeightNormConv2d]] = {}
    for layer in model.modules():
        if type(layer) is WeightNormConv2d:
            kind = (layer.direction.shape, layer.writes, layer.multiple)
            alike.setdefault(kind, []).append(layer)
    try:
        for (_, writes, multiple), layers in alike.items():
            directions = torch.stack([layer.direction for layer in layers])
            if directions.requires_grad:  # turned again at once, not layer by layer
                directions.register_hook(Tensor.contiguous)  # type: ignore[no-untyped-call]
            gains = torch.stack([layer.gain for layer in layers])
            factors = gains / torch.linalg.vector_norm(directions, dim=(2, 3, 4))
            weights = directions * factors[:, :, None, None, None]
            if writes:
                matrices = weights.permute(0, 2, 3, 4, 1).flatten(2).contiguous()
            else:
                matrices = weights.permute(0, 3, 4, 2, 1).flatten(1, 3).contiguous()
            lower, side = matrices.detach().to(low), 2 if writes else 1
            missing = -lower.shape[side] % multiple
            lower = F.pad(lower, (0, missing) if writes else (0, 0, 0, missing))
            biases = torch.stack([layer.bias for layer in layers])
            rows = zip(apart(matrices), lower.unbind(), apart(biases), strict=True)
            for layer, row in zip(layers, rows, strict=True):
                layer.made = Made(*row)
        yield
    finally:
        for layers in alike.values():
            for layer in layers:
                layer.made = None
