"""Faults on purpose: a process that dies, or finds the disk full, at its n-th touch of a file."""

import errno
import multiprocessing.context
import os
import signal
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate"}
Kind = Literal["die", "full"]
IMPORTED = ("macow.bench.faults", "macow.cli.train", "torch._dynamo", "PIL.PngImagePlugin")


def forkserver(*more: str) -> multiprocessing.context.ForkServerContext:
    """Makes processes in moments: forks of one that has imported everything and done nothing."""
    context = multiprocessing.get_context("forkserver")
    tensorboard = find_spec("tensorboard") and "torch.utils.tensorboard"
    context.set_forkserver_preload([*IMPORTED, *([tensorboard] if tensorboard else []), *more])
    return context


class Touches:
    """Counts what this process does to the files below a folder; at one of them, a fault.

    Python's audit events tell of opening for writing, making, renaming, removing and cutting,
    before they happen; writing and flushing are wrapped. Death at a write comes after half of its
    bytes. There is no way to take it back: it is for processes that exist to be lost.
    """

    def __init__(self, folder: Path, at: int = 0, kind: Kind = "die", lasting: int = 1) -> None:
        """`at` counts from 1, 0 never; a full disk is full for `lasting` touches."""
        self.folder = os.path.realpath(folder)
        self.at, self.kind, self.lasting = at, kind, lasting
        self.count = 0
        self.log: list[str] = []

    def install(self) -> None:
        """From here on, for this process's life."""
        write, fsync = os.write, os.fsync

        def counted_write(handle: int, content: Any) -> int:
            if self._inside(handle):
                half = memoryview(content)[: len(content) // 2]
                self._touch(f"write {_name(handle)}", lambda: write(handle, half))
            return write(handle, content)

        def counted_fsync(handle: int) -> None:
            if self._inside(handle):
                self._touch(f"flush {_name(handle)}")
            fsync(handle)

        os.write, os.fsync = counted_write, counted_fsync  # type: ignore[assignment]
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if flags & (os.O_WRONLY | os.O_RDWR) and self._inside(path):
                self._touch(f"open {path}")
        elif event in CHANGES:
            path, *_, beside = arguments
            if self._inside(path, -1 if event == "os.truncate" else beside):
                self._touch(f"{event} {path}")

    def _inside(self, path: Any, beside: int = -1) -> bool:
        """Whether a path, a file's number, or a name beside an open folder lies below ours."""
        if isinstance(path, int):
            path = _name(path)
        elif beside >= 0:
            path = os.path.join(_name(beside), os.fsdecode(path))
        path = os.path.abspath(os.fsdecode(path))
        return path == self.folder or path.startswith(self.folder + os.sep)

    def _touch(self, what: str, last: Callable[[], object] | None = None) -> None:
        self.count += 1
        self.log.append(what)
        if not 0 < self.at <= self.count < self.at + self.lasting:
            return
        if self.kind == "full":
            if what.split()[0] not in ("os.remove", "os.rmdir", "os.truncate", "os.rename"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return
        if last is not None:
            last()
        os.kill(os.getpid(), signal.SIGKILL)


def _name(handle: int) -> str:
    return os.readlink(f"/proc/self/fd/{handle}")
