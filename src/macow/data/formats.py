"""The paper's other data sets, in the layouts they are published in."""

import json
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from macow.data.folder import files_below, image_files
from macow.data.images import ArrayImages, DecodedImages, Images, Shape, Split


def packed(path: Path, split: Split) -> ArrayImages:
    """`packed:DIR`: `train.npy` and `test.npy`, uint8 `[N, C, H, W]`, memory-mapped.

    Labels are numbers in `train_labels.npy`, their names a list in `train_labels.json`.
    """
    images, labels = _mapped(path / f"{split}.npy"), path / f"{split}_labels.npy"
    if not labels.exists():
        return ArrayImages(images)
    names = _names(labels.with_suffix(".json"))
    try:
        return ArrayImages(images, _mapped(labels), names)
    except ValueError as error:
        raise ValueError(f"{labels}: {error}") from None


def imagenet64(path: Path, split: Split, shape: Shape) -> Images:
    """`imagenet64:PATH`: the official npz batches, or the PNG folders of van den Oord's set."""
    batches = sorted(path.glob("train_data_batch_*.npz" if split == "train" else "val_data.npz"))
    if batches:
        return _NpzBatches(batches)
    name = "train_64x64" if split == "train" else "valid_64x64"
    if not (path / name).is_dir():
        raise ValueError(f"{path}: neither npz batches (train_data_batch_1.npz, ...) nor {name}/")
    return image_files(files_below(path / name), shape, path / name)


def celebahq(path: Path, split: Split, shape: Shape) -> Images:
    """`celebahq:PATH`: one npy of all images, or a folder of them; the last tenth is test."""
    if path.is_file():
        array = _mapped(path)
        if array.ndim == 4 and array.shape[-1] == 3:
            array = array.transpose(0, 3, 1, 2)
        return ArrayImages(array[_tenth(len(array), split)])
    if not path.is_dir():
        raise ValueError(f"{path}: no such file or folder")
    images = image_files(files_below(path), shape, path)
    images.items = images.items[_tenth(len(images), split)]
    return images


def lsun(path: Path, split: Split, shape: Shape) -> DecodedImages:
    """`lsun:PATH`: one category's lmdb pair; PATH is `lsun/bedroom` or a folder with one pair."""
    name = "train_lmdb" if split == "train" else "val_lmdb"
    found = [path.parent / f"{path.name}_{name}"] if not path.is_dir() else []
    found += sorted(path.glob(f"*{name}"))
    databases = [folder for folder in found if (folder / "data.mdb").is_file()]
    if len(databases) != 1:
        raise ValueError(f"{path}: {len(databases)} folders *_{name} with a data.mdb, not one")
    return _lmdb_images(databases[0], shape)


def hugging_face(name: str, split: Split, shape: Shape) -> DecodedImages:
    """`hf:NAME`: a data set of the Hugging Face library, its first column of images."""
    try:
        import datasets
    except ModuleNotFoundError:
        raise ValueError("hf: needs the datasets library: pip install 'macow[hf]'") from None
    try:
        sets = datasets.load_dataset(name)
    except Exception as error:  # the library raises its own kinds, of many families
        raise ValueError(f"hf:{name}: {' '.join(str(error).split())}") from None
    splits = ["train"] if split == "train" else ["test", "validation", "valid", "val"]
    chosen = next((sets[s] for s in splits if s in sets), None)
    if chosen is None:
        raise ValueError(f"hf:{name}: no split {' or '.join(splits)}, only {', '.join(sets)}")
    columns = [c for c, kind in chosen.features.items() if isinstance(kind, datasets.Image)]
    if not columns:
        raise ValueError(f"hf:{name}: no column of images among {', '.join(chosen.features)}")
    images = DecodedImages(range(len(chosen)), lambda i: chosen[i][columns[0]], shape)
    for column, kind in chosen.features.items():
        if isinstance(kind, datasets.ClassLabel):
            images.labels, images.label_names = np.array(chosen[column]), tuple(kind.names)
            break
    return images


class _NpzBatches(Images):
    """Rows of 3 x 64 x 64 bytes in several npz files, memory-mapped unless compressed."""

    shape: Shape = (3, 64, 64)

    def __init__(self, paths: list[Path]) -> None:
        self.batches = []
        for path in paths:
            rows = _npz_member(path, "data")
            if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != 3 * 64 * 64:
                found = f"{rows.dtype} of shape {list(rows.shape)}"
                raise ValueError(f"{path}: data must be uint8 rows of 12,288, got {found}")
            self.batches.append(rows.reshape(-1, *self.shape))
        self.starts = np.cumsum([0, *map(len, self.batches)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def take(self, indices: np.ndarray) -> np.ndarray:
        """From whichever batch each is in."""
        which = np.searchsorted(self.starts, indices, side="right") - 1
        out = np.empty((len(indices), *self.shape), dtype=np.uint8)
        for batch in np.unique(which):
            rows = which == batch
            out[rows] = self.batches[batch][indices[rows] - self.starts[batch]]
        return out


def _npz_member(path: Path, name: str) -> np.ndarray:
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(f"{name}.npy")
            if info.compress_type != zipfile.ZIP_STORED:
                with np.load(path) as arrays:
                    return arrays[name]
        with path.open("rb") as file:  # stored as it is: the array can be mapped where it lies
            file.seek(info.header_offset + 26)
            lengths = np.frombuffer(file.read(4), dtype="<u2")
            file.seek(info.header_offset + 30 + int(lengths.sum()))
            version = np.lib.format.read_magic(file)
            read = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            shape, fortran, dtype = read(file)
            order: Literal["C", "F"] = "F" if fortran else "C"
            return np.memmap(path, dtype, "r", offset=file.tell(), shape=shape, order=order)
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not an npz with {name!r}: {error}") from None


def _mapped(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not an npy array: {error}") from None


def _names(path: Path) -> list[str] | None:
    if not path.exists():
        return None
    try:
        names = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path} must be a list of names")
    return names


def _tenth(count: int, split: Split) -> slice:
    return slice(count - count // 10, None) if split == "test" else slice(count - count // 10)


def _lmdb_images(path: Path, shape: Shape) -> DecodedImages:
    try:
        import lmdb
    except ModuleNotFoundError:
        raise ValueError("lsun: needs the lmdb library: pip install 'macow[lmdb]'") from None
    database = lmdb.open(str(path), readonly=True, lock=False, readahead=False, meminit=False)
    with database.begin() as transaction, transaction.cursor() as cursor:
        keys = [bytes(key) for key in cursor.iternext(values=False)]

    def read(key: bytes) -> Image.Image:
        with database.begin() as transaction:
            return Image.open(BytesIO(transaction.get(key) or b""))

    return DecodedImages(keys, read, shape)
