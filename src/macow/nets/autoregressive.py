"""The network of a masked autoregressive flow."""

import torch
import torch.nn.functional as F
from torch import Tensor

from macow.nets.precision import ConditioningNet
from macow.nets.weight_norm import WeightNormConv2d


class _MaskedConv2d(WeightNormConv2d):
    """Weight-normalised valid convolution that reads only where `mask [out, in, kh, kw]` is 1."""

    mask: Tensor

    def __init__(self, mask: Tensor, *, zero: bool = False) -> None:
        out_channels, in_channels, kh, kw = mask.shape
        super().__init__(in_channels, out_channels, (kh, kw), zero=zero)
        self.padding = (0, 0)
        self.register_buffer("mask", mask, persistent=False)
        with torch.no_grad():
            self.direction.mul_(mask)
            if not zero:
                self.gain.copy_(self._norm().flatten())

    def weight(self) -> Tensor:
        """The normalised weight; what the mask hides is 0 and stays 0."""
        return super().weight() * self.mask


class AutoregressiveNet(ConditioningNet):
    """Masked `kh x kw`, ELU, masked 1x1, ELU, masked 1x1 on the windows that end in each pixel.

    Output d of a pixel sees all channels of the earlier pixels in its window and the channels
    before d of its own (MADE's masks). There are `num_outputs` such sets of outputs.
    """

    def __init__(
        self, channels: int, hidden_channels: int, num_outputs: int, earlier: Tensor
    ) -> None:
        super().__init__()
        inputs = torch.arange(channels)
        hidden = torch.arange(hidden_channels) % channels  # a unit of degree d sees channels < d
        first = earlier.expand(hidden_channels, channels, *earlier.shape).clone()
        first[:, :, -1, earlier.shape[1] // 2] = (inputs < hidden[:, None]).float()
        middle = (hidden <= hidden[:, None]).float()[:, :, None, None]
        last = (hidden <= inputs[:, None]).float()[:, :, None, None].repeat(num_outputs, 1, 1, 1)
        self.first = _MaskedConv2d(first)
        self.middle = _MaskedConv2d(middle)
        self.last = _MaskedConv2d(last, zero=True)

    def compute(self, x: Tensor) -> Tensor:
        """`[B, C, H + kh - 1, W + kw - 1] -> [B, num_outputs * C, H, W]`."""
        return self.last(F.elu(self.middle(F.elu(self.first(x)))))
