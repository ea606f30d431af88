"""What presets learn in the same time: the paper's ablation, and any other."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

import torch

from macow import data
from macow.bench.trainer import trainer
from macow.bench.training import release
from macow.config import RunConfig
from macow.evaluate import Evaluation, evaluate
from macow.nets.precision import set_network_precision
from macow.train.loop import Trainer

POINTS = 20
"""Of a curve."""
FIRST = 20
"""Updates that tell how many the time suffices for; a GPU compiles in the first."""


@dataclass(frozen=True)
class Point:
    """Where a run is after so many updates."""

    preset: str
    parameters: int
    seed: int
    batch_size: int
    updates: int
    seconds: float
    """Since the first update."""
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
    """Trains each from `repeats` seeds for so long; what ends with the updates ends with that."""
    timed: dict[str, RunConfig] = {}
    for number in range(seed, seed + repeats):
        for name, config in configs.items():
            if name not in timed:
                timed[name] = _timed(config, source, 60 * minutes, device, seed)
            release(device)
            yield from _learnt(name, timed[name], source, num_samples, device, number)


def _timed(config: RunConfig, source: str, seconds: float, device: str, seed: int) -> RunConfig:
    """With as many updates as so many seconds suffice for."""
    release(device)
    with trainer(config, *_images(config, source), device, seed) as run:
        steps = max(1, round(seconds / _seconds_each(run)))
    return replace(config, train=replace(config.train, steps=steps))


def _learnt(
    name: str, config: RunConfig, source: str, num_samples: int, device: str, seed: int
) -> Iterator[Point]:
    with trainer(config, *_images(config, source), device, seed) as run:
        for point in _curve(name, run):
            at_end = point.updates == config.train.steps
            yield replace(point, test=_test(run, num_samples)) if at_end else point


def _images(config: RunConfig, source: str) -> tuple[data.Images, data.Images]:
    shape = config.model.shape
    return data.load(source, "train", shape), data.load(source, "test", shape)


def _seconds_each(run: Trainer) -> float:
    """Of an update, when the first ones are done."""
    times = []
    for _ in range(FIRST):
        run.update()
        times.append(time.perf_counter())
    return median(after - before for before, after in pairwise(times))


def _curve(name: str, run: Trainer) -> Iterator[Point]:
    """All updates, with some looks at where it is."""
    parameters = sum(p.numel() for p in run.model.parameters())
    steps = run.config.steps
    bits = [run.update()[0]]
    start = time.perf_counter()
    for end in sorted({-(-steps * i // POINTS) for i in range(1, POINTS + 1)}):
        while run.step < end:
            bits.append(run.update()[0])
        spent, mean = time.perf_counter() - start, torch.tensor(bits).nanmean().item()
        bits = []
        common = (name, parameters, run.seed, run.config.batch_size)
        yield Point(*common, run.step, spent, mean, run.skipped)


def _test(run: Trainer, num_samples: int) -> Evaluation:
    set_network_precision(run.shown, None)
    batch_size = max(1, run.config.batch_size // run.config.batch_steps)
    return evaluate(
        run.shown, run.test, num_samples=num_samples, batch_size=batch_size, seed=run.seed
    )
