"""`macow encode`: images to latents."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from macow import data
from macow.cli.parsing import add_label, load_given, model_parser, parse
from macow.latents import round_trip_failures

DESCRIPTION = """Writes the latents of images as an npz: `latents` [N, C, H, W] and their `names`.
Each image is decoded again as it is encoded; one that does not come back byte for byte is named.
Example: macow encode digits my_images --out latents.npz"""


def run(argv: Sequence[str]) -> int:
    """Encodes, verifies, writes; 1 if an image failed."""
    arguments = model_parser(
        "encode", "PATH... --out FILE.npz [options]", DESCRIPTION, batch_size=64
    )
    arguments.add_argument("paths", nargs="+", help="image files, or folders of them")
    arguments.add_argument("--out", default="latents.npz", help="the file to write")
    add_label(arguments)
    options = parse(arguments, argv)
    model = load_given(options, options.device)
    names, images, failures = [], [], []
    for path, image in data.each_image(map(Path, options.paths), model.shape):
        if isinstance(image, str):
            failures.append(f"{path}: {image}")
        else:
            names.append(str(path))
            images.append(image)
    if not images:
        raise ValueError(failures[0] if failures else "encode: no images")
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    latents = []
    hidden = True if options.quiet else None
    for start in tqdm(range(0, len(images), options.batch_size), unit=" batches", disable=hidden):
        batch = torch.from_numpy(np.stack(images[start : start + options.batch_size]))
        batch = batch.to(model.device)
        z = model.encode(batch)
        latents.append(z.cpu().numpy())
        for i in round_trip_failures(model, batch, z):
            failures.append(f"{names[start + i]}: does not come back from its latents")
    temporary = f"{options.out}.part"
    with open(temporary, "wb") as file:
        np.savez(file, latents=np.concatenate(latents), names=np.array(names))
    os.replace(temporary, options.out)
    for line in failures:
        print(line, file=sys.stderr)
    if not options.quiet:
        print(f"{options.out}: {len(names)} latents, {len(failures)} files failed", file=sys.stderr)
    return 1 if failures else 0
