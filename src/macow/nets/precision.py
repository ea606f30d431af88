"""Which precision arithmetic is done in: exact where figures are, lower where networks may."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def exact_float32() -> Iterator[None]:
    """Within it, float32 means float32 on a GPU, too: no TensorFloat-32 (also as a decorator).

    A flow inverts only what it computed with the same numbers; 10 bits of mantissa are too few.
    """
    cudnn: Any = torch.backends.cudnn
    switches = [cudnn.conv, cudnn.rnn, torch.backends.cuda.matmul]
    before = [switch.fp32_precision for switch in switches]
    cudnn.allow_tf32 = False  # torch's older switch, which must agree with the newer ones
    for switch in switches:
        switch.fp32_precision = "ieee"
    try:
        yield
    finally:
        cudnn.allow_tf32 = before[0] == "tf32"
        for switch, precision in zip(switches, before, strict=True):
            switch.fp32_precision = precision


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


def network_precision(model: nn.Module) -> torch.dtype:
    """What the conditioning networks of a model compute in, float32 if not told."""
    chosen = (m.compute_dtype for m in model.modules() if isinstance(m, ConditioningNet))
    return next((dtype for dtype in chosen if dtype is not None), torch.float32)


def set_network_precision(model: nn.Module, dtype: torch.dtype | None) -> None:
    """Lets the conditioning networks of a model compute in `dtype`; None is the weights' own."""
    for module in model.modules():
        if isinstance(module, ConditioningNet):
            module.compute_dtype = dtype
