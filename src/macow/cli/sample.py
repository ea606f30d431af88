"""`macow sample`: new images from a model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jsonargparse import Namespace
from tqdm import tqdm

from macow.cli.parsing import add_computing, parse, parser, positive
from macow.model import FlowModel
from macow.pictures import grid, picture
from macow.pretrained import load
from macow.sampler import sample_batches

DESCRIPTION = """Draws images: grid.png, one PNG each, and with --npz all in samples.npz as arr_0
[N, H, W, C]. Picture number n depends on --seed and --temperature alone, not on how many are drawn.
Several temperatures, as in 0.7,0.8,1.0, give the same latents at each, a row in grid.png for each.
Example: macow sample digits --count 64 --temperature 0.8 --out samples"""
IN_GRID = 256


def run(argv: Sequence[str]) -> None:
    """Draws, shows and writes."""
    arguments = parser("sample", "MODEL [options]", DESCRIPTION)
    arguments.add_argument("model", help="a run or model folder, or a shipped name")
    arguments.add_argument("--count", type=positive, default=64, help="images a temperature")
    arguments.add_argument("--temperature", type=str, default="1.0", help="one, or several")
    arguments.add_argument("--out", default="samples", help="the folder to write")
    arguments.add_argument("--npz", action="store_true", help="also write samples.npz")
    add_computing(arguments, batch_size=64)
    options = parse(arguments, argv)
    sweep = _temperatures(options.temperature)
    model = load(options.model, options.device)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    with tqdm(
        total=options.count * len(sweep), unit=" images", disable=True if options.quiet else None
    ) as bar:
        for temperature in sweep:
            prefix = f"t{temperature:g}_" if len(sweep) > 1 else ""
            rows.append(_draw(model, options, temperature, out, prefix, bar))
    columns = min(options.count, 16) if len(sweep) > 1 else None
    shown = np.concatenate([row[: columns or IN_GRID] for row in rows])
    grid(shown, columns).save(out / "grid.png")
    if options.npz:
        np.savez_compressed(out / "samples.npz", np.concatenate(rows).transpose(0, 2, 3, 1))
    if not options.quiet:
        print(f"{out / 'grid.png'}: {len(shown)} of {options.count * len(sweep)} samples")


def _temperatures(text: str) -> list[float]:
    """Reads `0.8` or `0.7,0.8,1.0`."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = [-1.0]
    if not all(0 <= value < float("inf") for value in found):
        raise ValueError(f"sample: --temperature must be numbers >= 0, as in 0.7,1.0, got {text!r}")
    return found


def _draw(
    model: FlowModel, options: Namespace, temperature: float, out: Path, prefix: str, bar: Any
) -> np.ndarray:
    """Draws all images of one temperature and writes each as it comes."""
    drawn: list[np.ndarray] = []
    for batch in sample_batches(
        model,
        options.count,
        temperature=temperature,
        seed=options.seed,
        batch_size=options.batch_size,
    ):
        for image in batch.numpy():
            picture(image).save(out / f"{prefix}{len(drawn):05d}.png")
            drawn.append(image)
        bar.update(len(batch))
    return np.stack(drawn)
