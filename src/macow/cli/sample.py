"""`macow sample`: new images from a model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jsonargparse import Namespace
from tqdm import tqdm

from macow.cli.parsing import add_label, load_given, model_parser, parse, positive
from macow.distribution import gathered, in_order, is_first, joined, mine
from macow.documents import read_yaml
from macow.pictures import grid, picture
from macow.pretrained import find
from macow.sampler import Sampler

DESCRIPTION = """Draws images: grid.png, one PNG each, and with --npz all in samples.npz as arr_0
[N, H, W, C]. Picture number n depends on --seed and --temperature alone, not on how many are drawn.
Labels of a conditional model take turns, a column for each, unless --label chooses one. Several
temperatures, as in 0.7,0.8,1.0, give the same latents at each, a row in grid.png for each.
Example: macow sample digits --count 64 --temperature 0.8 --out samples"""
IN_GRID = 256


def run(argv: Sequence[str]) -> None:
    """Draws, shows and writes."""
    arguments = model_parser("sample", "[options]", DESCRIPTION, batch_size=64)
    arguments.add_argument("--count", type=positive, default=64, help="images a temperature")
    arguments.add_argument(
        "--temperature", type=str, default=None, help="one, or several; default: the run's"
    )
    arguments.add_argument("--out", default="samples", help="the folder to write")
    arguments.add_argument("--npz", action="store_true", help="also write samples.npz")
    add_label(arguments)
    options = parse(arguments, argv)
    sweep = _temperatures(options.temperature or usual_temperature(find(options.model)))
    with joined(options.device) as device:
        model = load_given(options, device, any_label=True)
        sampler = model.sampler()
        out = Path(options.out)
        out.mkdir(parents=True, exist_ok=True)
        images = [_draw(sampler, options, t, out, many=len(sweep) > 1) for t in sweep]
        again = sum(gathered(sampler.drawn_again))
        if is_first():
            _show(images, out, options, len(model.labels) or None)
            if again and not options.quiet:
                print(f"repeated draws that led to no image: {again}")


def usual_temperature(folder: Path) -> str:
    """The temperature a run was configured with."""
    file = folder / "config.yaml"
    document = read_yaml(file) if file.exists() else {}
    found: Any = document.get("temperature", 1.0) if isinstance(document, dict) else None
    if type(found) not in (int, float) or not 0 <= found < float("inf"):
        raise ValueError(f"{file}: temperature must be a number >= 0")
    return str(found)


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
    sampler: Sampler, options: Namespace, temperature: float, out: Path, *, many: bool
) -> np.ndarray:
    """Draws all images of one temperature, each written as it comes; processes share batches."""
    prefix = f"t{temperature:g}_" if many else ""
    drawn: list[np.ndarray] = []
    starts = mine(range(0, options.count, options.batch_size))
    hidden = True if options.quiet or not is_first() else None
    for start in tqdm(starts, desc=f"temperature {temperature:g}", unit=" batches", disable=hidden):
        numbers = range(start, min(start + options.batch_size, options.count))
        batch = sampler.numbered(numbers, temperature, options.seed).cpu().numpy()
        for number, image in zip(numbers, batch, strict=True):
            picture(image).save(out / f"{prefix}{number:05d}.png")
        drawn.append(batch)
    return np.concatenate(in_order(drawn))


def _show(images: list[np.ndarray], out: Path, options: Namespace, in_turn: int | None) -> None:
    """The grid, a row for each temperature or a column for each label; the npz if asked for."""
    columns = min(options.count, 16) if len(images) > 1 else in_turn
    each = columns if len(images) > 1 else IN_GRID
    shown = np.concatenate([some[:each] for some in images])
    grid(shown, columns).save(out / "grid.png")
    if options.npz:
        np.savez_compressed(out / "samples.npz", np.concatenate(images).transpose(0, 2, 3, 1))
    if not options.quiet:
        print(f"{out / 'grid.png'}: {len(shown)} of {options.count * len(images)} samples")
