"""The masked convolution of the paper (section 3.1)."""

import torch
from torch import Tensor

from macow.bijections.base import Bijection
from macow.nets.weight_norm import WeightNormConv2d, standardisation
from macow.ops import masked_conv
from macow.ops.masked_conv import MaskedConvWeights, Order


def hidden_channels(channels: int) -> int:
    """The width of the network in a masked convolution on so many channels."""
    return 4 * channels if channels <= 96 else min(2 * channels, 512)


class MaskedConv(Bijection):
    """Each pixel is shifted and scaled given a window of `kh x kw` pixels behind it.

    `y = x * exp(log_scale) + shift`, both from `mix(elu(read(window) + context(cond)))`. In order
    "down" a pixel reads the kh rows above; "up", "right" and "left" are the same scan seen from the
    other sides. Forward takes all rows at once, the inverse H steps.
    """

    def __init__(
        self,
        channels: int,
        kernel: tuple[int, int],
        order: Order,
        *,
        affine: bool = True,
        cond_channels: int = 0,
    ) -> None:
        super().__init__()
        if kernel[0] < 1 or kernel[1] < 1 or kernel[1] % 2 == 0:
            raise ValueError(f"kernel must be (kh, kw) with kh >= 1 and kw odd, got {kernel}")
        if order not in masked_conv.ORDERS:
            raise ValueError(f"order must be one of {', '.join(masked_conv.ORDERS)}, got {order!r}")
        self.order: Order = order
        self.affine = affine
        hidden = hidden_channels(channels)
        self.read = WeightNormConv2d(channels, hidden, kernel)
        self.mix = WeightNormConv2d(hidden, 2 * channels if affine else channels, 1, zero=True)
        self.context = WeightNormConv2d(cond_channels, hidden, 3) if cond_channels else None

    def weights(self) -> MaskedConvWeights:
        """The network's weights, normalised, as the op takes them."""
        mix = self.mix.weight()[:, :, 0, 0]
        return MaskedConvWeights(self.read.weight(), self.read.bias, mix, self.mix.bias)

    def forward_with_map(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`[B, H, W]`: the log-scales of a pixel, summed."""
        y, log_scale = masked_conv.forward(x, self.weights(), self.order, self.context_of(cond))
        return y, x.new_zeros(x[:, 0].shape) if log_scale is None else log_scale.sum(dim=1)

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`log_det = sum(log_scale)`: the Jacobian is triangular in the order of the scan."""
        y, log_det = self.forward_with_map(x, cond)
        return y, log_det.sum(dim=(1, 2))

    def inverse(self, y: Tensor, cond: Tensor | None = None) -> Tensor:
        """Row by row, `O(H NN(kh, W, C))`."""
        return masked_conv.inverse(y, self.weights(), self.order, self.context_of(cond))

    @torch.no_grad()
    def initialize_(self, x: Tensor, cond: Tensor | None = None) -> None:
        """Standardises what the first batch makes of `read`, before the condition is added."""
        turned = masked_conv.turn(x, self.order)
        read = masked_conv.hidden(turned, self.read.weight(), self.read.bias)
        self.read.rescale_(*standardisation(read))

    def context_of(self, cond: Tensor | None) -> Tensor | None:
        """What a condition adds to the hidden units."""
        if self.context is None:
            return None
        if cond is None:
            raise ValueError("this masked convolution is conditional: it needs `cond`")
        return self.context(cond)
