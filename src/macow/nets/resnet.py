"""Residual networks: the dequantizer's encoder and RealNVP's couplings are made of them."""

import torch.nn.functional as F
from torch import Tensor, nn

from macow.nets.precision import ConditioningNet
from macow.nets.weight_norm import WeightNormConv2d, WeightNormUpsample2d


class ResidualBlock(nn.Module):
    """3x3, ELU, 3x3, add the input (or its 1x1 projection to another width), ELU."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.first = WeightNormConv2d(in_channels, out_channels, 3)
        self.second = WeightNormConv2d(out_channels, out_channels, 3)
        self.project = (
            None if in_channels == out_channels else WeightNormConv2d(in_channels, out_channels, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """`[B, in, H, W] -> [B, out, H, W]`."""
        skip = x if self.project is None else self.project(x)
        return F.elu_(skip + self.second(F.elu_(self.first(x))))


class ResidualNet(ConditioningNet):
    """Residual blocks at one width, then a 1x1 that starts by giving 0 (RealNVP, section 4.1)."""

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_blocks: int
    ) -> None:
        super().__init__()
        widths = [in_channels] + [hidden_channels] * num_blocks
        self.blocks = nn.Sequential(*map(ResidualBlock, widths[:-1], widths[1:]))
        self.last = WeightNormConv2d(hidden_channels, out_channels, 1, zero=True)

    def compute(self, x: Tensor) -> Tensor:
        """`[B, in, H, W] -> [B, out, H, W]`."""
        return self.last(self.blocks(x))


class Encoder(ConditioningNet):
    """What the variational dequantizer knows of an image: an hourglass of residual blocks.

    One scale per level of the dequantizer's flow; `bottom` says whether its first level is
    unsqueezed, as in the flow.
    """

    def __init__(
        self, in_channels: int, out_channels: int, num_levels: int, *, bottom: bool = True
    ) -> None:
        super().__init__()
        widths = [32 if bottom else 8]
        for _ in range(num_levels - 1 if bottom else num_levels):
            widths.append(min(widths[-1] + 32, 128))
        self.enter: nn.Module = (
            nn.Sequential(ResidualBlock(in_channels, 32), ResidualBlock(32, 32))
            if bottom
            else WeightNormConv2d(in_channels, 8, 3)
        )
        ways_down = list(zip(widths[:-1], widths[1:], strict=True))
        self.down = nn.ModuleList(
            nn.Sequential(
                WeightNormConv2d(narrow, wide, 3, stride=2),
                nn.ELU(inplace=True),
                ResidualBlock(wide, wide),
                ResidualBlock(wide, wide),
            )
            for narrow, wide in ways_down
        )
        self.up = nn.ModuleList(
            nn.Sequential(WeightNormUpsample2d(wide, narrow), nn.ELU(inplace=True))
            for narrow, wide in reversed(ways_down)
        )
        self.last = WeightNormConv2d(widths[0], out_channels, 1)

    def compute(self, x: Tensor) -> Tensor:
        """`[B, in, H, W] -> [B, out, H, W]`."""
        x = self.enter(x)
        for layer in (*self.down, *self.up):
            x = layer(x)
        return self.last(x)
