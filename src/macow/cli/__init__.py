"""The command: finds the verb, lets it parse and run, turns mistakes into one line."""

import io
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module

from macow._version import __version__

VERBS = {
    "train": "train a model on images",
    "evaluate": "say how many bits images cost",
    "sample": "draw new images",
    "score": "say what single images cost, and how unusual they are",
    "encode": "turn images into latents",
    "decode": "turn latents into images",
    "interpolate": "make a film from one image to another",
    "check": "say whether a model is sound",
    "export": "write a model to give away",
    "serve": "open a page to look into a model",
    "data": "look at a source of images, or pack it",
    "presets": "list the published configurations",
    "import-original": "convert a checkpoint of the authors' code",
    "bench": "run a measurement",
}

LONGEST = 800
"""Characters of an error's line: a file may choose the words."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `macow VERB ...`; returns the exit code: 2 for a user's mistake, 130 for Ctrl-C."""
    warnings.filterwarnings("ignore", module=r"PIL\.")  # our errors say what is wrong with a file
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name may be no text
    try:
        code = _dispatch(list(sys.argv[1:] if argv is None else argv) or ["--help"])
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # --help printed and left
        return int(stop.code or 0)
    except KeyboardInterrupt:
        return _fail("stopped", 130)
    except BrokenPipeError:  # the reader of our output went away: nothing is wrong
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except MemoryError as error:
        return _fail(f"out of memory: {error}")
    except (ValueError, ArithmeticError) as error:
        return _fail(str(error))
    except RuntimeError as error:
        if not any(words in str(error) for words in ("out of memory", "allocate memory")):
            raise
        return _fail("out of memory: try a smaller --batch_size")
    return 0


def _dispatch(argv: list[str]) -> int:
    """Runs a verb; it may end with a code of its own."""
    verb, *rest = argv
    if verb in ("-h", "--help"):
        print(_help())
    elif argv == ["--version"]:
        print(f"macow {__version__}")
    elif verb in VERBS:
        return import_module(f"macow.cli.{verb.replace('-', '_')}").run(rest) or 0
    else:
        raise ValueError(f"unknown verb {verb!r}; there are {', '.join(VERBS)}")
    return 0


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {what}" for name, what in VERBS.items())
    return (
        "macow: exact likelihoods of images with masked convolutional flows\n\n"
        f"usage: macow VERB [...]\n\n{verbs}\n\n"
        "macow VERB --help says more; macow --version says which this is"
    )


def _fail(message: str, code: int = 2) -> int:
    rank = os.environ.get("RANK", "0")  # of several processes, others than the first say who
    name = "macow" if rank == "0" else f"macow, process {rank}"
    line = " ".join(message.split())
    line = "".join(c if c.isprintable() else "?" for c in line)  # files may be named anything
    print(f"{name}: {line if len(line) <= LONGEST else line[:LONGEST] + '...'}", file=sys.stderr)
    return code
