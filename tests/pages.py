"""The pages of docs/: their code, what they say it prints, and the options of the verbs.

`python tests/pages.py` (make pages) writes the tables of options anew from the parsers.
"""

import io
import re
from argparse import Action
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints
from unittest import mock

import numpy as np
from PIL import Image

from macow.cli import VERBS
from macow.cli.parsing import device, natural, positive, temperature
from macow.config import RunConfig

DOCS = Path(__file__).parents[1] / "docs"
BEGIN, END = "<!-- options: made by `make pages` -->\n", "<!-- end of options -->\n"
TYPES = {
    positive: "whole number above 0",
    natural: "whole number from 0",
    temperature: "number from 0",
    device: "device",
}
NUMBER = r"-?\d[\d,]*+\.?+\d*+(?:e[+-]?\d++)?+"  # possessive: there is one way to read a number


def page(name: str) -> str:
    return (DOCS / name).read_text()


def blocks(text: str, language: str) -> list[str]:
    return [body for kind, body in fenced(text) if kind == language]


def fenced(text: str) -> Iterator[tuple[str, str]]:
    """The language and the text of every fenced block."""
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield found[1], found[2]


def printed(call: Any, *arguments: Any) -> str:
    """What a call prints, to stdout or stderr."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        call(*arguments)
    return out.getvalue()


def difference(page_says: str, printed: str) -> str:
    """Empty if the page tells the truth.

    `...` on a page stands for anything, white space for any white space, and a number with a
    decimal point may be off by two of its last digit.
    """
    chunks, text, place = page_says.strip().split("..."), printed.strip(), 0
    for i, chunk in enumerate(chunks):
        pattern, wanted = _pattern(chunk)
        at_end = r"\Z" if i == len(chunks) - 1 else ""
        look = re.compile(pattern + at_end)
        found = look.search(text, place) if i else look.match(text)
        if not found or not all(map(_close, wanted, found.groups())):
            return f"the page says\n{page_says}\nprinted was\n{printed}"
        place = found.end()
    return ""


def _pattern(text: str) -> tuple[str, list[str]]:
    """What finds a text, with a group for each number; the numbers."""
    pattern, numbers = "", []
    for part in re.split(rf"(\s+|(?<![\w.]){NUMBER})", text):
        if part.isspace():
            pattern += r"\s++"
        elif re.fullmatch(NUMBER, part):
            pattern += f"({NUMBER})"
            numbers.append(part)
        else:
            pattern += re.escape(part)
    return pattern, numbers


def _close(wanted: str, found: str) -> bool:
    mantissa, _, exponent = wanted.partition("e")
    digits = mantissa.partition(".")[2]
    unit = float(f"1e{int(exponent or 0) - len(digits)}") if digits else 0.0
    return abs(float(wanted.replace(",", "")) - float(found.replace(",", ""))) <= 2.001 * unit


def picture_difference(made: Path, shown: Path) -> float:
    """In grey levels, on average; rounding differs a little between machines."""
    first, second = (np.asarray(Image.open(path)).astype(int) for path in (made, shown))
    return float(abs(first - second).mean()) if first.shape == second.shape else 255.0


class _Parsed(Exception):
    pass


def actions(verb: str) -> list[Action]:
    """What a verb's parser accepts, but for --help."""
    module: ModuleType = import_module(f"macow.cli.{verb.replace('-', '_')}")
    with mock.patch.object(module, "parse", side_effect=_Parsed) as parse, suppress(_Parsed):
        module.run(["--preset", "cifar10"])  # so that train's parser knows all of it
    return [a for a in parse.call_args.args[0]._actions if "--help" not in a.option_strings]


def options(verb: str) -> str:
    """The options of a verb as a table."""
    rows = [
        f"| `{', '.join(a.option_strings) or a.dest.upper()}` | {_type(a)} | {_default(a)} "
        f"| {_meaning(a)} |"
        for a in actions(verb)
    ]
    head = ["| option | type | default | meaning |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, "| `-h, --help` | flag | | say all this and leave |"]) + "\n"


def _meaning(action: Action) -> str:
    text = action.help or ""
    if text == "Path to a configuration file.":
        text = f"a YAML file with all of `{action.dest}.*`"
    elif text == "Show the help for VariationalConfig and exit.":
        text = "say what `model.variational` holds and leave"
    text = re.sub(r"(?<!\.)\.$", "", text)
    return text.replace("|", "\\|")


def _type(action: Action) -> str:
    kind = getattr(action, "_typehint", None) or action.type
    if action.choices or get_origin(kind) is Literal:
        text = " | ".join(map(str, action.choices or get_args(kind)))
    elif action.nargs == 0:
        text = "flag"
    elif kind in (None, str):
        text = "text"
    elif kind in TYPES:
        text = TYPES[kind]
    else:
        text = kind.__name__ if type(kind) is type else str(kind).replace("macow.config.", "")
    return text.replace("|", "\\|")


def _default(action: Action) -> str:
    """A configuration's fields as their class has them: a preset gives its own."""
    if action.nargs == 0 or action.dest in ("train", "model"):
        return ""
    if action.dest.startswith(("train.", "model.")):
        return _of_config(action.dest.split("."))
    if action.dest == "device":
        return "a GPU if there"
    if action.required or not (action.option_strings or action.nargs in ("?", "*")):
        return "required"
    return "" if action.default in (None, []) else f"`{action.default}`"


def _of_config(path: list[str]) -> str:
    kind: Any = RunConfig
    for name in path[:-1]:
        kind = get_type_hints(kind)[name]
    default = next(f.default for f in fields(kind) if f.name == path[-1])
    return "required" if default is MISSING else "" if default is None else f"`{default}`"


def with_options(verb: str, text: str) -> str:
    """A page with its table of options as it ought to be."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"docs/verbs/{verb}.md: no place for the options")
    return before + BEGIN + "\n" + options(verb) + "\n" + END + after


def main() -> None:
    for verb in VERBS:
        path = DOCS / "verbs" / f"{verb}.md"
        path.write_text(with_options(verb, path.read_text()))


if __name__ == "__main__":
    main()
