"""Pictures a run shows of itself."""

from collections.abc import Sequence

import torch
from PIL import Image

from macow.model import FlowModel
from macow.pictures import grid

EACH = 8


def sample_grid(model: FlowModel, temperatures: Sequence[float], seed: int) -> Image.Image:
    """A row of samples for each temperature, the same latents in each; black where it fails."""
    rows, sampler = [], model.sampler()
    for temperature in temperatures:
        try:
            rows.append(sampler.numbered(range(EACH), temperature, seed).cpu())
        except FloatingPointError:  # a young model may not invert far latents
            rows.append(torch.zeros(EACH, *model.shape, dtype=torch.uint8))
    return grid(torch.cat(rows).numpy(), EACH)
