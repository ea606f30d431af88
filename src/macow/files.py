"""Files that are whole or not there, whatever happens while they are written."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

AT_ONCE = 64 << 20


def write(path: Path, content: bytes | str) -> None:
    """Writes a sibling, flushes it to the disk and renames it: a reader sees the old or the new."""
    write_together(path.parent, {path.name: content})


def write_together(
    folder: Path, contents: Mapping[str, bytes | str], superseded: Sequence[Path] = ()
) -> None:
    """Writes files of a folder, and changes nothing there before the disk has all of them.

    Then what they supersede goes, and they take their places one after the other.
    """
    parts = {folder / f"{name}.part": folder / name for name in contents}
    try:
        for part, content in zip(parts, contents.values(), strict=True):
            put(part, content)
        for old in superseded:
            old.unlink()
        if superseded:
            flush(folder)  # a disk may keep the order of these and the renames, or not
        for part, path in parts.items():
            os.replace(part, path)
    except OSError:
        for part in parts:
            with contextlib.suppress(OSError):  # what is half written only takes room
                os.unlink(part)
        raise
    flush(folder)


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
