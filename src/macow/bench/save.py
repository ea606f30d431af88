"""What a checkpoint takes out of training, and how long it is in the writing beside it."""

from dataclasses import dataclass
from statistics import median

from macow.bench.timing import seconds
from macow.bench.trainer import trainer_on_made_up_images
from macow.presets import preset

BATCH = 2
EVERY = 600.0
"""Seconds between checkpoints that the share is told for."""


@dataclass(frozen=True)
class SaveCost:
    """Medians, in seconds."""

    size: int
    """Bytes of a checkpoint."""
    blocked: float
    """What training waits for: copying the state into memory."""
    written: float
    """From there until the disk has all of it, beside the training; that included."""


def measure(
    preset_name: str = "cifar10", repeats: int = 7, device: str = "cpu", seed: int = 0
) -> SaveCost:
    """Saves a preset's state some times over, after an update on made-up images."""
    blocked, written = [], []
    with trainer_on_made_up_images(preset(preset_name), BATCH, device, seed) as run:
        run.update()  # Adam's moments are there from here on
        for _ in range(repeats + 1):
            run.step += 1  # as if there had been more
            blocked.append(seconds(run.save, device))
            written.append(blocked[-1] + seconds(run.saver.wait, device))
        newest = run.folder.checkpoints / f"step_{run.saver.step}"
        size = sum(file.stat().st_size for file in newest.iterdir())
    return SaveCost(size, median(blocked[1:]), median(written[1:]))  # the first warms up
