"""`python -m macow` is the command `macow`."""

import sys

from macow.cli import main

if __name__ == "__main__":
    sys.exit(main())
