"""`macow score`: what a model makes of image files, one row each."""

import csv
import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from jsonargparse import Namespace
from tqdm import tqdm

from macow import data
from macow.cli.parsing import add_label, load_given, model_parser, parse
from macow.cli.reference import chosen_reference
from macow.data.folder import files_below
from macow.distribution import count, in_order, is_first, joined, mine
from macow.model import FlowModel
from macow.score import Reference, Score, score

DESCRIPTION = """Scores images, or all images of folders, one row each as CSV, or as JSON lines if
--out ends in .jsonl: bits_per_dim; log_prior and log_det, which it is made of; codec_bits_per_dim,
what lossless WebP takes; corrected, the difference, surprise that complexity does not explain;
percentile and typicality against the model's reference.json or --reference SOURCE. A file that is
no usable image is a row with its error. Known and true of all such models: images of another kind
can cost *fewer* bits than those it was trained on. Read typicality and corrected beside
bits_per_dim.
Example: macow score digits my_images --out scores.csv"""
COLUMNS = ["file", *(field.name for field in fields(Score)), "error"]


def run(argv: Sequence[str]) -> None:
    """Streams the files through the model."""
    arguments = model_parser("score", "PATH... [options]", DESCRIPTION, batch_size=64)
    arguments.add_argument("paths", nargs="+", help="image files, or folders of them")
    arguments.add_argument("--out", default=None, type=str, help="file to write; default: print")
    arguments.add_argument("--reference", help="a source whose test images to compare with")
    add_label(arguments)
    options = parse(arguments, argv)
    paths = [Path(path) for path in options.paths]
    if missing := [path for path in paths if not path.exists()]:
        raise ValueError(f"{missing[0]}: no such file or folder")
    with joined(options.device) as device:
        model = load_given(options, device)
        reference = chosen_reference(model, options)
        rows = _rows(model, paths, options, reference)
        if count() > 1:
            rows = iter(in_order([*rows]))
        if is_first():
            _write_all(rows, options, known=reference is not None)


def _rows(
    model: FlowModel, paths: list[Path], options: Namespace, reference: Reference | None
) -> Iterator[list[dict[str, Any]]]:
    """The rows of one batch of files after the other; processes share the batches."""
    files = [file for path in paths for file in (files_below(path) if path.is_dir() else [path])]
    size = options.batch_size
    batches = mine([files[i : i + size] for i in range(0, len(files), size)])
    hidden = True if options.quiet or not is_first() else None
    for batch in tqdm(batches, unit=" batches", disable=hidden):
        yield _scored(model, [*data.each_image(batch, model.shape)], options.seed, reference)


def _scored(
    model: FlowModel,
    items: list[tuple[Path, np.ndarray | str]],
    seed: int,
    reference: Reference | None,
) -> list[dict[str, Any]]:
    images = [image for _, image in items if not isinstance(image, str)]
    scores: Iterator[Score] = iter(())
    try:
        if images:
            batch = torch.from_numpy(np.stack(images)).to(model.device)
            scores = iter(score(model, batch, seed=seed, reference=reference))
    except FloatingPointError as error:
        reasons = ((path, image if isinstance(image, str) else error) for path, image in items)
        return [{"file": str(path), "error": str(reason)} for path, reason in reasons]
    return [
        {"file": str(path), "error": image}
        if isinstance(image, str)
        else {"file": str(path), **_row(next(scores))}
        for path, image in items
    ]


def _row(found: Score) -> dict[str, Any]:
    if not math.isfinite(found.bits_per_dim):
        return {
            "error": "its likelihood is not finite: macow check says whether the model is sound"
        }
    return asdict(found)


def _write_all(rows: Iterator[list[dict[str, Any]]], options: Namespace, *, known: bool) -> None:
    with ExitStack() as stack:
        out: IO[str] = sys.stdout
        if options.out:
            out = stack.enter_context(
                Path(options.out).open("w", newline="", errors="backslashreplace")
            )
        good, bad = _write(chain.from_iterable(rows), out, as_json=_is_json(options.out))
    if not options.quiet:
        note = "" if known else "; no reference: percentiles need --reference SOURCE"
        print(f"{good} images scored, {bad} could not be{note}", file=sys.stderr)


def _is_json(out: str | None) -> bool:
    return out is not None and out.endswith(".jsonl")


def _write(rows: Iterator[dict[str, Any]], out: IO[str], *, as_json: bool) -> tuple[int, int]:
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    if not as_json:
        writer.writeheader()
    good = bad = 0
    for row in rows:
        if as_json:
            out.write(json.dumps(row) + "\n")
        else:
            writer.writerow(row)
        bad += "error" in row
        good += "error" not in row
    return good, bad
