"""What presets learn in the same time: the paper's ablation, and any other."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

import torch

from macow import data
from macow.bench.trainer import trainer
from macow.config import RunConfig
from macow.evaluate import Evaluation, evaluate
from macow.nets.precision import set_network_precision
from macow.train.loop import Trainer

POINTS = 20
"""Of a curve."""
FIRST = 20
"""Updates that tell how many the time suffices for."""


@dataclass(frozen=True)
class Point:
    """Where a run is after so many updates."""

    preset: str
    parameters: int
    seed: int
    batch_size: int
    updates: int
    seconds: float
    """Since the first update, in which a GPU compiles."""
    training: float
    """Bits/dim of training batches since the last point."""
    skipped: int
    """Updates so far that were not finite."""
    test: Evaluation | None = None
    """Of a run's last point: all test images, float32."""


def measure(
    configs: dict[str, RunConfig],
    source: str,
    minutes: float,
    num_samples: int,
    repeats: int,
    device: str,
    seed: int,
) -> Iterator[Point]:
    """Trains each from `repeats` seeds for so long; a cosine ends with the time."""
    for number in range(seed, seed + repeats):
        for name, config in configs.items():
            train, test = (
                data.load(source, split, config.model.shape) for split in ("train", "test")
            )
            with trainer(config, train, test, device, number) as run:
                for point in _curve(name, run, 60 * minutes):
                    if run.step == run.config.steps:
                        found = _test(run, num_samples)
                        yield replace(point, test=found)
                    else:
                        yield point


def _curve(name: str, run: Trainer, seconds: float) -> Iterator[Point]:
    """Updates until the time is over, as the first few of them foretell it."""
    parameters = sum(p.numel() for p in run.model.parameters())
    bits = [run.update()[0]]
    times = [time.perf_counter()]
    while run.step < FIRST:
        bits.append(run.update()[0])
        times.append(time.perf_counter())
    each = median(after - before for before, after in pairwise(times))
    steps = max(FIRST, round(seconds / each))
    run.config = replace(run.config, steps=steps)
    for end in sorted({max(FIRST, steps * i // POINTS) for i in range(1, POINTS + 1)}):
        while run.step < end:
            bits.append(run.update()[0])
        spent, mean = time.perf_counter() - times[0], torch.tensor(bits).nanmean().item()
        bits = []
        common = (name, parameters, run.seed, run.config.batch_size)
        yield Point(*common, run.step, spent, mean, run.skipped)


def _test(run: Trainer, num_samples: int) -> Evaluation:
    set_network_precision(run.shown, None)
    batch_size = max(1, run.config.batch_size // run.config.batch_steps)
    return evaluate(
        run.shown, run.test, num_samples=num_samples, batch_size=batch_size, seed=run.seed
    )
