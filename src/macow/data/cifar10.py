"""`cifar10:PATH`: the official python and binary layouts, in a folder or as their tar.gz."""

import pickle
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from macow.data.images import ArrayImages, Split

BATCHES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
LABELS = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
PIXELS = 3 * 32 * 32


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
            with tarfile.open(path) as archive:
                for member in archive:
                    file = archive.extractfile(member) if member.isfile() else None
                    if file is not None and Path(member.name).stem in names:
                        with file:
                            yield Path(member.name).stem, _batch(file, member.name)
        except (tarfile.TarError, EOFError, UnicodeError, zlib.error) as error:
            raise ValueError(f"{path} is not a tar archive: {error}") from None
        return
    for folder in (path, path / "cifar-10-batches-py", path / "cifar-10-batches-bin"):
        for name in names:
            for file_path in (folder / name, folder / f"{name}.bin"):
                if file_path.is_file():
                    with file_path.open("rb") as file:
                        yield name, _batch(file, str(file_path))


def _batch(file: IO[bytes], name: str) -> tuple[np.ndarray, np.ndarray]:
    if name.endswith(".bin"):
        rows = np.frombuffer(file.read(), dtype=np.uint8)
        if len(rows) == 0 or len(rows) % (1 + PIXELS):
            raise ValueError(f"{name}: {len(rows)} bytes are not rows of {1 + PIXELS}")
        rows = rows.reshape(-1, 1 + PIXELS)
        return rows[:, 1:], rows[:, 0]
    try:
        batch = _ArraysOnly(file, encoding="bytes").load()
        images, labels = batch[b"data"], np.array(batch[b"labels"], dtype=np.uint8)
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{name} is not a CIFAR-10 batch: {error}") from None
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
        raise ValueError(f"{name} is not a CIFAR-10 batch: its data is no array of bytes")
    if images.shape != (len(labels), PIXELS):
        raise ValueError(f"{name} is not a CIFAR-10 batch: its data has shape {images.shape}")
    return images, labels


class _ArraysOnly(pickle.Unpickler):
    """Reads arrays, bytes and containers; anything else in the file is refused, not run."""

    ALLOWED = {
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("_codecs", "encode"),
    }

    def find_class(self, module: str, name: str) -> Any:
        """Only what arrays are made of."""
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not allowed")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)
