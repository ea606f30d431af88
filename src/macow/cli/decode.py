"""`macow decode`: latents to images."""

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from macow.cli.parsing import add_label, load_given, model_parser, parse
from macow.pictures import picture

DESCRIPTION = """Writes the images of latents that `macow encode` wrote, or of any npz with
`latents` [N, C, H, W], as PNGs under the names they came from.
Example: macow decode digits latents.npz --out images"""


def run(argv: Sequence[str]) -> None:
    """Decodes batch by batch."""
    arguments = model_parser("decode", "FILE.npz --out DIR [options]", DESCRIPTION, batch_size=64)
    arguments.add_argument("latents", help="the npz file")
    arguments.add_argument("--out", default="decoded", help="the folder to write")
    add_label(arguments)
    options = parse(arguments, argv)
    model = load_given(options, options.device)
    latents, names = _read(Path(options.latents))
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(latents), options.batch_size):
        z = torch.from_numpy(latents[start : start + options.batch_size])
        images = model.decode(z.to(model.device, model.dtype)).cpu().numpy()
        for i, image in enumerate(images, start):
            stem = f"_{Path(names[i]).stem}" if names else ""
            picture(image).save(out / f"{i:05d}{stem}.png")
    if not options.quiet:
        print(f"{out}: {len(latents)} images")


def _read(path: Path) -> tuple[np.ndarray, list[str]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = archive["names"].tolist() if "names" in archive else []
            return archive["latents"], names
    except (ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"{path} is not an npz of latents: {error}") from None
