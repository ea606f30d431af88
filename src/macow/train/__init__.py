"""Training: `macow.train.fit(config, source, run)`."""

from macow.train.loop import fit

__all__ = ["fit"]
