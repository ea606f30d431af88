"""Pixel-by-pixel order, as the peers' autoregressive maps use it: what is shared between them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor

_one_by_one: ContextVar[bool] = ContextVar("one_by_one", default=False)


@contextmanager
def one_pixel_at_a_time() -> Iterator[None]:
    """Within it images are filled strictly pixel by pixel: what waves are compared with."""
    token = _one_by_one.set(True)
    try:
        yield
    finally:
        _one_by_one.reset(token)


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
    """Fills an image with `solve(window [n, kh * kw * C], y_pixels [n, C]) -> [n, C]`.

    A window holds 0 at its own pixel and at all later ones. Pixels in different rows do not wait
    for each other: with `lag = kw // 2 + 1`, pixel (i, j) needs none of wave `lag * i + j` or
    later, so an image takes `lag * (H - 1) + W` waves, not `H W`. The image lies as `[waves, H, B,
    C]` with a margin of zeros, where windows are strided views.
    """
    kh, kw = kernel
    batch, channels, height, width = y.shape
    lag, top, side = kw // 2 + 1, kh - 1, kw // 2
    waves, before = lag * (height - 1) + width, lag * top + side
    x = y.new_zeros(before + waves + side, top + height, batch, channels)
    wave, row, image, _ = x.stride()

    def skewed(t: Tensor, first: int) -> Tensor:
        """Where the pixels of an image lie, `[H, W, B, C]`."""
        strides = (lag * wave + row, wave, image, 1)
        return t.as_strided((height, width, batch, channels), strides, first)

    given = torch.zeros_like(x)
    origin = before * wave + top * row
    skewed(given, origin).copy_(y.permute(2, 3, 0, 1))
    for t, first, last in _turns(height, width, lag):
        window = x.as_strided(
            (last - first, batch, kh, kw, channels),
            (row, image, lag * wave + row, wave, 1),
            t * wave + first * row,
        )
        pixels = slice(first + top, last + top)
        found = solve(
            window.reshape(-1, kh * kw * channels), given[before + t, pixels].flatten(0, 1)
        )
        x[before + t, pixels] = found.view(-1, batch, channels)
    return skewed(x, origin).permute(2, 3, 0, 1).contiguous()


def _turns(height: int, width: int, lag: int) -> Iterator[tuple[int, int, int]]:
    """Waves in order, each with the rows `first .. last - 1` that have a pixel in it."""
    if _one_by_one.get():
        for i in range(height):
            for j in range(width):
                yield lag * i + j, i, i + 1
        return
    for t in range(lag * (height - 1) + width):
        yield t, max(0, -((width - 1 - t) // lag)), min(height - 1, t // lag) + 1
