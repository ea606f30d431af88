"""What drawing an image costs, and what it loses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from torch import Generator

from macow.bench.images import natural_images
from macow.bench.inverse import stir
from macow.bench.timing import seconds
from macow.bijections.emerging import AutoregressiveConv
from macow.bijections.maf import MaskedAutoregressive
from macow.bijections.raster import one_pixel_at_a_time
from macow.initialize import initializing
from macow.model import FlowModel
from macow.nets.precision import exact_float32
from macow.ops.serving import plain_torch
from macow.presets import preset

CHECKED = 8
"""Images whose round trip is compared with plain torch's."""


@dataclass(frozen=True)
class SamplingCost:
    """Of one preset; times are medians."""

    preset: str
    backend: str
    snapshot_s: float
    """Making the sampler, once."""
    first_s: float
    """Its first batch: kernels are compiled, the pass is captured."""
    ms_per_image: float
    one_image_ms: float
    best_batch: int
    best_ms_per_image: float
    error: float
    """What `flow(inverse(z)) - z` loses, root mean square."""
    plain_error: float
    """The same for the inverse in plain float32 torch."""
    largest: float
    """Its largest value."""
    plain_largest: float
    levels: float
    """What `x - inverse(flow(x))` loses at most, in grey levels."""
    plain_levels: float
    sequential_ms_per_image: float | None
    """By an inverse that goes pixel by pixel, of models that have one."""


@torch.no_grad()
@exact_float32()
def measure(
    name: str,
    batch_size: int = 100,
    repeats: int = 7,
    device: str = "cpu",
    seed: int = 0,
    others: Sequence[int] = (),
) -> SamplingCost:
    """Times a preset with weights as after initialisation, on latents of natural images.

    `others` are further sizes of batch, to find the best.
    """
    model = _model(name, device, seed)
    generator = Generator().manual_seed(seed)
    images = natural_images(batch_size, model.shape, generator).to(model.device)
    z = torch.cat([model.encode(some) for some in torch.split(images, CHECKED)])
    snapshot_s = seconds(model.sampler, device)
    sampler = model.sampler()
    first_s = seconds(lambda: sampler.invert(z), device)
    x = sampler.invert(z)[:CHECKED]
    with plain_torch():
        plain = model.flow.inverse(z[:CHECKED])
    lost, plain_lost = (model.flow(v)[0] - z[:CHECKED] for v in (x, plain))
    truth = model.continuous(images[:CHECKED], 0.5)
    levels, plain_levels = ((v - truth).abs() * 2 ** (model.n_bits - 1) for v in (x, plain))
    sequential = None
    if any(isinstance(m, MaskedAutoregressive | AutoregressiveConv) for m in model.modules()):
        with one_pixel_at_a_time():
            sequential = 1e3 * seconds(lambda: model.flow.inverse(z), device) / batch_size
    found = {}
    for size in (batch_size, 1, *others):
        some = z[torch.arange(size, device=device) % len(z)]
        sampler = model.sampler()  # its own for each size, captured for it
        _warm_up(partial(sampler.invert, some), device)
        times = [seconds(partial(sampler.invert, some), device) for _ in range(repeats)]
        found[size] = median(times)
    best = min(found, key=lambda size: found[size] / size)
    return SamplingCost(
        preset=name,
        backend=sampler.backend,
        snapshot_s=snapshot_s,
        first_s=first_s,
        ms_per_image=1e3 * found[batch_size] / batch_size,
        one_image_ms=1e3 * found[1],
        best_batch=best,
        best_ms_per_image=1e3 * found[best] / best,
        error=lost.square().mean().sqrt().item(),
        plain_error=plain_lost.square().mean().sqrt().item(),
        largest=lost.abs().max().item(),
        plain_largest=plain_lost.abs().max().item(),
        levels=levels.max().item(),
        plain_levels=plain_levels.max().item(),
        sequential_ms_per_image=sequential,
    )


def _model(name: str, device: str, seed: int) -> FlowModel:
    generator = Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = preset(name).model.build()
    stir(model, generator, size=0.05)  # 0.1 makes deep models singular, see docs/experiments.md
    images = natural_images(CHECKED, model.shape, generator).to(device)
    model.to(device)
    with initializing(model):
        model(images, labels=model.labels_in_turn(range(CHECKED)))
    return model.given(model.labels[0]) if model.labels else model


def _warm_up(run: Callable[[], object], device: str) -> None:
    """Once, and on a GPU for a second: its clocks rise only while it works."""
    left = 0.0 if torch.device(device).type == "cpu" else 1.0
    run()
    while left > 0:
        left -= seconds(run, device)
