"""Readers of images: uint8 out, nothing known of models."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from macow.data.cifar10 import cifar10
from macow.data.digits import digits
from macow.data.folder import each_image, folder
from macow.data.formats import celebahq, hugging_face, imagenet64, lsun, packed
from macow.data.images import (
    ArrayImages,
    Images,
    Shape,
    Split,
    fitted,
    in_memory,
    label_numbers,
)

SOURCES: dict[str, tuple[Callable[..., Any], str]] = {
    "digits": (digits, "the 8x8 digits in the package"),
    "cifar10": (cifar10, "cifar10:PATH, python, binary or tar.gz"),
    "imagenet64": (imagenet64, "imagenet64:PATH, npz batches or PNG folders"),
    "lsun": (lsun, "lsun:PATH, one category's lmdb pair"),
    "celebahq": (celebahq, "celebahq:PATH, a folder or an npy"),
    "folder": (folder, "folder:PATH, any folder of images"),
    "packed": (packed, "packed:DIR, train.npy and test.npy"),
    "hf": (hugging_face, "hf:NAME, of the datasets library"),
}
IN_MEMORY = 2 << 30
"""Sets up to so many bytes are decoded once and kept; larger ones stream."""


def load(source: str, split: Split, shape: Shape | None = None) -> Images:
    """The images of a source (`cifar10:PATH`), fitted to a shape: `load("digits", "test")`.

    Without a shape they come as they are stored, which only sets of one shape allow.
    """
    kind, _, where = source.partition(":")
    if kind not in SOURCES:
        folder = f"folder:{source}, or " if Path(source).is_dir() else ""
        raise ValueError(f"unknown data source {source!r}; try {folder}{', '.join(SOURCES)}")
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")
    if shape is not None and shape[0] not in (1, 3) and kind not in ("packed", "celebahq"):
        raise ValueError(f"{kind} gives images of 1 or 3 channels, not {shape[0]}")
    read = SOURCES[kind][0]
    if kind == "digits":
        images: Images = digits(split)
    elif not where:
        raise ValueError(f"{kind} needs to know where: {SOURCES[kind][1]}")
    elif kind in ("cifar10", "packed"):
        images = read(_existing(where), split)
    elif shape is None:
        if kind != "hf":
            _existing(where)
        raise ValueError(
            f"{kind} holds images of any shape: say which with a size, as in --size 64,64"
        )
    else:
        images = read(where if kind == "hf" else Path(where).expanduser(), split, shape)
    if shape is not None:
        images = fitted(images, shape, source)
    size = len(images) * images.shape[0] * images.shape[1] * images.shape[2]
    if not isinstance(images, ArrayImages) and size <= IN_MEMORY:
        images = in_memory(images, f"reading {source}")
    if len(images) == 0:
        reason = f"; {images.problems[0]}" if images.problems else ""
        raise ValueError(f"{source}: no usable {split} images{reason}")
    return images


def _existing(where: str) -> Path:
    path = Path(where).expanduser()
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder")
    return path


__all__ = [
    "IN_MEMORY",
    "SOURCES",
    "ArrayImages",
    "Images",
    "Shape",
    "Split",
    "each_image",
    "in_memory",
    "label_numbers",
    "load",
]
