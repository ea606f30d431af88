"""`macow decode`: latents to images."""

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from macow.cli.parsing import add_label, load_given, model_parser, parse
from macow.data.arrays import npz_member
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
    path, out = Path(options.latents), Path(options.out)
    latents, names = _read(path)
    out.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(latents), options.batch_size):
        z = torch.from_numpy(latents[start : start + options.batch_size].astype(np.float64))
        try:
            images = model.decode(z.to(model.device, model.dtype)).cpu().numpy()
        except (ValueError, ArithmeticError) as error:
            raise type(error)(f"{path}: {error}") from None
        for i, image in enumerate(images, start):
            stem = re.sub(r"[^\w.-]", "_", f"_{Path(names[i]).stem}")[:100] if names else ""
            picture(image).save(out / f"{i:05d}{stem}.png")
    if not options.quiet:
        print(f"{out}: {len(latents)} images")


def _read(path: Path) -> tuple[np.ndarray, list[str]]:
    latents = npz_member(path, "latents")
    if latents.ndim != 4 or latents.dtype.kind != "f":
        found = f"{latents.dtype} of shape {list(latents.shape)}"
        raise ValueError(f"{path}: latents must be numbers [N, C, H, W], got {found}")
    with zipfile.ZipFile(path) as archive:
        named = "names.npy" in archive.namelist()
    if not named:
        return latents, []
    names = npz_member(path, "names")
    if names.dtype.kind != "U" or names.shape != (len(latents),):
        raise ValueError(f"{path}: names must be {len(latents)} texts, one an image")
    return latents, names.tolist()
