"""What a checkpoint takes out of training, and how long it is in the writing beside it."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import torch

from macow.bench.images import natural_images
from macow.bench.timing import seconds
from macow.data.images import ArrayImages
from macow.presets import preset
from macow.train.loop import Trainer
from macow.train.run_folder import RunFolder

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
    config = preset(preset_name)
    train = replace(config.train, batch_size=BATCH, init_images=BATCH)
    config = replace(config, train=train)
    shape = (config.model.channels, *config.model.size)
    made_up = natural_images(BATCH, shape, torch.Generator().manual_seed(seed))
    images = ArrayImages(made_up.numpy())
    blocked, written = [], []
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder) / "run", config, "made up", seed)
        run.check_images(images, images)
        trainer = Trainer(
            config, images, images, run, seed, torch.device(device), start=None, quiet=True
        )
        trainer.update()  # Adam's moments are there from here on
        for _ in range(repeats + 1):
            trainer.step += 1  # as if there had been more
            blocked.append(seconds(trainer.save, device))
            written.append(blocked[-1] + seconds(trainer.saver.wait, device))
        newest = run.checkpoints / f"step_{trainer.saver.step}"
        size = sum(file.stat().st_size for file in newest.iterdir())
        trainer.batches.close()
        run.close()
    return SaveCost(size, median(blocked[1:]), median(written[1:]))  # the first warms up
