"""`macow bench NAME`: measurements anyone can run on their machine."""

import csv
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from jsonargparse.typing import PositiveInt

from macow.bench.inverse import measure
from macow.bench.machine import machine
from macow.cli.parsing import add_computing, parse, parser


def run(argv: Sequence[str]) -> None:
    """Runs a measurement, prints its table and writes it as CSV where asked to."""
    arguments = parser(
        "bench",
        "Measures. `inverse`: what the inverse of a preset costs beside its forward pass, and the "
        "forward pass beside the same layers in plain eager torch; medians of interleaved passes.",
    )
    arguments.add_argument("name", choices=["inverse"], help="which measurement")
    arguments.add_argument("--preset", default="cifar10", help="of which configuration")
    arguments.add_argument("--repeats", type=PositiveInt, default=7, help="passes of each kind")
    arguments.add_argument("--out", default=None, type=str, help="CSV file to write")
    add_computing(arguments, batch_size=16)
    options = parse(arguments, argv)
    cost = measure(
        options.preset, options.batch_size, options.repeats, options.device, options.seed
    )
    where = machine(options.device)
    rows = [
        {
            "pass": timing.name,
            "wall_s": f"{timing.wall:.4f}",
            "cpu_s": f"{timing.cpu:.4f}",
            "wall_to_forward": f"{timing.wall / cost.forward.wall:.3f}",
            "cpu_to_forward": f"{timing.cpu / cost.forward.cpu:.3f}",
            "round_trip_error": f"{cost.round_trip_error:.2e}" if timing.name == "inverse" else "",
        }
        for timing in (cost.forward, cost.plain, cost.inverse)
    ]
    if not options.quiet:
        threads = f"{where['threads']} threads" if options.device == "cpu" else "one GPU"
        print(f"{options.preset}, batch {options.batch_size}, {where['device']}, {threads}")
    for cells in [list(rows[0]), *(list(row.values()) for row in rows)]:
        print("  ".join(f"{cell:>16}" for cell in cells))
    if options.out:
        command = "macow bench " + shlex.join(argv)
        context = {
            "preset": options.preset,
            "batch_size": options.batch_size,
            **where,
            "command": command,
        }
        _write(Path(options.out), [{**row, **context} for row in rows])


def _write(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    print(f"written to {path}", file=sys.stderr)
