"""New images by seed and number: the same picture whatever the batch or the device."""

from collections.abc import Iterable, Iterator

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


def sample_batches(
    model: FlowModel, count: int, *, temperature: float, seed: int, batch_size: int
) -> Iterator[Tensor]:
    """Samples 0 to `count - 1`, batch by batch, uint8 on the CPU."""
    for start in range(0, count, batch_size):
        z = latents(model.shape, seed, range(start, min(start + batch_size, count)))
        yield model.decode(temperature * z.to(model.device, model.dtype)).cpu()
