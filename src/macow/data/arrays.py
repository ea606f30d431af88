"""Arrays in npy and npz files, whose headers are held against what the files really hold."""

import math
import zipfile
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

BOMB = 1 << 28
"""Arrays beyond so many bytes must not be packed more than 100 to one."""


def mapped(path: Path) -> np.ndarray:
    """An npy file's array, memory-mapped; one that is none is a `ValueError`."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("it is an archive")
        return array
    except OSError:
        raise
    except Exception as error:  # a lying header raises anything
        raise ValueError(f"{path} is not an npy array: {_line(error)}") from None


def npz_member(path: Path, name: str) -> np.ndarray:
    """One array of an npz file, memory-mapped unless compressed."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: not a regular file")
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(f"{name}.npy")
            if info.compress_type != zipfile.ZIP_STORED:
                return _unpacked(archive, info)
        with path.open("rb") as file:  # stored as it is: the array can be mapped where it lies
            file.seek(info.header_offset + 26)
            lengths = np.frombuffer(file.read(4), dtype="<u2")
            file.seek(info.header_offset + 30 + int(lengths.sum()))
            dtype, shape, order = _header(file)
            return np.memmap(path, dtype, "r", offset=file.tell(), shape=shape, order=order)
    except FileNotFoundError:
        raise
    except Exception as error:  # so does a broken archive
        raise ValueError(f"{path} is not an npz with {name!r}: {_line(error)}") from None


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    if info.compress_type != zipfile.ZIP_DEFLATED:
        raise ValueError("it is compressed in a way that numpy does not write")
    if info.file_size > max(BOMB, 100 * info.compress_size):
        raise ValueError(f"it unpacks from {info.compress_size:,} to {info.file_size:,} bytes")
    with archive.open(info) as file:
        dtype, shape, order = _header(file)
        if math.prod(shape) * dtype.itemsize > info.file_size:
            raise ValueError(f"it is too short for an array of shape {shape}")
        return np.frombuffer(file.read(), dtype).reshape(shape, order=order)


def _header(file: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...], Literal["C", "F"]]:
    if np.lib.format.read_magic(file) == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    else:
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    return dtype, shape, "F" if fortran else "C"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
