"""New images by seed and number: the same picture whatever the batch or the device."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from macow.model import FlowModel
from macow.seeds import generator_for


def latents(shape: tuple[int, int, int], seed: int, numbers: Iterable[int]) -> Tensor:
    """The standard normal latents of samples number so and so, `[n, C, H, W]`, on the CPU."""
    return torch.stack(
        [
            torch.randn(shape, generator=generator_for(seed, "sample", n), device="cpu")
            for n in numbers
        ]
    )


def draw(
    model: FlowModel, numbers: Sequence[int], *, temperature: float = 1.0, seed: int = 0
) -> Tensor:
    """Samples number so and so, uint8 `[n, C, H, W]` on the CPU; labels take turns."""
    z = latents(model.shape, seed, numbers).to(model.device, model.dtype)
    return model.decode(temperature * z, model.labels_in_turn(numbers)).cpu()
