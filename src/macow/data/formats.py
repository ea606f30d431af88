"""The paper's other data sets, in the layouts they are published in."""

import json
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
from PIL import Image

from macow.data.arrays import mapped, npz_member
from macow.data.files import image_file
from macow.data.folder import files_below, image_files
from macow.data.images import ArrayImages, DecodedImages, Images, Shape, Split
from macow.data.lmdb_file import LmdbFile


def packed(path: Path, split: Split) -> ArrayImages:
    """`packed:DIR`: `train.npy` and `test.npy`, uint8 `[N, C, H, W]`, memory-mapped.

    Labels are numbers in `train_labels.npy`, their names a list in `train_labels.json`.
    """
    file, labels = path / f"{split}.npy", path / f"{split}_labels.npy"
    try:
        if not labels.exists():
            return ArrayImages(mapped(file))
        return ArrayImages(mapped(file), mapped(labels), _names(labels.with_suffix(".json")))
    except ValueError as error:
        raise ValueError(f"{path} ({split}): {error}") from None


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
        array = mapped(path)
        if array.ndim == 4 and array.shape[-1] == 3:
            array = array.transpose(0, 3, 1, 2)
        try:
            whole = ArrayImages(array)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        return ArrayImages(whole.array[_tenth(len(whole), split)])
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
    database = LmdbFile(databases[0] / "data.mdb")
    return DecodedImages([*database.places], lambda key: image_file(database.value(key)), shape)


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
    files = chosen.cast_column(columns[0], datasets.Image(decode=False))

    def read(index: int) -> AbstractContextManager[Image.Image]:
        file = files[index][columns[0]]
        return image_file(Path(file["path"]) if file["bytes"] is None else file["bytes"])

    images = DecodedImages(range(len(chosen)), read, shape)
    for column, kind in chosen.features.items():
        if isinstance(kind, datasets.ClassLabel) and min(chosen[column], default=0) >= 0:
            images.labels, images.label_names = np.array(chosen[column]), tuple(kind.names)
            break  # -1 means that the labels are not given away
    return images


class _NpzBatches(Images):
    """Rows of 3 x 64 x 64 bytes in several npz files, memory-mapped unless compressed."""

    shape: Shape = (3, 64, 64)

    def __init__(self, paths: list[Path]) -> None:
        self.batches = []
        for path in paths:
            rows = npz_member(path, "data")
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


def _names(path: Path) -> list[str] | None:
    if not path.exists():
        return None
    try:
        with path.open("rb") as file:
            names = json.loads(file.read(1 << 20))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is not JSON: {error}") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path.name} must be a list of names")
    return names


def _tenth(count: int, split: Split) -> slice:
    return slice(count - count // 10, None) if split == "test" else slice(count - count // 10)
