"""The network of a masked autoregressive flow."""

from collections.abc import Callable

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
        return self.last(F.elu_(self.middle(F.elu_(self.first(x)))))

    def by_degree(self) -> Callable[[Tensor, Callable[[int, Tensor], Tensor]], Tensor]:
        """The network with its weights made once, channel after channel of single windows.

        Called with windows `[n, kh * kw * C]` that hold 0 at their pixel, and with
        `value(channel, raw [n, num_outputs]) -> [n, 1]`, it gives `[n, C]`. A hidden unit is
        computed when the channels it sees are known, so all channels together cost one pass.
        """
        hidden, channels, kh, kw = self.first.mask.shape
        degree = torch.arange(hidden, device=self.first.mask.device) % channels
        order = degree.argsort(stable=True)
        ends = [sum(len(range(k, hidden, channels)) for k in range(d + 1)) for d in range(channels)]
        first = self.first.weight()[order]
        centre = first[:, :, -1, kw // 2].t()
        earlier = first.permute(2, 3, 1, 0).flatten(0, 2)
        middle = self.middle.weight()[order][:, order, 0, 0].t()
        last = self.last.weight()[:, order, 0, 0].t()
        first_bias, middle_bias = self.first.bias[order], self.middle.bias[order]
        last_bias = self.last.bias

        def run(window: Tensor, value: Callable[[int, Tensor], Tensor]) -> Tensor:
            begun = torch.addmm(first_bias, window, earlier)
            h = g = begun[:, :0]
            x = window[:, :0]
            start = 0
            for d, end in enumerate(ends):
                units = slice(start, end)
                new = F.elu_(torch.addmm(begun[:, units], x, centre[:d, units]))
                h = torch.cat([h, new], dim=1)
                new = F.elu_(torch.addmm(middle_bias[units], h, middle[:end, units]))
                g = torch.cat([g, new], dim=1)
                raw = torch.addmm(last_bias[d::channels], g, last[:end, d::channels])
                x = torch.cat([x, value(d, raw)], dim=1)
                start = end
            return x

        return run
