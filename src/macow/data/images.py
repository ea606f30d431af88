"""Sets of images, however they are stored: `len(images)` and `images.take(indices)`."""

import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import numpy as np
from PIL import Image, ImageOps
from tqdm import tqdm

Shape = tuple[int, int, int]
Split = Literal["train", "test"]


class Images(ABC):
    """Images of one shape, uint8."""

    shape: Shape
    labels: np.ndarray | None = None
    """Of every image, as a place in `label_names`."""
    label_names: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """What was found but could not be used, and why: one line a file."""

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @abstractmethod
    def take(self, indices: np.ndarray) -> np.ndarray:
        """Those images: uint8 `[n, C, H, W]`."""

    def one(self, index: int) -> np.ndarray:
        """One image `[C, H, W]`; one that cannot be read is a `ValueError`."""
        return self.take(np.array([index]))[0]

    def fingerprint(self) -> str:
        """What tells this set from another: its size, and a checksum of some of its images."""
        some = self.take(np.unique(np.linspace(0, len(self) - 1, 64).astype(int)))
        return f"{len(self)} images, checksum {zlib.crc32(some.tobytes()):08x}"


class ArrayImages(Images):
    """Images in memory, or memory-mapped: uint8 `[N, C, H, W]`."""

    def __init__(
        self,
        array: np.ndarray,
        labels: np.ndarray | None = None,
        label_names: Sequence[str] | None = None,
    ) -> None:
        """Labels without names are called by their numbers."""
        if array.dtype != np.uint8 or array.ndim != 4 or 0 in array.shape[1:]:
            found = f"{array.dtype} of shape {list(array.shape)}"
            raise ValueError(f"images must be uint8 [N, C, H, W], got {found}")
        self.array = array
        if labels is not None:
            _check_labels(labels, len(array), label_names)
            self.labels = labels
            most = int(labels.max(initial=0))
            self.label_names = tuple(label_names or map(str, range(most + 1)))
        self.shape = (array.shape[1], array.shape[2], array.shape[3])

    def __len__(self) -> int:
        return len(self.array)

    def take(self, indices: np.ndarray) -> np.ndarray:
        """By fancy indexing: a copy."""
        return self.array[indices]


class DecodedImages(Images):
    """Images decoded and fitted as they are taken; `read(item)` opens one."""

    def __init__(
        self,
        items: Sequence[Any],
        read: Callable[[Any], AbstractContextManager[Image.Image]],
        shape: Shape,
        problems: Sequence[str] = (),
    ) -> None:
        self.items = items
        self.read = read
        self.shape = shape
        self.problems = tuple(problems)

    def __len__(self) -> int:
        return len(self.items)

    def take(self, indices: np.ndarray) -> np.ndarray:
        """Decodes one after the other; for one that cannot be, named, the next stands in."""
        return np.stack([self._one_or_next(int(index)) for index in indices])

    def _one_or_next(self, index: int) -> np.ndarray:
        for _ in range(10):
            try:
                return self.one(index)
            except ValueError as error:
                if str(error) not in self.problems:
                    self.problems = (*self.problems, str(error))
                    warnings.warn(f"left out {error}", stacklevel=4)
                index = self._after(index)
        raise ValueError(f"ten images in a row cannot be read, {self.problems[-1]} the last")

    def _after(self, index: int) -> int:
        """The next one, of the same label."""
        if self.labels is None:
            return (index + 1) % len(self)
        alike = np.flatnonzero(self.labels == self.labels[index])
        return int(alike[np.searchsorted(alike, index, side="right") % len(alike)])

    def one(self, index: int) -> np.ndarray:
        """One image `[C, H, W]`; a mistake names the item."""
        item = self.items[index]
        try:
            with self.read(item) as image:
                return fit(image, self.shape)
        except ValueError as error:
            raise ValueError(f"{item}: {error}") from None


def fit(image: Image.Image, shape: Shape) -> np.ndarray:
    """Any image as uint8 `[C, H, W]`: turned upright, centre-cropped, resized, converted."""
    channels, height, width = shape
    ImageOps.exif_transpose(image, in_place=True)
    if image.width < width or image.height < height:
        raise ValueError(f"{image.width}x{image.height} is smaller than {width}x{height}")
    if image.mode in ("F", "I"):
        raise ValueError(f"mode {image.mode} (32 bits) has no known range")
    if image.mode.startswith("I"):  # 16 bits
        values = np.asarray(image).clip(0, 65535)
        if 0 < values.max() < 256:  # all of it would come out black
            raise ValueError("16 bits, but none above the lower 8 is used: store it with 8 bits")
        image = Image.fromarray((values >> 8).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image.convert("L" if channels == 1 else "RGB")
    scale = min(image.width / width, image.height / height)
    left = (image.width - scale * width) / 2
    top = (image.height - scale * height) / 2
    box = (left, top, left + scale * width, top + scale * height)
    image = image.resize((width, height), Image.Resampling.LANCZOS, box=box)
    array = np.asarray(image)
    return array[None] if channels == 1 else array.transpose(2, 0, 1)


def fitted(images: Images, shape: Shape, source: str) -> Images:
    """The same images in another shape, fitted as they are taken."""
    if images.shape == shape:
        return images
    if images.shape[0] not in (1, 3):
        raise ValueError(f"{source}: images of shape {images.shape} do not fit {shape}")

    def read(index: int) -> Image.Image:
        planes = images.one(index).transpose(1, 2, 0)
        return Image.fromarray(planes[:, :, 0] if planes.shape[2] == 1 else planes)

    other = DecodedImages(range(len(images)), read, shape)
    other.labels, other.label_names = images.labels, images.label_names
    return other


def readable(images: Images, description: str) -> Iterator[tuple[int, np.ndarray | str]]:
    """Every image with its number, or the reason it cannot be read, with progress."""
    for index in tqdm(range(len(images)), desc=description, unit=" images", disable=None):
        try:
            yield index, images.one(index)
        except ValueError as error:
            yield index, str(error)


def in_memory(images: Images, description: str) -> ArrayImages:
    """Decodes all images once; what cannot be decoded is left out and named among the problems."""
    if isinstance(images, ArrayImages):
        return images
    array = np.empty((len(images), *images.shape), dtype=np.uint8)
    problems = list(images.problems)
    good: list[int] = []
    for index, image in readable(images, description):
        if isinstance(image, str):
            problems.append(image)
        else:
            array[len(good)] = image
            good.append(index)
    labels = None if images.labels is None else images.labels[good]
    decoded = ArrayImages(array[: len(good)], labels, images.label_names)
    decoded.problems = tuple(problems)
    return decoded


def label_numbers(images: Images, names: Sequence[str]) -> np.ndarray:
    """The label of every image as a place in `names`, whatever the order of its own names."""
    if images.labels is None:
        raise ValueError(
            "these images have no labels, which a conditional model needs: digits, cifar10:PATH or "
            "a folder with a sub-folder for each label have them"
        )
    used = [images.label_names[i] for i in np.unique(images.labels)]
    if unknown := [name for name in used if name not in names]:
        raise ValueError(
            f"the images' label {unknown[0]!r} is none of the model's ({', '.join(names)}): "
            f"images with these labels need --model.labels '[{', '.join(images.label_names)}]'"
        )
    places = [names.index(name) if name in names else -1 for name in images.label_names]
    return np.array(places)[images.labels]


def _check_labels(labels: np.ndarray, count: int, names: Sequence[str] | None) -> None:
    most = len(names) if names else 65_536
    whole = labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer)
    if not whole or len(labels) != count or np.any((labels < 0) | (labels >= most)):
        found = f"{labels.dtype} of shape {list(labels.shape)}"
        if whole and labels.size:
            found += f" from {labels.min()} to {labels.max()}"
        wanted = f"{count} whole numbers from 0 to {most - 1}, one for each image"
        raise ValueError(f"labels must be {wanted}, got {found}")
