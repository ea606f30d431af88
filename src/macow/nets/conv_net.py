"""The network of a coupling layer."""

import torch.nn.functional as F
from torch import Tensor

from macow.nets.precision import ConditioningNet
from macow.nets.weight_norm import WeightNormConv2d


class ConvNet(ConditioningNet):
    """3x3, ELU, 1x1, ELU, 3x3, weight-normalised; starts by giving 0 (paper, section 4)."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int) -> None:
        super().__init__()
        self.first = WeightNormConv2d(in_channels, hidden_channels, 3)
        self.middle = WeightNormConv2d(hidden_channels, hidden_channels, 1)
        self.last = WeightNormConv2d(hidden_channels, out_channels, 3, zero=True)
        self.last.writes = True
        self.first.multiple = self.last.multiple = 64  # products read their sides in such pieces

    def compute(self, x: Tensor) -> Tensor:
        """`[B, in, H, W] -> [B, out, H, W]`."""
        return self.last(F.elu_(self.middle(F.elu_(self.first(x)))))
