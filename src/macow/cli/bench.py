"""`macow bench NAME`: measurements anyone can run on their machine."""

import csv
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from jsonargparse import Namespace

from macow.bench import (
    anomaly,
    data,
    inverse,
    precision,
    sampling,
    save,
    scaling,
    serve,
    soak,
    training,
)
from macow.bench.machine import machine
from macow.cli.parsing import add_computing, parse, parser, positive

Cost = TypeVar("Cost")
DESCRIPTION = """Measures, and writes the result as CSV where asked to. `inverse`: what the inverse
of a preset costs beside its forward pass, and that beside the same layers in plain eager torch.
`data`: what reading and augmenting images costs beside a training step (needs --data). `sampling`:
what drawing an image costs and loses, of one preset or several (--preset cifar10,glow-cifar10).
`training`: images a second and memory of whole updates, with gradients clipped and weights
averaged, also of several presets; their own batch sizes unless one is given. `scaling`: the same of
a preset, and of it with half and twice the depth and width and with larger images. `precision`:
whether --repeats updates in bfloat16 learn what they do in float32 (needs --data). `anomaly`: how
well the scores of --model tell its own kind of images (--data) from others, among them crops of
--photos, a folder of photographs.
`save`: what a checkpoint takes out of training. All figures are medians. `soak`: whether a small
run that is killed, damaged and resumed --repeats times is still the run it would have been, on this
machine and its disk. `serve`: what one page waits for 64 pictures, and what 50 clients at once get,
--repeats requests each."""


def run(argv: Sequence[str]) -> None:
    """Runs a measurement, prints its table and writes it."""
    arguments = parser("bench", f"{'|'.join(MEASURES)} [options]", DESCRIPTION)
    arguments.add_argument("name", choices=[*MEASURES], help="which measurement")
    arguments.add_argument("--preset", default="cifar10", help="of which configuration")
    arguments.add_argument("--model", default="cifar10-small", help="for `anomaly`")
    arguments.add_argument("--data", help="source of images: `data`, `precision`, `anomaly`")
    arguments.add_argument("--photos", help="folder of photographs, for `anomaly`")
    arguments.add_argument(
        "--other_batches", type=list[int], help="further sizes of batch for `sampling`: [200, 400]"
    )
    arguments.add_argument(
        "--precision",
        choices=["float32", "bfloat16"],
        default="bfloat16",
        help="what networks compute in, for `training` and `scaling`",
    )
    arguments.add_argument("--repeats", type=positive, default=7, help="passes of each kind")
    arguments.add_argument("--out", default=None, type=str, help="CSV file to write")
    add_computing(arguments, batch_size=None)
    options = parse(arguments, argv)
    if options.batch_size is None:
        own = options.name in ("training", "scaling", "precision")
        options.batch_size = 0 if own else 16
    rows = MEASURES[options.name](options)
    where = machine(options.device)
    if not options.quiet:
        batch = f"batch {options.batch_size}" if options.batch_size else "batches of the presets"
        print(f"{options.preset}, {batch}, {where['device']}")
    for cells in [list(rows[0]), *(list(row.values()) for row in rows)]:
        print("  ".join(f"{cell:>16}" for cell in cells))
    if options.out:
        setting = {"preset": options.preset, "batch_size": options.batch_size}
        command = {"command": f"macow bench {shlex.join(argv)}"}
        _write(Path(options.out), [{**row, **setting, **where, **command} for row in rows])


def _inverse(options: Namespace) -> list[dict[str, str]]:
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


def _data(options: Namespace) -> list[dict[str, str]]:
    if not options.data:
        raise ValueError("bench data: --data is missing, as in --data cifar10:PATH")
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


def _of_presets(measure: Callable[..., Cost], options: Namespace, *more: object) -> Iterator[Cost]:
    common = (options.batch_size, options.repeats, options.device, options.seed)
    return (measure(name, *common, *more) for name in options.preset.split(","))


def _sampling(options: Namespace) -> list[dict[str, str]]:
    rows = []
    for cost in _of_presets(sampling.measure, options, options.other_batches or ()):
        with_snapshot = cost.ms_per_image + 1e3 * cost.snapshot_s / options.batch_size
        rows.append(
            {
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
        )
    return rows


def _training(options: Namespace) -> list[dict[str, str]]:
    costs = _of_presets(training.measure, options, options.precision)
    return [_training_row(cost, options) for cost in costs]


def _scaling(options: Namespace) -> list[dict[str, str]]:
    common = (options.batch_size, options.repeats, options.device, options.seed, options.precision)
    costs = scaling.measure_all(options.preset, *common)
    return [_training_row(cost, options) for cost in costs]


def _precision(options: Namespace) -> list[dict[str, str]]:
    if not options.data:
        raise ValueError("bench precision: --data is missing, as in --data cifar10:PATH")
    common = (options.batch_size, options.repeats, options.device, options.seed)
    return [
        {
            "precision": learnt.precision,
            "images": str(learnt.batch_size),
            "updates": str(options.repeats),
            "training_bits": f"{learnt.training:.4f}",
            "skipped": str(learnt.skipped),
            "test_bits": f"{learnt.test:.4f}",
            "test_bits_own": f"{learnt.test_own:.4f}",
        }
        for learnt in precision.measure(options.data, options.preset, *common)
    ]


def _anomaly(options: Namespace) -> list[dict[str, str]]:
    if not options.data or not options.photos:
        raise ValueError("bench anomaly: --data or --photos is missing")
    options.preset = options.model
    found = anomaly.measure(
        options.model,
        options.data,
        Path(options.photos),
        options.batch_size,
        options.device,
        options.seed,
    )
    rows = []
    for one in found:
        rows.append(
            {
                "kind": one.kind,
                "images": str(one.images),
                "bits": f"{one.bits_per_dim:.3f}",
                "likelihood": f"{one.likelihood:.3f}",
                "typicality": f"{one.typicality:.3f}",
                "corrected": f"{one.corrected:.3f}",
            }
        )
        print("  ".join(rows[-1].values()), file=sys.stderr, flush=True)
    return rows


def _training_row(cost: training.TrainingCost, options: Namespace) -> dict[str, str]:
    row = {
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
    print("  ".join(row.values()), file=sys.stderr, flush=True)  # the next one may take a while
    return row


def _save(options: Namespace) -> list[dict[str, str]]:
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


def _soak(options: Namespace) -> list[dict[str, str]]:
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


def _serve(options: Namespace) -> list[dict[str, str]]:
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
    "anomaly": _anomaly,
    "save": _save,
    "soak": _soak,
    "serve": _serve,
}


def _write(path: Path, rows: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"written to {path}", file=sys.stderr)
