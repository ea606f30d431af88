"""What reading and augmenting images costs beside the training step they are read for."""

from dataclasses import dataclass, replace
from statistics import median

from macow import data
from macow.bench.timing import seconds
from macow.bench.trainer import trainer
from macow.presets import preset


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
    images, test = (data.load(source, split, config.model.shape) for split in ("train", "test"))
    batches, updates = [], []
    with trainer(config, images, test, device, seed) as run:
        for step in range(repeats + 1):
            batches.append(seconds(lambda step=step: run.batches.at(step), device))  # type: ignore[misc]
            updates.append(seconds(run.update, device))
    return DataCost(median(batches[1:]), median(updates[1:]))  # the first of each warms up
