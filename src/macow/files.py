"""Files that are whole or not there, whatever happens while they are written."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

AT_ONCE = 64 << 20


def write(path: Path, content: bytes | str, superseded: Iterable[Path] = ()) -> None:
    """Writes a sibling, flushes it to the disk and renames it: a reader sees the old or the new.

    What is superseded by it goes in between: never before the new content is safe.
    """
    temporary = path.with_name(f"{path.name}.part")
    try:
        put(temporary, content)
        for old in superseded:
            old.unlink()
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):  # what is half written only takes room
            os.unlink(temporary)
        raise
    flush(path.parent)


def put(path: Path, content: bytes | str) -> None:
    """Writes a file and waits until the disk has it."""
    with _opened(path, os.O_TRUNC) as handle:
        _write_all(handle, content)
        os.fsync(handle)


def append(path: Path, content: bytes | str) -> None:
    """Adds to a file all of it or nothing, unless killed in the midst."""
    with _opened(path, os.O_APPEND) as handle:
        before = os.fstat(handle).st_size
        try:
            _write_all(handle, content)
        except OSError:
            os.truncate(path, before)
            raise


@contextlib.contextmanager
def _opened(path: Path, how: int) -> Iterator[int]:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o666)
    try:
        yield handle
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(handle)


def _write_all(handle: int, content: bytes | str) -> None:
    rest = memoryview(content.encode() if isinstance(content, str) else content)
    while rest:
        rest = rest[os.write(handle, rest[:AT_ONCE]) :]


def flush(path: Path) -> None:
    """Waits until the disk has a file as it is, or a folder's names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
