"""`macow bench NAME`: measurements anyone can run on their machine."""

import csv
import io
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from macow import files
from macow.bench.machine import machine
from macow.cli.measurements import MEASURES
from macow.cli.parsing import add_computing, parse, parser, positive

DESCRIPTION = """Measures, and writes the result as CSV where asked to. `inverse`: what the inverse
of a preset costs beside its forward pass, and that beside the same layers in plain eager torch.
`data`: what reading and augmenting images costs beside a training step (needs --data). `sampling`:
what drawing an image costs and loses, of one preset or several (--preset cifar10,glow-cifar10).
`training`: images a second and memory of whole updates, with gradients clipped and weights
averaged, also of several presets; their own batch sizes unless one is given. `scaling`: the same of
a preset, and of it with half and twice the depth and width and with larger images. `precision`:
whether --repeats updates in bfloat16 learn what they do in float32 (needs --data). `learning`: what
presets, or models of files (--preset cifar10,mine.yaml), changed by --config, learn of --data in
--minutes, from --repeats seeds each. `anomaly`:
how well the scores of --model tell its own kind of images (--data) from others, among them crops of
--photos, a folder of photographs.
`save`: what a checkpoint takes out of training. All times are medians. `soak`: whether a small
run that is killed, damaged and resumed --repeats times is still the run it would have been, on this
machine and its disk. `serve`: what one page waits for 64 pictures, and what 50 clients at once get,
--repeats requests each."""


def run(argv: Sequence[str]) -> None:
    """Runs a measurement, prints its table and writes it."""
    arguments = parser("bench", f"{'|'.join(MEASURES)} [options]", DESCRIPTION)
    arguments.add_argument("name", choices=[*MEASURES], help="which measurement")
    arguments.add_argument(
        "--preset", default="cifar10", help="of which configuration, or several: a,b"
    )
    arguments.add_argument("--model", default="cifar10-small", help="for `anomaly`")
    arguments.add_argument(
        "--data", help="source of images: `data`, `precision`, `learning`, `anomaly`"
    )
    arguments.add_argument("--config", help="YAML file that changes presets, for `learning`")
    arguments.add_argument("--minutes", type=float, default=2.0, help="of each run of `learning`")
    arguments.add_argument(
        "--num_samples", type=positive, default=1, help="draws of test images' noise: `learning`"
    )
    arguments.add_argument("--photos", help="folder of photographs, for `anomaly`")
    arguments.add_argument(
        "--other_batches", type=list[int], help="further sizes of batch for `sampling`: [200, 400]"
    )
    arguments.add_argument(
        "--precision",
        choices=["float32", "bfloat16"],
        default="bfloat16",
        help="what networks compute in, for `training` and `scaling`; else as configured",
    )
    arguments.add_argument(
        "--repeats", type=positive, default=7, help="passes of each kind; seeds of `learning`"
    )
    arguments.add_argument("--out", default=None, type=str, help="CSV file to write")
    add_computing(arguments, batch_size=None)
    options = parse(arguments, argv)
    if options.batch_size is None:
        own = options.name in ("training", "scaling", "precision", "learning")
        options.batch_size = 0 if own else 16
    where = machine(options.device)
    with _Table(Path(options.out)) if options.out else nullcontext() as table:
        for number, row in enumerate(MEASURES[options.name](options)):
            if table is not None:
                setting = {"preset": options.preset, "batch_size": options.batch_size}
                command = {"command": f"macow bench {shlex.join(argv)}"}
                table.add({**row, **setting, **where, **command})
            if not (number or options.quiet):
                batch = f"batch {options.batch_size or 'of the preset'}"
                print(f"{options.preset}, {batch}, {where['device']}")
            for cells in [row.values()] if number else [row, row.values()]:
                print("  ".join(f"{cell:>16}" for cell in cells), flush=True)


class _Table:
    """A CSV file; until all rows are there, those so far are in a file beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, str]] = []
        self.beside = path.with_name(f"{path.name}.partial")
        if path.is_dir():
            raise ValueError(f"bench: --out {path} is a folder, a CSV file is wanted")
        if self.beside.is_file() and self.beside.stat().st_size:
            raise ValueError(f"bench: {self.beside} holds the rows of an earlier run: move it")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.lasting = path.is_file() or not path.exists()  # not a device or a pipe
        if self.lasting:
            files.write(self.beside, "")  # if it cannot be, better now than hours later

    def add(self, row: dict[str, str]) -> None:
        self.rows.append(row)
        if self.lasting:
            files.write(self.beside, self._text())

    def __enter__(self) -> "_Table":
        return self

    def __exit__(self, problem: type[BaseException] | None, *_: object) -> None:
        if problem is None:
            self.path.write_text(self._text())
            print(f"written to {self.path}", file=sys.stderr)
        if self.lasting and (problem is None or not self.rows):
            self.beside.unlink()

    def _text(self) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, self.rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()
