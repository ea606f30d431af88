"""The 1x1 convolution of a learning flow."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import grad

from macow.ops.aside import aside


class Mixing(torch.autograd.Function):
    """`F.conv2d`; the gradients of weight and bias are put aside."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Keeps its input."""
        ctx.save_for_backward(x, weight)
        return F.conv2d(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """That of the input at once."""
        x, weight = ctx.saved_tensors
        d_weight = aside(lambda: grad.conv2d_weight(x, weight.shape, d_y), x, d_y)  # type: ignore[no-untyped-call]
        d_bias = aside(lambda: d_y.sum(dim=(0, 2, 3)), d_y)
        d_x = grad.conv2d_input(x.shape, weight, d_y)  # type: ignore[no-untyped-call]
        return d_x, d_weight, d_bias


def mix(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`[B, C, H, W]`, its channels mixed by `weight [C, C, 1, 1]` and shifted."""
    return Mixing.apply(x, weight, bias)  # type: ignore[no-untyped-call]
