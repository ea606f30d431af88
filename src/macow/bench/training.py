"""What an update of a preset costs: images a second, and memory."""

import gc
import time
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch

from macow.bench.timing import seconds
from macow.bench.trainer import trainer_on_made_up_images
from macow.config import RunConfig
from macow.presets import preset

MIB = 2**20


@dataclass(frozen=True)
class TrainingCost:
    """Of whole updates: images read, forward, backward, clip, Adam, average."""

    preset: str
    batch_size: int
    images_per_s: float
    first_s: float
    """From the start to the end of the first update: initialisation, compilation, capture."""
    bits: float
    """Of the last batch: that it learns at all."""
    peak_mib: float | None
    """Memory of a GPU; None of a CPU."""
    mib_per_image: float | None
    """How the peak grows from half the batch to the whole."""
    parameters: int


def measure(
    name: str,
    batch_size: int = 0,
    repeats: int = 7,
    device: str = "cpu",
    seed: int = 0,
    precision: str = "bfloat16",
    config: RunConfig | None = None,
) -> TrainingCost:
    """Times updates of a preset, or of another configuration, on made-up images.

    A batch of 0 is the configuration's.
    """
    config = config or preset(name)
    size = batch_size or config.train.batch_size
    parts: dict[str, Any] = {"precision": precision, "clip": 100.0, "ema": 0.999}
    made_up = partial(trainer_on_made_up_images, config, device=device, seed=seed, **parts)
    release(device)
    start = time.perf_counter()
    with made_up(batch_size=size) as run:
        seconds(run.update, device)
        first_s = time.perf_counter() - start
        times = [seconds(run.update, device) for _ in range(repeats)]
        bits = run.update()[0]
        peak = _peak(device)
        parameters = sum(p.numel() for p in run.model.parameters())
    del run
    slope = None
    if peak is not None and size > 1:
        release(device)
        with made_up(batch_size=size // 2) as run:
            run.update()
            half = _peak(device)
        assert half is not None
        slope = (peak - half) / (size - size // 2)
    return TrainingCost(name, size, size / median(times), first_s, bits, peak, slope, parameters)


def release(device: str) -> None:
    """Frees what the last run held, and begins to look for the next one's peak."""
    gc.collect()
    if torch.device(device).type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _peak(device: str) -> float | None:
    """In MiB."""
    on_gpu = torch.device(device).type == "cuda"
    return torch.cuda.max_memory_allocated(device) / MIB if on_gpu else None
