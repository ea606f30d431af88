"""Pixel-by-pixel order, as the peers' autoregressive maps use it: what is shared between them."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def causal_window(x: Tensor, kernel: tuple[int, int]) -> Tensor:
    """Pads so that a valid `kh x kw` window ends in a pixel's own row, centred on its column."""
    kh, kw = kernel
    return F.pad(x, (kw // 2, kw // 2, kh - 1, 0))


def earlier_pixels(kernel: tuple[int, int]) -> Tensor:
    """1 where a position of such a window comes before its pixel in raster order: `[kh, kw]`."""
    kh, kw = kernel
    earlier = torch.ones(kh, kw)
    earlier[-1, kw // 2 :] = 0.0
    return earlier


def raster_inverse(
    y: Tensor, kernel: tuple[int, int], solve: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Fills an image pixel by pixel with `solve(window [B, C, kh, kw], y_pixel [B, C]) -> [B, C]`.

    The window holds 0 at its own pixel and at all later ones.
    """
    kh, kw = kernel
    height, width = y.shape[2:]
    x = causal_window(torch.zeros_like(y), kernel)
    for i in range(height):
        for j in range(width):
            window = x[:, :, i : i + kh, j : j + kw].clone()  # x goes on changing
            x[:, :, i + kh - 1, j + kw // 2] = solve(window, y[:, :, i, j])
    return x[:, :, kh - 1 :, kw // 2 : kw // 2 + width]
