"""The version, in the one place it is written, and the commit of a checkout."""

import subprocess
from pathlib import Path

__version__ = "0.1.0"


def commit() -> str:
    """The commit this runs from, `-dirty` if it was changed since; empty outside a checkout."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(git, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
