"""Whether learning in low precision is the same learning: equal updates in float32 and bfloat16."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from macow import data
from macow.bench.trainer import trainer
from macow.evaluate import evaluate
from macow.model import FlowModel
from macow.nets.precision import set_network_precision
from macow.presets import preset

TEST_IMAGES = 2048


@dataclass(frozen=True)
class Learnt:
    """What updates in one precision come to; the figures are bits/dim."""

    precision: str
    batch_size: int
    training: float
    """Over the last tenth of the updates."""
    skipped: int
    """Updates whose loss or gradients were not finite."""
    test: float
    """Of its weights, evaluated in float32."""
    test_own: float
    """And in the precision that they were learnt in."""


def measure(
    source: str, preset_name: str, batch_size: int, updates: int, device: str, seed: int
) -> Iterator[Learnt]:
    """The same images and noise in both; a batch of 0 is the preset's."""
    config = preset(preset_name)
    train, test = (data.load(source, split, config.model.shape) for split in ("train", "test"))
    for precision in ("float32", "bfloat16"):
        changes = replace(
            config.train,
            precision=precision,
            steps=updates,
            batch_size=batch_size or config.train.batch_size,
        )
        with trainer(replace(config, train=changes), train, test, device, seed) as run:
            figures = [run.update()[:2] for _ in range(updates)]
            own, exact = (
                _test_bits(run.model, test, kind, changes.batch_size, seed)
                for kind in (precision, "float32")
            )
        last = [bits for bits, _ in figures[-math.ceil(updates / 10) :]]
        skipped = sum(not all(map(math.isfinite, pair)) for pair in figures)
        mean = sum(last) / len(last)
        yield Learnt(precision, changes.batch_size, mean, skipped, exact, own)


def _test_bits(
    model: FlowModel, test: data.Images, precision: str, batch_size: int, seed: int
) -> float:
    """As updates compute it, of some test images."""
    low = getattr(torch, precision)
    set_network_precision(model, None if low == torch.float32 else low)
    found = evaluate(model, test, batch_size=batch_size, seed=seed, limit=TEST_IMAGES)
    return found.bits_per_dim
