"""The paper's other data sets, in the layouts they are published in."""

import struct
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
from PIL import Image

from macow.data.arrays import mapped, npz_member
from macow.data.files import image_file
from macow.data.folder import files_below, image_files
from macow.data.images import ArrayImages, DecodedImages, Images, Shape, Split


def packed(path: Path, split: Split) -> ArrayImages:
    """`packed:DIR`: `train.npy` and `test.npy`, uint8 `[N, C, H, W]`, memory-mapped."""
    file, labels = path / f"{split}.npy", path / f"{split}_labels.npy"
    try:
        return ArrayImages(mapped(file), mapped(labels) if labels.exists() else None)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


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
    files = chosen.cast_column(columns[0], datasets.Image(decode=False))

    def read(index: int) -> AbstractContextManager[Image.Image]:
        file = files[index][columns[0]]
        return image_file(Path(file["path"]) if file["bytes"] is None else file["bytes"])

    return DecodedImages(range(len(chosen)), read, shape)


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


def _tenth(count: int, split: Split) -> slice:
    return slice(count - count // 10, None) if split == "test" else slice(count - count // 10)


def _lmdb_images(path: Path, shape: Shape) -> DecodedImages:
    try:
        import lmdb
    except ModuleNotFoundError:
        raise ValueError("lsun: needs the lmdb library: pip install 'macow[lmdb]'") from None
    _require_whole(path / "data.mdb")
    try:
        database = lmdb.open(str(path), readonly=True, lock=False, readahead=False, meminit=False)
        with database.begin() as transaction, transaction.cursor() as cursor:
            keys = [bytes(key) for key in cursor.iternext(values=False)]
    except lmdb.Error as error:
        raise ValueError(f"{path} is damaged: {error}") from None

    def read(key: bytes) -> AbstractContextManager[Image.Image]:
        try:
            with database.begin() as transaction:
                return image_file(transaction.get(key) or b"")
        except lmdb.Error as error:
            raise ValueError(f"{path} is damaged: {error}") from None

    return DecodedImages(keys, read, shape)


def _require_whole(path: Path) -> None:
    """Its last page must be there: the library maps the file, and a missing page is a crash."""
    with path.open("rb") as file:
        start = file.read(16 + 136)
        if len(start) < 16 + 136 or struct.unpack_from("<I", start, 16)[0] != 0xBEEFC0DE:
            raise ValueError(f"{path} is damaged: it is no lmdb file")
        page = struct.unpack_from("<I", start, 16 + 24)[0]
        file.seek(page)
        start += file.read(16 + 136)
    if len(start) < 2 * (16 + 136):
        raise ValueError(f"{path} is damaged: it is cut off")
    last = max(struct.unpack_from("<Q", start, offset + 16 + 120)[0] for offset in (0, 16 + 136))
    if page * (last + 1) > path.stat().st_size:
        raise ValueError(f"{path} is damaged: it is cut off")
