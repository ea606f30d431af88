"""`macow interpolate`: a film from one image to another, or along an attribute."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from jsonargparse import Namespace
from torch import Tensor

from macow import data
from macow.cli.parsing import add_label, load_given, model_parser, parse, positive, temperature
from macow.latents import decoded, interpolate, line, mean_latent
from macow.model import FlowModel
from macow.pictures import film, grid

DESCRIPTION = """Walks between the latents of two images, or of samples written as sample:NUMBER, on
an arc that keeps its distance from the origin, and writes a film (.webp or .gif) and beside it
FILM_strip.png. With one image and --toward and --away, two folders, it walks straight along what
their mean latents differ in, from -strength to +strength. Examples:
macow interpolate digits a.png b.png --out film.webp;
macow interpolate MODEL face.png --toward smiling --away serious --strength 1.5"""


def run(argv: Sequence[str]) -> None:
    """Finds the two ends and draws what lies between."""
    arguments = model_parser(
        "interpolate", "A [B] --out FILM [options]", DESCRIPTION, batch_size=64
    )
    arguments.add_argument("ends", nargs="+", help="one or two images, or sample:NUMBER")
    arguments.add_argument("--out", default="film.webp", help="the film to write")
    arguments.add_argument("--frames", type=positive, default=24, help="pictures of the film")
    arguments.add_argument("--temperature", type=temperature, default=1.0, help="of samples")
    arguments.add_argument("--toward", help="folder of images that have the attribute")
    arguments.add_argument("--away", help="folder of images that lack it")
    arguments.add_argument("--strength", type=float, default=1.0, help="of the attribute")
    add_label(arguments)
    options = parse(arguments, argv)
    out = Path(options.out)
    strip = out.with_name(f"{out.stem}_strip.png")
    if out.suffix not in (".webp", ".gif"):
        raise ValueError(f"interpolate: --out must end in .webp or .gif, got {out.name}")
    if bool(options.toward) != bool(options.away) or len(options.ends) != (
        1 if options.toward else 2
    ):
        raise ValueError("interpolate: give two images, or one with --toward and --away")
    for end in options.ends:
        if Path(end).resolve() in (out.resolve(), strip.resolve()):
            raise ValueError(f"interpolate: {end} would be overwritten, choose another --out")
    model = load_given(options, options.device)
    ends = [_latent(model, end, options) for end in options.ends]
    if options.toward:
        direction = _mean(model, options.toward, options) - _mean(model, options.away, options)
        step = options.strength * direction
        images = decoded(model, line(ends[0] - step, ends[0] + step, options.frames))
    else:
        images = interpolate(model, ends[0], ends[1], options.frames)
    frames = images.cpu().numpy()
    out.parent.mkdir(parents=True, exist_ok=True)
    film(frames, out)
    grid(frames[np.linspace(0, len(frames) - 1, min(len(frames), 12)).astype(int)], 12).save(strip)
    if not options.quiet:
        print(f"{out}: {len(frames)} frames; {strip}: a strip of them")
        if lost := options.frames - len(frames):
            print(f"left out, as their latents lead to no image: {lost}")


def _latent(model: FlowModel, end: str, options: Namespace) -> Tensor:
    if end.startswith("sample:"):
        number = end.removeprefix("sample:")
        if not number.isdecimal():
            raise ValueError(f"interpolate: a sample is sample:NUMBER, got {end}")
        sampler = model.sampler()
        _, z = sampler.numbered_with_latents([int(number)], options.temperature, options.seed)
        return z[0].to(model.device, model.dtype)
    image = next(_images(model, Path(end), 1))
    return model.encode(image)[0]


def _mean(model: FlowModel, folder: str, options: Namespace) -> Tensor:
    return mean_latent(model, _images(model, Path(folder), options.batch_size))


def _images(model: FlowModel, path: Path, batch_size: int) -> Iterator[Tensor]:
    """The images of a file or folder, batch by batch; one that is none is a mistake."""
    waiting: list[np.ndarray] = []
    for file, image in data.each_image([path], model.shape):
        if isinstance(image, str):
            raise ValueError(f"{file}: {image}")
        waiting.append(image)
        if len(waiting) == batch_size:
            yield torch.from_numpy(np.stack(waiting)).to(model.device)
            waiting = []
    if waiting:
        yield torch.from_numpy(np.stack(waiting)).to(model.device)
