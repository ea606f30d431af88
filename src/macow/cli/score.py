"""`macow score`: what a model makes of image files, one row each."""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from tqdm import tqdm

from macow import data
from macow.cli.parsing import add_computing, parse, parser
from macow.model import FlowModel
from macow.pretrained import find, load
from macow.score import Reference, Score, make_reference, score

DESCRIPTION = """Scores images, or all images of folders, one row each as CSV, or as JSON lines if
--out ends in .jsonl: bits_per_dim; log_prior and log_det, which it is made of; codec_bits_per_dim,
what PNG takes; corrected, the difference, surprise that complexity does not explain; percentile and
typicality against the model's reference.json or --reference SOURCE. A file that is no usable image
is a row with its error. Known and true of all such models: images of another kind can cost *fewer*
bits than those it was trained on. Read percentile and corrected beside bits_per_dim.
Example: macow score digits my_images --out scores.csv"""
COLUMNS = ["file", *(field.name for field in fields(Score)), "error"]


def run(argv: Sequence[str]) -> None:
    """Streams the files through the model."""
    arguments = parser("score", "MODEL PATH... [options]", DESCRIPTION)
    arguments.add_argument("model", help="a run or model folder, or a shipped name")
    arguments.add_argument("paths", nargs="+", help="image files, or folders of them")
    arguments.add_argument("--out", default=None, type=str, help="file to write; default: print")
    arguments.add_argument("--reference", help="a source whose test images to compare with")
    add_computing(arguments, batch_size=64)
    options = parse(arguments, argv)
    model = load(options.model, options.device)
    reference = Reference.beside(find(options.model))
    if options.reference:
        images = data.load(options.reference, "test", model.shape)
        reference = make_reference(model, images, batch_size=options.batch_size, seed=options.seed)
    paths = [Path(path) for path in options.paths]
    if missing := [path for path in paths if not path.exists()]:
        raise ValueError(f"{missing[0]}: no such file or folder")
    rows = _rows(model, paths, options.batch_size, options.seed, reference)
    with ExitStack() as stack:
        out: IO[str] = sys.stdout
        if options.out:
            out = stack.enter_context(Path(options.out).open("w", newline=""))
        count, bad = _write(rows, out, as_json=str(options.out).endswith(".jsonl"))
    if not options.quiet:
        note = "" if reference else "; no reference: percentiles need --reference SOURCE"
        print(f"{count} images scored, {bad} could not be read{note}", file=sys.stderr)


def _rows(
    model: FlowModel, paths: list[Path], batch_size: int, seed: int, reference: Reference | None
) -> Iterator[dict[str, Any]]:
    """Rows in the order of the files; images wait until they fill a batch."""
    waiting: list[tuple[Path, np.ndarray | str]] = []
    for item in tqdm(data.each_image(paths, model.shape), unit=" files", disable=None):
        waiting.append(item)
        if sum(not isinstance(image, str) for _, image in waiting) == batch_size:
            yield from _scored(model, waiting, seed, reference)
            waiting = []
    yield from _scored(model, waiting, seed, reference)


def _scored(
    model: FlowModel,
    items: list[tuple[Path, np.ndarray | str]],
    seed: int,
    reference: Reference | None,
) -> Iterator[dict[str, Any]]:
    images = [image for _, image in items if not isinstance(image, str)]
    scores: Iterator[Score] = iter(())
    if images:
        batch = torch.from_numpy(np.stack(images)).to(model.device)
        scores = iter(score(model, batch, seed=seed, reference=reference))
    for path, image in items:
        if isinstance(image, str):
            yield {"file": str(path), "error": image}
        else:
            yield {"file": str(path), **asdict(next(scores))}


def _write(rows: Iterator[dict[str, Any]], out: IO[str], *, as_json: bool) -> tuple[int, int]:
    writer = csv.DictWriter(out, COLUMNS)
    if not as_json:
        writer.writeheader()
    count = bad = 0
    for row in rows:
        if as_json:
            out.write(json.dumps(row) + "\n")
        else:
            writer.writerow(row)
        bad += "error" in row
        count += "error" not in row
    return count, bad
