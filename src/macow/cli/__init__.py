"""The command: finds the verb, lets it parse and run, turns mistakes into one line."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

VERBS = {
    "presets": "list the published configurations",
    "import-original": "convert a checkpoint of the authors' code",
    "bench": "run a measurement",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `macow VERB ...`; returns the exit code: 2 for a user's mistake, 130 for Ctrl-C."""
    verb, *rest = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if verb in ("-h", "--help"):
        print(_help())
        return 0
    if verb == "--version":
        print(f"macow {version('macow')}")
        return 0
    if verb not in VERBS:
        return _fail(f"unknown verb {verb!r}; there are {', '.join(VERBS)}")
    module = import_module(f"macow.cli.{verb.replace('-', '_')}")
    try:
        module.run(rest)
    except SystemExit as stop:  # --help printed and left
        return int(stop.code or 0)
    except KeyboardInterrupt:
        print("macow: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away: nothing is wrong
        return 0
    except OSError as error:
        named = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return _fail(named)
    except (ValueError, ArithmeticError) as error:
        return _fail(str(error))
    return 0


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {what}" for name, what in VERBS.items())
    return (
        "macow: exact likelihoods of images with masked convolutional flows\n\n"
        f"usage: macow VERB [...]\n\n{verbs}\n\n"
        "macow VERB --help says more; macow --version says which this is"
    )


def _fail(message: str) -> int:
    line = " ".join(message.split())
    print(f"macow: {line}", file=sys.stderr)
    return 2
