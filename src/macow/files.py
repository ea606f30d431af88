"""Files that are whole or not there, whatever happens while they are written."""

import contextlib
import os
from pathlib import Path

AT_ONCE = 64 << 20


def write(path: Path, content: bytes | str) -> None:
    """Writes a sibling, flushes it to the disk and renames it: a reader sees the old or the new."""
    temporary = path.with_name(f"{path.name}.part")
    try:
        put(temporary, content)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):  # what is half written only takes room
            os.unlink(temporary)
        raise
    flush(path.parent)


def put(path: Path, content: bytes | str) -> None:
    """Writes a file and waits until the disk has it."""
    rest = memoryview(content.encode() if isinstance(content, str) else content)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        while rest:
            rest = rest[os.write(handle, rest[:AT_ONCE]) :]
        os.fsync(handle)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(handle)


def flush(path: Path) -> None:
    """Waits until the disk has a file as it is, or a folder's names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
