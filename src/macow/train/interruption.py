"""What ends a run early: signals, and memory that does not suffice."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from macow import distribution
from macow.config import TrainConfig
from macow.train.console import Console

ECHO = 5.0
"""Seconds in which one signal may arrive twice: from the terminal, and passed on by torchrun."""


class Interruption:
    """Ctrl-C and SIGTERM ask once: the step is finished and saved; asked twice, it ends at once."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def __enter__(self) -> "Interruption":
        self.asked, self.since = 0, 0.0
        self.before: dict[int, Any] = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self.before[number] = signal.signal(number, self._ask)
            except ValueError:  # not the main thread: nobody asks here
                return self
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _restore(self) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            if time.monotonic() - self.since > ECHO:
                self.leave()
            return
        self.asked, self.since = number, time.monotonic()
        if not distribution.is_launched():  # so that the next one ends it within a long operation,
            signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell that runs
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # it in the background ignores Ctrl-C
        self.console.say("finishing this step and saving; once more ends at once")

    def agreed(self, device: torch.device) -> bool:
        """Whether any process was asked: then all leave together."""
        self.asked = distribution.largest(self.asked, device)
        return bool(self.asked)

    def leave(self) -> None:
        """Ends as the signal would have."""
        if self.asked == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + self.asked)


@contextmanager
def memory_advice(config: TrainConfig) -> Iterator[None]:
    """Turns running out of memory into one line with what to try."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        text = str(error).lower()
        scarce = "out of memory" in text or "allocate memory" in text
        if not scarce and not isinstance(error, MemoryError):
            raise
        at_once, more = config.batch_size // config.batch_steps, 2 * config.batch_steps
        split = f", or --train.batch_steps {more}" if config.batch_size % more == 0 else ""
        raise MemoryError(
            f"out of memory with {at_once} images at a time, {config.init_images} to initialise: "
            f"try --train.batch_size {max(1, config.batch_size // 2)}{split}, "
            "or fewer --train.init_images"
        ) from None
