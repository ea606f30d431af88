"""What the verbs' parsers share."""

import math
import re
from argparse import Action, ArgumentError, ArgumentTypeError
from collections.abc import Sequence

import torch
from jsonargparse import ArgumentParser, DefaultHelpFormatter, Namespace

from macow.model import FlowModel
from macow.pretrained import load


class _Help(DefaultHelpFormatter):
    """Leaves out what tells a reader nothing: empty defaults and the names of our checks."""

    def _expand_help(self, action: Action) -> str:
        text = super()._expand_help(action)
        text = re.sub(r"type: <function .*? at \w+>(, )?", "", text)
        return re.sub(r"(, )?default: (null|False)", "", text).replace("()", "").rstrip()


def parser(verb: str, usage: str, description: str) -> ArgumentParser:
    """A parser for one verb: no abbreviations, mistakes are raised and not printed."""
    return ArgumentParser(
        prog=f"macow {verb}",
        usage=f"macow {verb} {usage}",
        description=description,
        formatter_class=_Help,
        exit_on_error=False,
        allow_abbrev=False,
    )


def parse(arguments: ArgumentParser, argv: Sequence[str]) -> Namespace:
    """Parses, with a mistake as a `ValueError` of one line."""
    try:
        return arguments.parse_args(list(argv))
    except ArgumentError as error:
        raise ValueError(f"{arguments.prog.split()[-1]}: {error.message}") from None


def add_computing(arguments: ArgumentParser, batch_size: int | None) -> None:
    """The options of every verb that computes."""
    default = "cuda" if torch.cuda.is_available() else "cpu"
    arguments.add_argument("--device", type=device, default=default, help="where to compute")
    arguments.add_argument(
        "--batch_size", type=positive, default=batch_size, help="images at a time"
    )
    arguments.add_argument("--seed", type=natural, default=0, help="of all randomness")
    arguments.add_argument("--quiet", action="store_true", help="print results only")


def natural(value: str | int) -> int:
    """Reads a whole number from 0."""
    if not str(value).isdecimal():
        raise ArgumentTypeError(f"must be a whole number from 0, got {value!r}")
    return int(value)


def positive(value: str | int) -> int:
    """Reads a whole number above 0; the parser shows it its own result again."""
    if not str(value).isdecimal() or int(value) < 1:
        raise ArgumentTypeError(f"must be a whole number above 0, got {value!r}")
    return int(value)


def temperature(value: str | float) -> float:
    """Reads what latents are multiplied by."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ArgumentTypeError(f"must be a number from 0, got {value!r}")
    return number


def device(text: str) -> str:
    """Checks that torch knows the device and that it is there."""
    try:
        if torch.empty(0, device=text).device.type not in ("cpu", "cuda"):
            raise RuntimeError("only cpu and cuda devices compute here")
    except (RuntimeError, AssertionError) as error:
        raise ArgumentTypeError(f"{text!r}: {str(error).splitlines()[0]}") from None
    return text


def model_parser(verb: str, usage: str, description: str, batch_size: int) -> ArgumentParser:
    """A parser for a verb that computes with a model."""
    arguments = parser(verb, f"MODEL {usage}", description)
    arguments.add_argument("model", help="a run or model folder, or a shipped name")
    add_computing(arguments, batch_size)
    return arguments


def add_label(arguments: ArgumentParser) -> None:
    """The label a conditional model is given for all images."""
    arguments.add_argument("--label", type=str, default=None, help="for a conditional model: which")


def load_given(options: Namespace, where: str | None, *, any_label: bool = False) -> FlowModel:
    """The model of a line, given its `--label`, which a conditional one needs."""
    model = load(options.model, where)
    if options.label is not None:
        return model.given(options.label)
    if model.labels and not any_label:
        raise ValueError(
            f"{options.model} is conditional: give --label, one of {', '.join(model.labels)}"
        )
    return model


def size(text: str) -> tuple[int, int]:
    """Reads `32,32` (height, width) or `32`."""
    sides = text.split(",")
    if len(sides) not in (1, 2) or not all(side.strip().isdecimal() for side in sides):
        raise ValueError(f"size must be HEIGHT,WIDTH, got {text!r}")
    return int(sides[0]), int(sides[-1])
