"""What presets learn in the same time: the paper's ablation, and any other."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
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
    """Bits/dim of training batches since the last point; NaN where it diverged."""
    skipped: int
    """Updates so far that were not finite."""
    test: Evaluation | None = None
    """Of a run's end: all test images, float32."""


def measure(
    configs: dict[str, RunConfig],
    source: str,
    minutes: float,
    num_samples: int,
    repeats: int,
    device: str,
    seed: int,
) -> Iterator[Point]:
    """Trains each from `repeats` seeds for so long; schedule and shifts end with that time."""
    load = cache(partial(data.load, source))
    images = {name: _splits(load, config) for name, config in configs.items()}
    timed: dict[str, RunConfig] = {}
    for number in range(seed, seed + repeats):
        for name, config in configs.items():
            release(device)
            if name not in timed:
                timed[name] = _timed(name, config, *images[name], 60 * minutes, device, seed)
                release(device)
            yield from _learnt(name, timed[name], *images[name], num_samples, device, number)


def _splits(load: Callable[..., data.Images], config: RunConfig) -> tuple[data.Images, data.Images]:
    return load("train", config.model.shape), load("test", config.model.shape)


def _timed(
    name: str,
    config: RunConfig,
    train: data.Images,
    test: data.Images,
    seconds: float,
    device: str,
    seed: int,
) -> RunConfig:
    """With as many updates as so many seconds suffice for."""
    with trainer(config, train, test, device, seed) as run:
        steps = max(1, round(seconds / _seconds_each(run)))
    if steps <= config.train.warmup:
        raise ValueError(
            f"{name} gets no further than its warm-up of {config.train.warmup:,} updates: there "
            f"is time for {steps:,}; give it more minutes or a shorter warm-up"
        )
    return replace(config, train=replace(config.train, steps=steps))


def _seconds_each(run: Trainer) -> float:
    """Of an update, when the first ones are done."""
    times = [time.perf_counter()]
    with suppress(FloatingPointError):  # those of a diverging run take as long
        for _ in range(FIRST):
            try:
                run.update()
            finally:
                times.append(time.perf_counter())
    return median(after - before for before, after in pairwise(times))


def _learnt(
    name: str,
    config: RunConfig,
    train: data.Images,
    test: data.Images,
    num_samples: int,
    device: str,
    seed: int,
) -> Iterator[Point]:
    """All updates, with some looks at where it is; a run that diverges ends there."""
    steps = config.train.steps
    with trainer(config, train, test, device, seed) as run:
        parameters = sum(p.numel() for p in run.model.parameters())
        start = time.perf_counter()

        def point(bits: list[float]) -> Point:
            spent, mean = time.perf_counter() - start, torch.tensor(bits).nanmean().item()
            common = (name, parameters, seed, config.train.batch_size)
            return Point(*common, run.step, spent, mean, run.skipped)

        try:
            bits = [run.update()[0]]
            start = time.perf_counter()
            for end in sorted({-(-steps * i // POINTS) for i in range(1, POINTS + 1)}):
                while run.step < end:
                    bits.append(run.update()[0])
                if end < steps:
                    yield point(bits)
                    bits = []
            yield replace(point(bits), test=_test(run, num_samples))
        except FloatingPointError:
            yield point([math.nan])


def _test(run: Trainer, num_samples: int) -> Evaluation:
    set_network_precision(run.shown, None)
    batch_size = max(1, run.config.batch_size // run.config.batch_steps)
    return evaluate(
        run.shown, run.test, num_samples=num_samples, batch_size=batch_size, seed=run.seed
    )
