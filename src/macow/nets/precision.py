"""Networks that may compute in lower precision than the state they condition."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class ConditioningNet(nn.Module, ABC):
    """A network whose arithmetic may be bfloat16; what goes in and comes out keeps its type."""

    compute_dtype: torch.dtype | None = None

    @abstractmethod
    def compute(self, x: Tensor) -> Tensor:
        """The network itself."""

    def forward(self, x: Tensor) -> Tensor:
        """`[B, in, H, W] -> [B, out, H, W]`."""
        if self.compute_dtype is None:
            return self.compute(x)
        with torch.autocast(x.device.type, self.compute_dtype):
            return self.compute(x).to(x.dtype)


def set_network_precision(model: nn.Module, dtype: torch.dtype | None) -> None:
    """Lets the conditioning networks of a model compute in `dtype`; None is the weights' own."""
    for module in model.modules():
        if isinstance(module, ConditioningNet):
            module.compute_dtype = dtype
