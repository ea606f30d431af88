"""`python -m macow` is the command `macow`."""

import os
import sys

from macow.cli import main


def run() -> None:
    """Runs the command and leaves."""
    code = main()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        # Among several processes all is done and written, and torch is not asked to clean up: it
        # may wait for ever for a process that is gone, and a thread of gloo that lets go of a
        # tensor while the interpreter ends aborts (pytorch/pytorch#179291).
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
