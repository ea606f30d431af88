"""Every source of images, on small files in exactly its layout."""

import io
import pickle
import tarfile

import lmdb
import numpy as np
import pytest
from PIL import Image

from macow import data
from macow.data.lmdb_file import LmdbFile

RNG = np.random.default_rng(0)


def picture(width=20, height=16, mode="RGB", seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


# digits


def test_digits_are_whole_and_split():
    train, test = data.load("digits", "train"), data.load("digits", "test")
    assert len(train) == 1437
    assert len(test) == 360
    assert train.shape == test.shape == (1, 8, 8)
    assert set(np.unique(train.array)) == set(range(0, 256, 16))
    assert np.bincount(np.concatenate([train.labels, test.labels])).min() > 170


# CIFAR-10


def cifar_rows(count, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 10, count), rng.integers(0, 256, (count, 3072), dtype=np.uint8)


BATCHES = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]


def write_binary(folder):
    folder.mkdir()
    for i, name in enumerate(BATCHES):
        labels, rows = cifar_rows(4, i)
        np.concatenate([labels[:, None].astype(np.uint8), rows], axis=1).tofile(
            folder / f"{name}.bin"
        )


def write_python(folder):
    folder.mkdir()
    for i, name in enumerate(BATCHES):
        labels, rows = cifar_rows(4, i)
        batch = {b"batch_label": b"x", b"labels": labels.tolist(), b"data": rows, b"filenames": []}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))


@pytest.mark.parametrize("packed", ["folder", "parent", "tar.gz"])
@pytest.mark.parametrize("layout", ["bin", "py"])
def test_cifar10_layouts(layout, packed, tmp_path):
    folder = tmp_path / f"cifar-10-batches-{layout}"
    (write_binary if layout == "bin" else write_python)(folder)
    path = {"folder": folder, "parent": tmp_path}.get(packed)
    if path is None:
        path = tmp_path / "cifar.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            archive.add(folder, arcname=folder.name)
    train, test = (data.load(f"cifar10:{path}", split) for split in ("train", "test"))
    assert (len(train), len(test)) == (20, 4)
    for i in range(5):
        labels, rows = cifar_rows(4, i)
        assert np.array_equal(train.array[4 * i : 4 * i + 4], rows.reshape(4, 3, 32, 32))
        assert np.array_equal(train.labels[4 * i : 4 * i + 4], labels)
    assert np.array_equal(test.array, cifar_rows(4, 5)[1].reshape(4, 3, 32, 32))


class Evil:
    def __reduce__(self):
        return (print, ("code was run",))


def test_cifar10_never_runs_what_a_pickle_asks_for(tmp_path, capsys):
    write_python(tmp_path / "cifar")
    (tmp_path / "cifar" / "test_batch").write_bytes(pickle.dumps({b"data": Evil()}))
    with pytest.raises(ValueError, match=r"test_batch is not a CIFAR-10 batch.*not allowed"):
        data.load(f"cifar10:{tmp_path / 'cifar'}", "test")
    assert capsys.readouterr().out == ""


def test_bad_cifar10_is_named(tmp_path):
    write_binary(tmp_path / "cifar")
    (tmp_path / "cifar" / "test_batch.bin").write_bytes(b"123")
    with pytest.raises(ValueError, match="3 bytes are not rows of 3073"):
        data.load(f"cifar10:{tmp_path / 'cifar'}", "test")
    (tmp_path / "cifar" / "data_batch_3.bin").unlink()
    with pytest.raises(ValueError, match="no CIFAR-10 batch data_batch_3"):
        data.load(f"cifar10:{tmp_path / 'cifar'}", "train")
    (tmp_path / "odd.tar.gz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="not a tar archive"):
        data.load(f"cifar10:{tmp_path / 'odd.tar.gz'}", "train")


# folders


def test_any_folder_will_do(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for i, mode in enumerate(["RGB", "L", "RGBA", "P", "1", "CMYK", "LA"]):
        suffix = {"CMYK": "jpg", "P": "gif"}.get(mode, "png")
        picture(20 + i, 16 + 3 * i, mode, i).save(tmp_path / "deep" / f"{mode}.{suffix}")
    sixteen = Image.fromarray(RNG.integers(0, 65536, (16, 16)).astype(np.uint16))
    sixteen.save(tmp_path / "deep" / "er" / "sixteen.png")
    train, test = (data.load(f"folder:{tmp_path}", split, (3, 8, 8)) for split in ("train", "test"))
    assert len(train) + len(test) == 8
    assert train.shape == (3, 8, 8)
    assert train.take(np.arange(len(train))).dtype == np.uint8
    assert not train.problems
    assert data.load(f"folder:{tmp_path}", "train", (1, 8, 8)).shape == (1, 8, 8)


def test_odd_files_are_named(tmp_path):
    for i in range(6):
        picture(seed=i).save(tmp_path / f"{i}.png")
    (tmp_path / "notes.txt").write_text("hello")
    picture(4, 4).save(tmp_path / "small.png")
    whole = (tmp_path / "0.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    found = [data.load(f"folder:{tmp_path}", split, (3, 8, 8)) for split in ("train", "test")]
    assert sum(map(len, found)) == 6
    problems = "\n".join({line for images in found for line in images.problems})
    assert "notes.txt: not an image" in problems
    assert "small.png: 4x4 is smaller than 8x8" in problems
    assert "cut.png" in problems


def test_the_split_goes_by_content(tmp_path):
    for i in range(60):
        picture(8, 8, seed=i).save(tmp_path / f"{i}.png")
    before = data.load(f"folder:{tmp_path}", "test", (3, 8, 8))
    assert 1 <= len(before) <= 15
    for path in list(tmp_path.iterdir()):
        path.rename(tmp_path / f"renamed_{path.name}")
    after = data.load(f"folder:{tmp_path}", "test", (3, 8, 8))
    assert {a.tobytes() for a in before.array} == {a.tobytes() for a in after.array}


def test_train_and_test_folders_are_taken_as_they_are(tmp_path):
    for name, count in (("train", 3), ("val", 2)):
        (tmp_path / name).mkdir()
        for i in range(count):
            picture(seed=i).save(tmp_path / name / f"{i}.png")
    assert len(data.load(f"folder:{tmp_path}", "train", (3, 8, 8))) == 3
    assert len(data.load(f"folder:{tmp_path}", "test", (3, 8, 8))) == 2


def test_images_are_upright_and_centred(tmp_path):
    left_red = np.zeros((8, 16, 3), np.uint8)
    left_red[:, :8, 0] = 255
    for name in ("a", "b"):
        image = Image.fromarray(left_red)
        exif = image.getexif()
        exif[0x0112] = 6  # to be turned clockwise: what is left goes up
        image.save(tmp_path / f"{name}.png", exif=exif, pnginfo=None)
    images = data.load(f"folder:{tmp_path}", "train", (3, 16, 8))
    top, bottom = images.array[0][0, :8], images.array[0][0, 8:]
    assert top.min() == 255
    assert bottom.max() == 0
    wide = np.zeros((8, 24, 3), np.uint8)
    wide[:, 8:16] = 200
    assert (data.images.fit(Image.fromarray(wide), (3, 8, 8)) == 200).all()
    assert np.array_equal(
        data.images.fit(picture(8, 8), (3, 8, 8)), np.asarray(picture(8, 8)).transpose(2, 0, 1)
    )


def test_transparency_lies_on_white():
    clear = Image.new("RGBA", (8, 8), (255, 0, 0, 0))
    assert (data.images.fit(clear, (3, 8, 8)) == 255).all()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("folder:{}/nowhere", "no such folder"),
        ("folder:{}", "no usable image among 0 files"),
        ("cifar10:{}/nowhere", "no such file or folder"),
        ("packed:{}", r"train.npy: no such file"),
        ("imagenet64:{}", "neither npz batches"),
        ("lsun:{}", "0 folders"),
        ("celebahq:{}/nowhere", "no such file or folder"),
        ("tapes:{}", "unknown data source 'tapes:"),
        ("cifar10", "cifar10 needs to know where: cifar10:PATH"),
        ("hf:{}/nowhere", "hf:"),
    ],
)
def test_missing_data_is_one_clear_line(source, message, tmp_path):
    with pytest.raises(ValueError, match=message) as caught:
        data.load(source.format(tmp_path), "train", (3, 8, 8))
    assert "\n" not in str(caught.value)


# the paper's sets


@pytest.mark.parametrize("compressed", [False, True])
def test_imagenet64_npz(compressed, tmp_path):
    save = np.savez_compressed if compressed else np.savez
    rows = {i: RNG.integers(0, 256, (5, 12288), dtype=np.uint8) for i in (1, 2)}
    for i, batch in rows.items():
        save(tmp_path / f"train_data_batch_{i}.npz", data=batch, labels=np.arange(1, 6))
    save(tmp_path / "val_data.npz", data=rows[1][:3], labels=np.arange(1, 4))
    train, test = (
        data.load(f"imagenet64:{tmp_path}", split, (3, 64, 64)) for split in ("train", "test")
    )
    assert (len(train), len(test)) == (10, 3)
    chosen = np.array([9, 0, 5])
    expected = np.stack([rows[2][4], rows[1][0], rows[2][0]]).reshape(3, 3, 64, 64)
    assert np.array_equal(train.take(chosen), expected)


def test_imagenet64_png(tmp_path):
    for name, count in (("train_64x64", 3), ("valid_64x64", 2)):
        (tmp_path / name).mkdir()
        for i in range(count):
            picture(64, 64, seed=i).save(tmp_path / name / f"{i:07d}.png")
    assert len(data.load(f"imagenet64:{tmp_path}", "train", (3, 64, 64))) == 3
    assert len(data.load(f"imagenet64:{tmp_path}", "test", (3, 64, 64))) == 2


def test_lsun(tmp_path):
    for name, count in (("bedroom_train_lmdb", 3), ("bedroom_val_lmdb", 2)):
        database = lmdb.open(str(tmp_path / name), map_size=1 << 20)
        with database, database.begin(write=True) as transaction:
            for i in range(count):
                encoded = io.BytesIO()
                picture(30, 24, seed=i).save(encoded, "webp", lossless=True)
                transaction.put(f"{i:040x}".encode(), encoded.getvalue())
    for path in (tmp_path, tmp_path / "bedroom"):
        train = data.load(f"lsun:{path}", "train", (3, 12, 12))
        assert len(train) == 3
        assert len(data.load(f"lsun:{path}", "test", (3, 12, 12))) == 2
    expected = data.images.fit(picture(30, 24, seed=1), (3, 12, 12))
    assert np.array_equal(train.take(np.array([1]))[0], expected)


@pytest.mark.parametrize("count", [0, 1, 60, 3000])
def test_lmdb_files_are_read_as_the_library_reads_them(count, tmp_path):
    rng = np.random.default_rng(count)
    with lmdb.open(str(tmp_path), map_size=1 << 28) as database:
        for part in range(3):  # several transactions, values within pages and on pages of their own
            with database.begin(write=True) as transaction:
                for i in range(part, count, 3):
                    value = rng.bytes(int(rng.choice([0, 10, 500, 1900, 3000, 9000])))
                    transaction.put(f"{rng.integers(1 << 60):x} {i}".encode(), value)
        with database.begin(write=True) as transaction:
            keys = [bytes(key) for key in transaction.cursor().iternext(values=False)]
            for key in keys[::7]:
                transaction.delete(key)
        with database.begin() as transaction:
            expected = [(bytes(k), bytes(v)) for k, v in transaction.cursor()]
    found = LmdbFile(tmp_path / "data.mdb")
    assert [(key, found.value(key)) for key in found.places] == expected


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_celebahq_npy(layout, tmp_path):
    array = RNG.integers(0, 256, (30, 3, 16, 16), dtype=np.uint8)
    stored = array if layout == "NCHW" else array.transpose(0, 2, 3, 1)
    np.save(tmp_path / "celebahq.npy", stored)
    source = f"celebahq:{tmp_path / 'celebahq.npy'}"
    train, test = (data.load(source, split, (3, 16, 16)) for split in ("train", "test"))
    assert (len(train), len(test)) == (27, 3)
    assert np.array_equal(test.take(np.arange(3)), array[27:])


def test_celebahq_folder(tmp_path):
    for i in range(10):
        picture(32, 32, seed=i).save(tmp_path / f"{i:05d}.png")
    assert len(data.load(f"celebahq:{tmp_path}", "train", (3, 16, 16))) == 9
    assert len(data.load(f"celebahq:{tmp_path}", "test", (3, 16, 16))) == 1


def test_hugging_face(tmp_path):
    import datasets

    for split, count in (("train", 4), ("test", 2)):
        columns = {"label": list(range(count)), "image": [picture(seed=i) for i in range(count)]}
        features = datasets.Features({"label": datasets.Value("int64"), "image": datasets.Image()})
        table = datasets.Dataset.from_dict(columns, features=features)
        table.to_parquet(str(tmp_path / f"{split}-00000-of-00001.parquet"))
    train, test = (data.load(f"hf:{tmp_path}", split, (3, 8, 8)) for split in ("train", "test"))
    assert (len(train), len(test)) == (4, 2)
    assert np.array_equal(train.take(np.array([2]))[0], data.images.fit(picture(seed=2), (3, 8, 8)))


def test_packed_is_mapped_not_read(tmp_path):
    for split in ("train", "test"):
        np.save(tmp_path / f"{split}.npy", RNG.integers(0, 256, (4, 3, 8, 8), dtype=np.uint8))
    images = data.load(f"packed:{tmp_path}", "train")
    assert isinstance(images.array, np.memmap)
    np.save(tmp_path / "train.npy", np.zeros((4, 8, 8)))
    with pytest.raises(ValueError, match=r"images must be uint8 \[N, C, H, W\], got float64"):
        data.load(f"packed:{tmp_path}", "train")


def test_images_of_one_shape_fit_a_model_of_another():
    images = data.load("digits", "test", (3, 4, 4))
    assert images.shape == (3, 4, 4)
    assert len(images) == 360
    assert len(images.labels) == 360
    with pytest.raises(ValueError, match="no usable test images; 0: 8x8 is smaller than 9x8"):
        data.load("digits", "test", (1, 8, 9))
    with pytest.raises(ValueError, match="'train' or 'test', got 'valid'"):
        data.load("digits", "valid")
