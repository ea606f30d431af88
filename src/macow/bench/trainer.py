"""Training runs to measure."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from macow.bench.images import natural_images
from macow.config import RunConfig
from macow.data.images import ArrayImages, Images
from macow.train.loop import Trainer
from macow.train.run_folder import RunFolder


@contextmanager
def trainer(
    config: RunConfig, train: Images, test: Images, device: str, seed: int
) -> Iterator[Trainer]:
    """One in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder) / "run", config, "measured", seed)
        run.check_images(train, test)
        made = Trainer(config, train, test, run, seed, torch.device(device), None, quiet=True)
        try:
            yield made
        finally:
            made.batches.close()
            run.close()


@contextmanager
def trainer_on_made_up_images(
    config: RunConfig, batch_size: int, device: str, seed: int, **changes: Any
) -> Iterator[Trainer]:
    """One with some changes to how it trains, on a single batch."""
    changes = {"batch_size": batch_size, "init_images": min(64, batch_size), **changes}
    config = replace(config, train=replace(config.train, **changes))
    images = natural_images(batch_size, config.model.shape, torch.Generator().manual_seed(seed))
    made_up = ArrayImages(images.numpy())
    with trainer(config, made_up, made_up, device, seed) as made:
        yield made
