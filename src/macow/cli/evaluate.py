"""`macow evaluate`: how many bits a set of images costs."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict

from macow import data
from macow.cli.parsing import model_parser, natural, parse, positive
from macow.distribution import is_first, joined
from macow.evaluate import evaluate
from macow.pretrained import load

DESCRIPTION = """Scores the images of a source: bits per dimension with the standard error of the
mean, averaged over the draws of the noise (Monte Carlo) and, with several draws an image, as the
tighter importance-weighted bound. With --lean uniform noise leans where the density rises, which
makes both tighter for nearly all images; it takes two gradients and their memory. A conditional
model is given the images' labels, and its figure is also shown label by label; --json has that for
any labelled source.
Example: macow evaluate digits --data digits --num_samples 16"""


def run(argv: Sequence[str]) -> None:
    """Prints the figures, as lines or as JSON."""
    arguments = model_parser("evaluate", "--data SOURCE [options]", DESCRIPTION, batch_size=64)
    arguments.add_argument("--data", required=True, help="digits, cifar10:PATH, folder:PATH, ...")
    arguments.add_argument("--split", choices=["train", "test"], default="test", help="of the data")
    arguments.add_argument("--num_samples", type=positive, default=1, help="draws an image")
    arguments.add_argument("--lean", action="store_true", help="noise leans where density rises")
    arguments.add_argument("--limit", type=natural, default=0, help="first so many images; 0: all")
    arguments.add_argument("--json", action="store_true", help="print JSON")
    options = parse(arguments, argv)
    with joined(options.device) as device:
        model = load(options.model, device)
        images = data.load(options.data, options.split, model.shape)
        result = evaluate(
            model,
            images,
            num_samples=options.num_samples,
            lean=options.lean,
            batch_size=options.batch_size,
            seed=options.seed,
            limit=options.limit,
            progress=not options.quiet,
        )
        if not is_first():
            return
        if not math.isfinite(result.bits_per_dim):
            raise FloatingPointError(
                f"{options.model}: likelihoods are not finite; macow check says where that begins"
            )
    if options.json:
        print(json.dumps({**asdict(result), "problems": list(images.problems)}, indent=2))
        return
    for line in images.problems:
        print(f"left out {line}")
    draws = f"{result.num_samples} {'leaning ' if result.lean else ''}draw"
    draws += "s" if result.num_samples > 1 else ""
    print(f"{result.images:,} {options.split} images of {options.data}, {draws}")
    print(f"bits/dim             {_figure(result.bits_per_dim, result.bits_per_dim_error)}")
    if result.num_samples > 1:
        weighted = _figure(result.importance_weighted, result.importance_weighted_error)
        print(f"importance-weighted  {weighted}")
    if result.noise_entropy:
        print(f"noise entropy        {result.noise_entropy:.4f}")
    for name, of_label in result.by_label.items() if model.labels else ():
        figure = _figure(of_label.bits_per_dim, of_label.bits_per_dim_error)
        print(f"  {name:<18} {figure} ({of_label.images:,} images)")


def _figure(mean: float, error: float | None) -> str:
    return f"{mean:.4f}" if error is None else f"{mean:.4f} +- {error:.4f}"
