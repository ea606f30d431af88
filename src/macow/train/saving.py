"""Checkpoints beside the training: one is written while the next updates run."""

from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any

from macow.train import checkpoint
from macow.train.console import Console


class Saver:
    """Copies the state at once and writes it in a thread, one at a time; failures are said."""

    def __init__(self, folder: Path, keep: int, console: Console) -> None:
        self.folder, self.keep, self.console = folder, keep, console
        self.step: int | None = None
        """The last step that was saved, or is being saved."""
        self.problem = ""
        self._thread: Thread | None = None
        self._unexpected: BaseException | None = None

    def __enter__(self) -> "Saver":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, Exception):  # who is asked to leave does not wait
            self.wait()

    def save(
        self, step: int, tensors: checkpoint.State, numbers: dict[str, Any], best: int | None
    ) -> None:
        """Begins a checkpoint, once for a step; waits for the one before."""
        if self.step == step:
            return
        self.wait()
        self.step = step
        try:
            content = checkpoint.pack(step, tensors, numbers)
        except MemoryError as error:
            self._failed(step, error)
            return
        self._thread = Thread(target=self._write, args=(step, content, best), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until nothing is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._unexpected is not None:
            unexpected, self._unexpected = self._unexpected, None
            raise unexpected

    def _write(self, step: int, content: dict[str, bytes], best: int | None) -> None:
        try:
            checkpoint.write(self.folder, step, content)
        except OSError as error:
            self._failed(step, error)
            return
        except BaseException as error:  # a mistake of ours: raised where it is seen
            self.step, self._unexpected = None, error
            return
        try:
            checkpoint.prune(self.folder, self.keep, best)
        except OSError as error:
            self.console.say(f"step {step:,}: an old checkpoint stays, {error}")

    def _failed(self, step: int, error: Exception) -> None:
        self.step, self.problem = None, str(error)
        self.console.missed(step, "checkpoint", error)
