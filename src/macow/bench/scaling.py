"""How the cost of an update grows with depth, width and the size of images."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from macow.bench.training import TrainingCost, measure
from macow.config import FlowConfig, RunConfig
from macow.presets import preset


def variants(config: RunConfig) -> dict[str, RunConfig]:
    """A configuration, and others that differ in one thing; larger images come in fewer."""
    flow = config.model.flow

    def of(flow: FlowConfig) -> RunConfig:
        return replace(config, model=replace(config.model, flow=flow))

    def deeper(change: Callable[[int], int]) -> RunConfig:
        return of(replace(flow, steps=tuple(tuple(map(change, level)) for level in flow.steps)))

    def wider(change: Callable[[int], int]) -> RunConfig:
        return of(replace(flow, hidden=tuple(map(change, flow.hidden))))

    height, width = config.model.size
    larger = replace(
        config,
        model=replace(config.model, size=(2 * height, 2 * width)),
        train=replace(config.train, batch_size=max(1, config.train.batch_size // 4)),
    )
    return {
        "as it is": config,
        "half the depth": deeper(lambda n: max(1, n // 2)),
        "twice the depth": deeper(lambda n: 2 * n),
        "half the width": wider(lambda n: max(1, n // 2)),
        "twice the width": wider(lambda n: 2 * n),
        "twice the side": larger,
    }


def measure_all(
    name: str, batch_size: int, repeats: int, device: str, seed: int, precision: str
) -> Iterator[TrainingCost]:
    """The cost of each; a batch of 0 is the preset's."""
    config = preset(name)
    if batch_size:
        config = replace(config, train=replace(config.train, batch_size=batch_size))
    for title, variant in variants(config).items():
        yield measure(title, 0, repeats, device, seed, precision, config=variant)
