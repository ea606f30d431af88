"""Grids of images."""

import math

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
    picture = Image.fromarray(sheet[:, :, 0] if channels == 1 else sheet)
    factor = max(1, SMALLEST // max(picture.size))
    return picture.resize(
        (picture.width * factor, picture.height * factor), Image.Resampling.NEAREST
    )
