"""What ends a run early: signals, and memory that does not suffice."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from macow.config import RunConfig


class Interruption:
    """Ctrl-C and SIGTERM ask once: the step is finished and saved; asked twice, it ends at once."""

    def __enter__(self) -> "Interruption":
        self.asked = 0
        self.before: dict[int, Any] = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self.before[number] = signal.signal(number, self._ask)
            except ValueError:  # not the main thread: nobody asks here
                return self
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            self.leave()
        self.asked = number

    def leave(self) -> None:
        """Ends as the signal would have."""
        if self.asked == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + self.asked)


@contextmanager
def memory_advice(config: RunConfig) -> Iterator[None]:
    """Turns running out of memory into one line with what to try."""
    try:
        yield
    except (torch.OutOfMemoryError, RuntimeError, MemoryError) as error:
        short = "out of memory" in str(error).lower() or "allocate memory" in str(error).lower()
        if not short and not isinstance(error, MemoryError):
            raise
        train = config.train
        passes = train.batch_size // train.batch_steps
        raise MemoryError(
            f"out of memory with {passes} images at a time: try --train.batch_size "
            f"{max(1, train.batch_size // 2)}, or --train.batch_steps {2 * train.batch_steps} "
            "to split an update into more passes"
        ) from None
