"""`macow data`: look at a source of images, or pack it for fast training."""

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import get_args

import numpy as np

from macow import data, files
from macow.cli.parsing import parse, parser, size
from macow.data.images import readable

DESCRIPTION = """Looks at a source of images, or packs it: `info SOURCE` counts its images and names
what cannot be used; `pack SOURCE DIR --size 64,64` writes train.npy and test.npy, which packed:DIR
maps into memory. Sources: """ + "; ".join(what for _, what in data.SOURCES.values())


def run(argv: Sequence[str]) -> None:
    """Runs `info` or `pack`."""
    arguments = parser("data", "info SOURCE | pack SOURCE DIR [options]", DESCRIPTION)
    arguments.add_argument("action", choices=["info", "pack"], help="what to do")
    arguments.add_argument("source", help="digits, cifar10:PATH, folder:PATH, ...")
    arguments.add_argument("out", nargs="?", help="the folder to pack into")
    arguments.add_argument("--size", help="HEIGHT,WIDTH to fit images to; default: as they are")
    arguments.add_argument("--channels", type=int, choices=[1, 3], help="with --size; default: 3")
    options = parse(arguments, argv)
    if options.channels and not options.size:
        raise ValueError(f"data {options.action}: --channels needs --size")
    shape = (options.channels or 3, *size(options.size)) if options.size else None
    if options.action == "pack" and not options.out:
        raise ValueError("data pack: which folder? macow data pack SOURCE DIR --size 64,64")
    for split in get_args(data.Split):
        images = data.load(options.source, split, shape)
        for line in images.problems:
            print(f"left out {line}")
        dims = "x".join(map(str, images.shape))
        left_out = f", {len(images.problems)} left out" if images.problems else ""
        print(f"{split}: {len(images):,} images of {dims}{left_out}")
        if images.labels is not None:
            counts = np.bincount(images.labels, minlength=len(images.label_names))
            each = zip(images.label_names, counts, strict=True)
            print(f"  labels: {', '.join(f'{name} ({n:,})' for name, n in each)}")
        if options.action == "pack":
            _pack(images, Path(options.out), split)


def _pack(images: data.Images, folder: Path, split: str) -> None:
    """Writes the images that can be read; the others are named."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary, target = folder / f".{split}.npy", folder / f"{split}.npy"
    good: list[int] = []
    with tempfile.TemporaryFile(dir=folder) as rows:
        for index, image in readable(images, f"packing {split}"):
            if isinstance(image, str):
                print(f"left out {image}")
            else:
                rows.write(image.tobytes())
                good.append(index)
        with temporary.open("wb") as file:
            shape = (len(good), *images.shape)
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            rows.seek(0)
            shutil.copyfileobj(rows, file, 1 << 24)
    labels = folder / f"{split}_labels.npy"
    for old in (labels, labels.with_suffix(".json")):
        old.unlink(missing_ok=True)  # never those of other images
    os.replace(temporary, target)
    if images.labels is not None:
        files.write(labels.with_suffix(".json"), json.dumps(images.label_names) + "\n")
        numbers = BytesIO()
        np.save(numbers, images.labels[good])
        files.write(labels, numbers.getvalue())
    print(f"written to {target}: {len(good):,} images")
