"""Which images an update sees, and how they are varied: functions of (seed, step) alone."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from macow import distribution
from macow.config import TrainConfig
from macow.data import IN_MEMORY
from macow.data.images import ArrayImages, Images, label_numbers
from macow.seeds import generator_for, seed_for


def batch_indices(count: int, batch_size: int, seed: int, step: int) -> np.ndarray:
    """The images of an update: epochs in a row, each in an order of its own, cut into batches."""
    positions = np.arange(step * batch_size, (step + 1) * batch_size)
    epochs = positions // count
    parts = [_order(count, seed, int(e))[positions[epochs == e] % count] for e in np.unique(epochs)]
    return np.concatenate(parts)


@lru_cache(maxsize=2)
def _order(count: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng(seed_for(seed, "order", epoch)).permutation(count)


def own_part(config: TrainConfig) -> slice:
    """Which images of every batch are this process's."""
    processes = distribution.count()
    if config.batch_size % (processes * config.batch_steps):
        raise ValueError(
            f"batch_size {config.batch_size} must be divisible by {processes} processes times "
            f"batch_steps {config.batch_steps}"
        )
    share = config.batch_size // processes
    return slice(distribution.rank() * share, (distribution.rank() + 1) * share)


def shifted_updates(config: TrainConfig) -> int:
    """How many updates see shifted images."""
    return round(config.shift_until * config.steps)


def augment(
    images: Tensor,
    generator: torch.Generator,
    *,
    mirror: bool,
    shift: int,
    whole: int | None = None,
    part: slice = slice(None),
) -> Tensor:
    """Mirrors half of the images and moves all by up to `shift` pixels, reflecting at the border.

    Draws for a batch of `whole` images and uses the `part` of them that these are.
    """
    batch, _, height, width = images.shape
    device = images.device
    size = whole or batch
    reach = min(shift, height - 1, width - 1)
    moves = torch.randint(-reach, reach + 1, (2, size, 1), generator=generator)[:, part]
    mirrored = torch.randint(0, 1 + mirror, (size, 1), generator=generator)[part].bool()
    moves, mirrored = (t.to(device, non_blocking=True) for t in (moves, mirrored))
    rows = _reflect(torch.arange(height, device=device) + moves[0], height)
    columns = _reflect(torch.arange(width, device=device) + moves[1], width)
    columns = torch.where(mirrored, columns.flip(1), columns)
    which = torch.arange(batch, device=device)[:, None, None]
    moved = images.permute(0, 2, 3, 1)[which, rows[:, :, None], columns[:, None, :]]
    return moved.permute(0, 3, 1, 2)


def _reflect(positions: Tensor, size: int) -> Tensor:
    return (size - 1) - ((size - 1) - positions.abs()).abs()


class Batches:
    """The batches of a run: from the device's memory if they fit, else read ahead by threads."""

    def __init__(
        self,
        images: Images,
        batch_size: int,
        *,
        seed: int,
        device: torch.device,
        mirror: bool = False,
        shift: int = 0,
        shifted: int | None = None,
        part: slice = slice(None),
        ahead: int = 4,
        names: Sequence[str] = (),
    ) -> None:
        """Images are shifted in the first `shifted` updates, or in all.

        `part` is this process's share of each batch; `names` are the labels a model knows.
        """
        self.images = images
        self.batch_size = batch_size
        self.seed = seed
        self.device = device
        self.mirror, self.shift, self.shifted = mirror, shift, shifted
        self.part = part
        self.ahead = ahead
        labels = label_numbers(images, names) if names else None
        self.labels = None if labels is None else torch.from_numpy(labels).long()
        self.resident: Tensor | None = None
        self.reading: dict[int, Future[Tensor]] = {}
        self.readers = ThreadPoolExecutor(ahead, thread_name_prefix="macow-reader")
        if isinstance(images, ArrayImages) and images.array.nbytes <= IN_MEMORY:
            self.resident = torch.from_numpy(np.array(images.array)).to(device)

    def at(self, step: int) -> Tensor:
        """The images of an update, uint8 `[B, C, H, W]` on the device."""
        if self.resident is not None:
            indices = torch.from_numpy(self._indices(step)).to(self.device, non_blocking=True)
            batch = self.resident[indices]
        else:
            for later in range(step, step + self.ahead):
                if later not in self.reading:
                    self.reading[later] = self.readers.submit(self._read, later)
            batch = self.reading.pop(step).result().to(self.device, non_blocking=True)
        shift = self.shift if self.shifted is None or step < self.shifted else 0
        if self.mirror or shift:
            batch = augment(
                batch,
                generator_for(self.seed, "augment", step),
                mirror=self.mirror,
                shift=shift,
                whole=self.batch_size,
                part=self.part,
            )
        return batch

    def labels_at(self, step: int) -> Tensor | None:
        """The labels of the images of an update, if the model is given any."""
        if self.labels is None:
            return None
        labels = self.labels[torch.from_numpy(self._indices(step))]
        return labels.to(self.device, non_blocking=True)

    def close(self) -> None:
        """Ends the readers."""
        self.readers.shutdown(cancel_futures=True)

    def _indices(self, step: int) -> np.ndarray:
        return batch_indices(len(self.images), self.batch_size, self.seed, step)[self.part]

    def _read(self, step: int) -> Tensor:
        batch = torch.from_numpy(self.images.take(self._indices(step)))
        return batch.pin_memory() if self.device.type == "cuda" else batch
