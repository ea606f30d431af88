"""Pictures of images: one, a grid, a film."""

import math
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SMALLEST = 512
"""Grids of small images are enlarged to about so many pixels, whole pixels to whole pixels."""


def grid(images: np.ndarray, columns: int | None = None) -> Image.Image:
    """Images uint8 `[N, C, H, W]` side by side, one pixel apart on white."""
    count, channels, height, width = images.shape
    columns = columns or math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    sheet = np.full((rows * (height + 1) + 1, columns * (width + 1) + 1, channels), 255, np.uint8)
    for i, image in enumerate(images):
        top, left = (i // columns) * (height + 1) + 1, (i % columns) * (width + 1) + 1
        sheet[top : top + height, left : left + width] = image.transpose(1, 2, 0)
    return _enlarged(picture(sheet.transpose(2, 0, 1)))


def picture(image: np.ndarray) -> Image.Image:
    """One image uint8 `[C, H, W]`."""
    pixels = image.transpose(1, 2, 0)
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def film(frames: np.ndarray, out: Path | BytesIO, milliseconds: int = 60) -> None:
    """Images uint8 `[N, C, H, W]` as an animation, there and back: WebP, or by the suffix."""
    there = [_enlarged(picture(frame)).convert("RGB") for frame in frames]
    first, *rest = there + there[-2:0:-1]
    kind = out.suffix.removeprefix(".") if isinstance(out, Path) else "webp"
    options: dict[str, Any] = {"lossless": True} if kind == "webp" else {}
    options |= {"save_all": True, "append_images": rest, "duration": milliseconds, "loop": 0}
    first.save(out, kind, **options)


def _enlarged(image: Image.Image) -> Image.Image:
    factor = max(1, SMALLEST // max(image.size))
    size = (image.width * factor, image.height * factor)
    return image.resize(size, Image.Resampling.NEAREST)
