"""`cifar10:PATH`: the official python and binary layouts, in a folder or as their tar.gz."""

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import IO, cast

import numpy as np

from macow.data.images import ArrayImages, Split
from macow.data.pickles import ArraysOnly

BATCHES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
LABELS = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
PIXELS = 3 * 32 * 32
MOST_BYTES = 1 << 28
"""The official archive unpacks to 186 MB, a batch has 31."""


def cifar10(path: Path, split: Split) -> ArrayImages:
    """Images `[N, 3, 32, 32]` with labels, in the official order."""
    batches = {name: rows for name, rows in _read(path, BATCHES[split])}
    if missing := [name for name in BATCHES[split] if name not in batches]:
        raise ValueError(f"{path}: no CIFAR-10 batch {', '.join(missing)} (python or binary)")
    ordered = [batches[name] for name in BATCHES[split]]
    images = np.concatenate([images for images, _ in ordered]).reshape(-1, 3, 32, 32)
    return ArrayImages(images, np.concatenate([labels for _, labels in ordered]), LABELS)


def _read(path: Path, names: list[str]) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    if path.is_file():
        try:
            yield from _read_archive(path, names)
        except (tarfile.TarError, EOFError, UnicodeError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path} is not a tar archive: {error}") from None
        return
    for folder in (path, path / "cifar-10-batches-py", path / "cifar-10-batches-bin"):
        for name in names:
            for file_path in (folder / name, folder / f"{name}.bin"):
                if file_path.is_file():
                    with file_path.open("rb") as file:
                        yield name, _batch(file, str(file_path))


def _read_archive(
    path: Path, names: list[str]
) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    """Reads members where they lie: nothing is written, so no member's path matters."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    with gzip.open(path) if packed else path.open("rb") as file:
        bounded = cast(IO[bytes], _Bounded(cast(IO[bytes], file), path))
        with tarfile.open(fileobj=bounded, mode="r:") as archive:
            for member in archive:
                plain = member.isfile() and not member.issparse()  # one may claim any size
                content = archive.extractfile(member) if plain else None
                if content is not None and Path(member.name).stem in names:
                    with content:
                        yield Path(member.name).stem, _batch(content, f"{path}: {member.name}")


class _Bounded:
    """A file that ends an archive's reading where no CIFAR-10 goes: it may unpack to anything."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self.file = file
        self.path = path

    def read(self, size: int) -> bytes:
        self._require(self.file.tell() + size)
        return self.file.read(size)

    def seek(self, position: int) -> int:
        self._require(position)
        return self.file.seek(position)

    def tell(self) -> int:
        return self.file.tell()

    def _require(self, position: int) -> None:
        if position > MOST_BYTES:
            raise ValueError(f"{self.path} is no CIFAR-10: it unpacks to over {MOST_BYTES:,} bytes")


def _batch(file: IO[bytes], name: str) -> tuple[np.ndarray, np.ndarray]:
    content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"{name} is not a CIFAR-10 batch: it has over {MOST_BYTES:,} bytes")
    if name.endswith(".bin"):
        rows = np.frombuffer(content, dtype=np.uint8)
        if len(rows) == 0 or len(rows) % (1 + PIXELS):
            raise ValueError(f"{name}: {len(rows)} bytes are not rows of {1 + PIXELS}")
        rows = rows.reshape(-1, 1 + PIXELS)
        return rows[:, 1:], rows[:, 0]
    try:
        batch = ArraysOnly(BytesIO(content), encoding="bytes").load()
        images, labels = batch[b"data"].array(), np.array(batch[b"labels"], dtype=np.uint8)
    except Exception as error:  # a damaged pickle raises anything
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"{name} is not a CIFAR-10 batch: {said}") from None
    if images.shape != (len(labels), PIXELS) or labels.ndim != 1:
        raise ValueError(f"{name} is not a CIFAR-10 batch: its data has shape {images.shape}")
    return images, labels
