"""Emerging convolutions (Hoogeboom et al., 2019): what the paper compares with."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from macow.bijections.base import Bijection, Chain
from macow.bijections.raster import causal_window, earlier_pixels, raster_inverse


class AutoregressiveConv(Bijection):
    """A linear convolution whose matrix is triangular in raster order.

    A value reads the earlier pixels of a `kh x kw` window, the earlier channels of its own pixel
    and, scaled by `sign * exp(log_scale)`, itself. `reverse` reads image and channels from their
    ends.
    """

    sign: Tensor
    mask: Tensor

    def __init__(self, centre: Tensor, kernel: tuple[int, int], *, reverse: bool = False) -> None:
        """Starts from the triangular matrix `centre [C, C]` (upper if `reverse`) within a pixel."""
        super().__init__()
        centre = centre.flip(0, 1) if reverse else centre
        channels = centre.shape[0]
        self.kernel = kernel
        self.reverse = reverse
        self.centre = nn.Parameter(centre.tril(-1))
        self.earlier = nn.Parameter(torch.zeros(channels, channels, *kernel))
        self.log_scale = nn.Parameter(centre.diagonal().abs().log())
        self.register_buffer("sign", centre.diagonal().sign())
        self.register_buffer("mask", earlier_pixels(kernel), persistent=False)

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`log_det = H W sum(log_scale)`."""
        x = self._turn(x)
        y = F.conv2d(causal_window(x, self.kernel), self.earlier * self.mask)
        y = y + F.conv2d(x, self._triangle()[:, :, None, None])
        log_det = self.log_scale.sum() * (x.shape[2] * x.shape[3])
        return self._turn(y), log_det.expand(x.shape[0])

    def inverse(self, y: Tensor, cond: Tensor | None = None) -> Tensor:
        """Wave after wave of pixels, each a triangular system."""
        triangle = self._triangle().double()
        eye = torch.eye(len(triangle), dtype=torch.double, device=y.device)
        solution = torch.linalg.solve_triangular(triangle, eye, upper=False).to(y.dtype).t()
        weight = (self.earlier * self.mask).permute(2, 3, 1, 0).flatten(0, 2)

        def solve(window: Tensor, y_pixels: Tensor) -> Tensor:
            return torch.addmm(y_pixels, window, weight, alpha=-1) @ solution

        return self._turn(raster_inverse(self._turn(y), self.kernel, solve))

    def _triangle(self) -> Tensor:
        return self.centre.tril(-1) + torch.diag(self.sign * self.log_scale.exp())

    def _turn(self, x: Tensor) -> Tensor:
        return x.flip(1, 2, 3) if self.reverse else x


class Permutation(Bijection):
    """Moves channels: `y[k] = x[order[k]]`."""

    order: Tensor

    def __init__(self, order: Tensor) -> None:
        super().__init__()
        self.register_buffer("order", order)

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Volume does not change."""
        return x[:, self.order], x.new_zeros(x.shape[0])

    def inverse(self, y: Tensor, cond: Tensor | None = None) -> Tensor:
        """Moves them back."""
        return y[:, self.order.argsort()]


def emerging_conv(channels: int, kernel: tuple[int, int] = (2, 3)) -> Chain:
    """A 3x3 convolution out of two autoregressive ones with opposite orders.

    Within a pixel the two are the factors of `P L U`, so it starts as a random rotation, like
    Glow's 1x1.
    """
    rotation = nn.init.orthogonal_(torch.empty(channels, channels))
    permutation, lower, upper = torch.linalg.lu(rotation)
    return Chain(
        upper=AutoregressiveConv(upper, kernel, reverse=True),
        lower=AutoregressiveConv(lower, kernel),
        permutation=Permutation(permutation.argmax(dim=1)),
    )
