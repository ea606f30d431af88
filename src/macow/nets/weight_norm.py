"""Weight-normalised convolutions, initialised from the first batch (Salimans and Kingma, 2016)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def standardisation(y: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the factor, by channel, that make `(y - mean) * factor` standard."""
    y = y.transpose(0, 1).flatten(1)
    if y.shape[1] < 2:
        raise ValueError(
            "data-dependent initialisation needs at least two values per channel, got one: "
            "give it more images"
        )
    return y.mean(dim=1), 1.0 / (y.std(dim=1) + 1e-6)


class _WeightNorm(nn.Module):
    """`weight = gain * direction / |direction|`, one gain per output channel, and a bias.

    A layer marked `zero` starts with gain and bias 0; any other takes them from the first batch, so
    that its outputs have mean 0 and standard deviation 1.
    """

    _out_dim = 0

    def __init__(self, shape: tuple[int, ...], *, zero: bool) -> None:
        super().__init__()
        out_channels = shape[self._out_dim]
        self.zero = zero
        self.direction = nn.Parameter(0.05 * torch.randn(shape))
        gain = torch.zeros(out_channels) if zero else self._norm().detach().flatten()
        self.gain = nn.Parameter(gain)
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def weight(self) -> Tensor:
        """The normalised weight."""
        gain = self.gain.view([-1 if dim == self._out_dim else 1 for dim in range(4)])
        return self.direction * (gain / self._norm())

    def _norm(self) -> Tensor:
        others = [dim for dim in range(4) if dim != self._out_dim]
        return torch.linalg.vector_norm(self.direction, dim=others, keepdim=True)

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


class WeightNormConv2d(_WeightNorm):
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


class WeightNormUpsample2d(_WeightNorm):
    """Transposed 3x3 convolution `[B, in, H, W] -> [B, out, 2H, 2W]`."""

    _out_dim = 1

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__((in_channels, out_channels, 3, 3), zero=False)

    def forward(self, x: Tensor) -> Tensor:
        """The transposed convolution."""
        return F.conv_transpose2d(x, self.weight(), self.bias, 2, padding=1, output_padding=1)
