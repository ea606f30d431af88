"""What reading and augmenting images costs beside the training step they are read for."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import torch

from macow import data
from macow.bench.timing import seconds
from macow.presets import preset
from macow.train.loop import Trainer
from macow.train.run_folder import RunFolder


@dataclass(frozen=True)
class DataCost:
    """Medians, in seconds."""

    batch: float
    """Choosing, reading and augmenting the images of an update."""
    update: float
    """The whole update, that included."""


def measure(
    source: str,
    preset_name: str = "cifar10",
    batch_size: int = 0,
    repeats: int = 7,
    device: str = "cpu",
    seed: int = 0,
) -> DataCost:
    """Times batches and updates of a preset on a source, alternating; batch 0 is the preset's."""
    config = preset(preset_name)
    train = replace(config.train, batch_size=batch_size or config.train.batch_size, init_images=64)
    config = replace(config, train=train)
    shape = (config.model.channels, *config.model.size)
    images, test = (data.load(source, split, shape) for split in ("train", "test"))
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder) / "run", config, source, seed)
        trainer = Trainer(
            config, images, test, run, seed, torch.device(device), start=None, quiet=True
        )
        batches, updates = [], []
        for step in range(repeats + 1):
            batches.append(seconds(lambda step=step: trainer.batches.at(step), device))  # type: ignore[misc]
            updates.append(seconds(trainer.update, device))
        trainer.batches.close()
        run.close()
    return DataCost(median(batches[1:]), median(updates[1:]))  # the first of each warms up
