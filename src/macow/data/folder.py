"""`folder:PATH`: any folder of images, and what other layouts of image files share with it."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

from macow.data.files import image_file, upright_size
from macow.data.images import DecodedImages, Shape, Split, fit

SPLIT_FOLDERS: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training"),
    "test": ("test", "val", "valid", "validation"),
}


def folder(path: Path, split: Split, shape: Shape) -> DecodedImages:
    """Its sub-folders `train` and `test` if it has both, else a tenth of it by the files' hashes.

    The hash is of a file's content: renaming moves nothing between the splits, and copies of one
    image stay together. Where every image lies in a sub-folder, that is its label.
    """
    if not path.is_dir():
        raise ValueError(f"{path}: no such folder")
    inside = {
        name: next((path / s for s in SPLIT_FOLDERS[name] if (path / s).is_dir()), None)
        for name in SPLIT_FOLDERS
    }
    chosen = inside[split]
    if chosen is not None and all(inside.values()):
        return _labelled(image_files(files_below(chosen), shape, chosen), chosen)
    images = image_files(files_below(path), shape, path)
    digests = {item: _digest(item) for item in images.items}
    test = {item for item, digest in digests.items() if digest % 10 == 0}
    if len(digests) < 2:
        raise ValueError(f"{path}: {len(digests)} image is too few to train and to test")
    if not test or len(test) == len(digests):
        test = {min(digests, key=lambda item: digests[item])}
    images.items = [item for item in images.items if (item in test) == (split == "test")]
    return _labelled(images, path)


def _labelled(images: DecodedImages, root: Path) -> DecodedImages:
    """Takes the first folder below the root for the label, if all images have one."""
    parts = [item.relative_to(root).parts for item in images.items]
    if all(len(names) > 1 for names in parts):
        images.label_names = tuple(sorted({names[0] for names in parts}))
        numbers = {name: i for i, name in enumerate(images.label_names)}
        images.labels = np.array([numbers[names[0]] for names in parts])
    return images


def files_below(path: Path) -> list[Path]:
    """Every file in a folder and its sub-folders, sorted."""
    return sorted(file for file in path.rglob("*") if file.is_file())


def image_files(paths: Iterable[Path], shape: Shape, where: Path) -> DecodedImages:
    """The files that hold an image large enough; the others are named among the problems."""
    good, problems = [], []
    for path in tqdm(list(paths), desc=f"looking at {where}", unit=" files", disable=None):
        try:
            with image_file(path) as image:
                width, height = upright_size(image)
            if width < shape[2] or height < shape[1]:
                raise ValueError(f"{width}x{height} is smaller than {shape[2]}x{shape[1]}")
            good.append(path)
        except ValueError as error:
            problems.append(f"{path}: {error}")
    if not good:
        found = f"; {problems[0]}" if problems else ""
        raise ValueError(f"{where}: no usable image among {len(problems)} files{found}")
    return DecodedImages(good, image_file, shape, problems)


def _digest(path: Path) -> int:
    with path.open("rb") as file:
        return int.from_bytes(hashlib.file_digest(file, "sha256").digest()[:8], "big")


def each_image(paths: Iterable[Path], shape: Shape) -> Iterator[tuple[Path, np.ndarray | str]]:
    """Every file of some files and folders, as an image `[C, H, W]` or the reason it is none."""
    for path in paths:
        for file in files_below(path) if path.is_dir() else [path]:
            try:
                with image_file(file) as image:
                    found: np.ndarray | str = fit(image, shape)
            except ValueError as error:
                found = str(error)
            yield file, found
