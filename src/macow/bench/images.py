"""Images for measurements and tests that need no data set."""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor


def natural_images(
    count: int, shape: tuple[int, int, int], generator: Generator | None = None
) -> Tensor:
    """Uint8 images `[count, C, H, W]` with the falling spectrum of photographs."""
    channels, height, width = shape
    total = torch.zeros(count, channels, height, width)
    scale = 1.0
    size = 2
    while size <= max(height, width):
        noise = torch.randn(count, channels, size, size, generator=generator)
        grey = noise.mean(dim=1, keepdim=True)  # channels of a photograph go together
        layer = 0.3 * noise + grey
        total += scale * F.interpolate(layer, size=(height, width), mode="bilinear")
        scale, size = scale / 2, size * 2
    return (127.5 + 50 * total).clamp(0, 255).to(torch.uint8)
