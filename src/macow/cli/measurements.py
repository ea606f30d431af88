"""The measurements of `macow bench`, each a function from its options to a table of text."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from jsonargparse import Namespace

from macow.bench import (
    anomaly,
    data,
    inverse,
    learning,
    precision,
    sampling,
    save,
    scaling,
    serve,
    soak,
    training,
)
from macow.cli.train import configuration

Cost = TypeVar("Cost")
Rows = Iterable[dict[str, str]]
"""Each is shown and written as it comes: the next may take a while."""


def _inverse(options: Namespace) -> Rows:
    cost = inverse.measure(
        options.preset, options.batch_size, options.repeats, options.device, options.seed
    )
    return [
        {
            "pass": timing.name,
            "wall_s": f"{timing.wall:.4f}",
            "cpu_s": f"{timing.cpu:.4f}",
            "wall_to_forward": f"{timing.wall / cost.forward.wall:.3f}",
            "cpu_to_forward": f"{timing.cpu / cost.forward.cpu:.3f}",
            "round_trip_error": f"{cost.round_trip_error:.2e}" if timing.name == "inverse" else "",
            "by_default": f"{cost.default_error:.2e}" if timing.name == "inverse" else "",
        }
        for timing in (cost.forward, cost.plain, cost.inverse, cost.sampler)
    ]


def _data(options: Namespace) -> Rows:
    _need(options, "data")
    cost = data.measure(
        options.data,
        options.preset,
        options.batch_size,
        options.repeats,
        options.device,
        options.seed,
    )
    share = f"{100 * cost.batch / cost.update:.3f}"
    return [
        {"batch_s": f"{cost.batch:.5f}", "update_s": f"{cost.update:.4f}", "share_percent": share}
    ]


def _need(options: Namespace, *names: str) -> None:
    examples = {"data": "cifar10:PATH", "photos": "FOLDER"}
    for name in names:
        if not options[name]:
            raise ValueError(
                f"bench {options.name}: --{name} is missing, as in --{name} {examples[name]}"
            )


def _of_presets(measure: Callable[..., Cost], options: Namespace, *more: object) -> Iterator[Cost]:
    common = (options.batch_size, options.repeats, options.device, options.seed)
    return (measure(name, *common, *more) for name in options.preset.split(","))


def _sampling(options: Namespace) -> Rows:
    for cost in _of_presets(sampling.measure, options, options.other_batches or ()):
        with_snapshot = cost.ms_per_image + 1e3 * cost.snapshot_s / options.batch_size
        yield {
            "model": cost.preset,
            "ms_per_image": f"{cost.ms_per_image:.3f}",
            "with_snapshot": f"{with_snapshot:.3f}",
            "first_s": f"{cost.first_s:.1f}",
            "one_image_ms": f"{cost.one_image_ms:.2f}",
            "best_batch": str(cost.best_batch),
            "best_ms": f"{cost.best_ms_per_image:.3f}",
            "error": f"{cost.error:.2e}",
            "plain_error": f"{cost.plain_error:.2e}",
            "largest": f"{cost.largest:.2e}",
            "plain_largest": f"{cost.plain_largest:.2e}",
            "levels": f"{cost.levels:.4f}",
            "plain_levels": f"{cost.plain_levels:.4f}",
            "pixel_by_pixel_ms": ""
            if cost.sequential_ms_per_image is None
            else f"{cost.sequential_ms_per_image:.2f}",
            "backend": cost.backend,
        }


def _training(options: Namespace) -> Rows:
    costs = _of_presets(training.measure, options, options.precision)
    return (_training_row(cost, options) for cost in costs)


def _scaling(options: Namespace) -> Rows:
    common = (options.batch_size, options.repeats, options.device, options.seed, options.precision)
    costs = scaling.measure_all(options.preset, *common)
    return (_training_row(cost, options) for cost in costs)


def _precision(options: Namespace) -> Rows:
    _need(options, "data")
    common = (options.batch_size, options.repeats, options.device, options.seed)
    found = precision.measure(options.data, options.preset, *common)
    return (
        {
            "precision": learnt.precision,
            "images": str(learnt.batch_size),
            "updates": str(options.repeats),
            "training_bits": f"{learnt.training:.4f}",
            "skipped": str(learnt.skipped),
            "test_bits": f"{learnt.test:.4f}",
            "test_bits_own": f"{learnt.test_own:.4f}",
        }
        for learnt in found
    )


def _learning(options: Namespace) -> Rows:
    _need(options, "data")
    if not 0 < options.minutes < math.inf:
        raise ValueError(f"bench learning: --minutes must be above 0, got {options.minutes}")
    configs = {}
    for name in options.preset.split(","):
        config = configuration(name, options.config)
        size = options.batch_size or config.train.batch_size
        configs[name] = replace(config, train=replace(config.train, batch_size=size))
    if len(configs) > 1 and len(set(configs.values())) == 1:
        made = f", as {options.config} makes them" if options.config else ""
        raise ValueError(f"bench learning: {options.preset} are one and the same{made}")
    for point in learning.measure(
        configs,
        options.data,
        options.minutes,
        options.num_samples,
        options.repeats,
        options.device,
        options.seed,
    ):
        test = point.test
        yield {
            "model": point.preset,
            "parameters": str(point.parameters),
            "seed": str(point.seed),
            "images": str(point.batch_size),
            "updates": str(point.updates),
            "seconds": f"{point.seconds:.1f}",
            "training_bits": f"{point.training:.4f}",
            "skipped": str(point.skipped),
            "test_bits": f"{test.bits_per_dim:.4f}" if test else "",
            "error": _or_nothing(test.bits_per_dim_error) if test else "",
            "weighted": f"{test.importance_weighted:.4f}" if test else "",
        }


def _or_nothing(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.4f}"


def _anomaly(options: Namespace) -> Rows:
    _need(options, "data", "photos")
    options.preset = options.model
    found = anomaly.measure(
        options.model,
        options.data,
        Path(options.photos),
        options.batch_size,
        options.device,
        options.seed,
    )
    return (
        {
            "kind": one.kind,
            "images": str(one.images),
            "pictures": str(one.pictures),
            "bits": f"{one.bits_per_dim:.3f}",
            "likelihood": f"{one.likelihood.mean:.3f}",
            "likelihood_error": f"{one.likelihood.error:.3f}",
            "typicality": f"{one.typicality.mean:.3f}",
            "typicality_error": f"{one.typicality.error:.3f}",
            "corrected": f"{one.corrected.mean:.3f}",
            "corrected_error": f"{one.corrected.error:.3f}",
        }
        for one in found
    )


def _training_row(cost: training.TrainingCost, options: Namespace) -> dict[str, str]:
    return {
        "model": cost.preset,
        "parameters": str(cost.parameters),
        "images": str(cost.batch_size),
        "precision": options.precision,
        "images_per_s": f"{cost.images_per_s:.1f}",
        "first_s": f"{cost.first_s:.1f}",
        "bits": f"{cost.bits:.4f}",
        "mib_per_image": "" if cost.mib_per_image is None else f"{cost.mib_per_image:.2f}",
        "peak_mib": "" if cost.peak_mib is None else f"{cost.peak_mib:.0f}",
    }


def _save(options: Namespace) -> Rows:
    options.batch_size = save.BATCH
    cost = save.measure(options.preset, options.repeats, options.device, options.seed)
    return [
        {
            "megabytes": f"{cost.size / 1e6:.0f}",
            "blocked_s": f"{cost.blocked:.3f}",
            "written_s": f"{cost.written:.3f}",
            "blocked_percent_of_600_s": f"{100 * cost.blocked / save.EVERY:.3f}",
            "written_percent_of_600_s": f"{100 * cost.written / save.EVERY:.3f}",
        }
    ]


def _soak(options: Namespace) -> Rows:
    options.preset, options.batch_size = "small", soak.CONFIG.train.batch_size
    done = soak.soak(options.repeats, options.seed)
    if done.lost or not done.identical:
        raise ArithmeticError(f"bench soak: work was lost: {done}")
    counts = {
        **dict(sorted(done.faults.items())),
        "checkpoints lost": done.lost,
        "updates at the end": done.steps,
        "files or figures unlike the undisturbed run": 0,
        "seconds": round(done.seconds),
    }
    return [{"count": str(count), "what": what} for what, count in counts.items()]


def _serve(options: Namespace) -> Rows:
    options.preset, options.batch_size = "digits", serve.PICTURES
    found = serve.measure(options.repeats, options.device)
    return [
        {
            "clients": str(served.clients),
            "requests": str(served.outcomes.total()),
            "answered": str(served.outcomes["answered"]),
            "busy": str(served.outcomes["busy"]),
            "errors": str(served.outcomes["error"]),
            "median_s": f"{served.median():.3f}",
            "worst_s": f"{max(served.waited):.3f}",
            "worst_busy_s": f"{max(served.turned_away, default=0):.3f}",
            "mb_before": f"{served.memory[0] / 1e6:.0f}" if served.memory[0] else "",
            "mb_after": f"{served.memory[1] / 1e6:.0f}" if served.memory[1] else "",
        }
        for served in found
    ]


MEASURES = {
    "inverse": _inverse,
    "data": _data,
    "sampling": _sampling,
    "training": _training,
    "scaling": _scaling,
    "precision": _precision,
    "learning": _learning,
    "anomaly": _anomaly,
    "save": _save,
    "soak": _soak,
    "serve": _serve,
}
