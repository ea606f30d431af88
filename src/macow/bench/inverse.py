"""What the inverse costs beside the forward pass, and the forward pass beside plain eager torch."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import Generator, Tensor

from macow.bench.images import natural_images
from macow.bench.plain import plainly
from macow.initialize import initializing
from macow.model import FlowModel
from macow.nets.precision import exact_float32
from macow.presets import preset


@dataclass(frozen=True)
class Timing:
    """Medians of one pass over the batch, in seconds."""

    name: str
    wall: float
    cpu: float


@dataclass(frozen=True)
class InverseCost:
    """The passes, and how exact the round trip was."""

    forward: Timing
    plain: Timing
    inverse: Timing
    sampler: Timing
    """The inverse by `model.sampler()`, a snapshot."""
    round_trip_error: float
    """`max |x - inverse(forward(x))|`, where a grey level of 8 bits is 2/256."""
    default_error: float
    """The same with torch's default precision: on a GPU, TF32 convolutions."""


def stir(model: FlowModel, generator: Generator, size: float = 0.1) -> None:
    """Before initialisation, moves layers that start at 0 off it: no transform stays trivial."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("gain") and not parameter.any():
                parameter.copy_(size * torch.randn(parameter.shape, generator=generator))


@torch.no_grad()
def measure(
    preset_name: str = "cifar10",
    batch_size: int = 16,
    repeats: int = 7,
    device: str = "cpu",
    seed: int = 0,
) -> InverseCost:
    """Times forward, plain forward, inverse and sampler in turns; checks that they agree."""
    generator = Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = preset(preset_name).model.build()
    images = natural_images(batch_size, model.shape, generator)
    stir(model, generator)
    model.to(device)
    images = images.to(device)
    with exact_float32():
        with initializing(model):
            model(images)
        medians, error = _compare(model, model.continuous(images, 0.5), repeats)
    return InverseCost(**medians, round_trip_error=error, default_error=_error(model, images))


def _compare(model: FlowModel, x: Tensor, repeats: int) -> tuple[dict[str, Timing], float]:
    """The passes in turns, after a look whether they agree."""
    plain = plainly(model.flow).to(x.device)
    z, log_det = model.flow(x)
    plain_z, plain_log_det = plain(x)
    torch.testing.assert_close(plain_z, z, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(plain_log_det, log_det, rtol=1e-4, atol=1e-2)

    sampler = model.sampler()
    passes: dict[str, Callable[[], object]] = {
        "forward": lambda: model.flow(x),
        "plain": lambda: plain(x),
        "inverse": lambda: model.flow.inverse(z),
        "sampler": lambda: sampler.invert(z),
    }
    timings: dict[str, list[tuple[float, float]]] = {name: [] for name in passes}
    for _ in range(repeats):
        for name, run in passes.items():
            timings[name].append(_time(run, x))
    medians = {
        name: Timing(name, median(w for w, _ in rows), median(c for _, c in rows))
        for name, rows in timings.items()
    }
    return medians, (model.flow.inverse(z) - x).abs().max().item()


def _error(model: FlowModel, images: Tensor) -> float:
    x = model.continuous(images, 0.5)
    return (model.flow.inverse(model.flow(x)[0]) - x).abs().max().item()


def _time(run: Callable[[], object], x: Tensor) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    if x.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - wall, time.process_time() - cpu
