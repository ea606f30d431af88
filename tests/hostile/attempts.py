"""What users do with files from strangers, one function a kind of file."""

import contextlib
import io
import os
from pathlib import Path

import numpy as np
import torch

from macow import data
from macow.cli import main
from macow.config import FlowConfig, ModelConfig
from macow.data.folder import image_files
from macow.original import load_original
from macow.pretrained import load
from macow.score import Reference

SHAPE = (3, 8, 8)
SMALL = ModelConfig(
    FlowConfig(steps=((1,),), hidden=(4,), bottom=False, units=1), channels=1, size=(4, 4)
)
FIXTURE = Path(__file__).parents[1] / "fixtures" / "original" / "uniform"


def command(*argv: str) -> int:
    """The command itself: a mistake must be one line on stderr and exit code 2."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    if code == 2:
        line = err.getvalue()
        assert line.startswith("macow: "), line
        assert line.count("\n") == 1, line
        assert line[:-1].isprintable(), line
        raise ValueError(line.removeprefix("macow: ").strip())
    return code


def image(folder: Path, content: bytes) -> str:
    """Decoded for scoring, and looked at for training."""
    path = folder / "image.png"
    path.write_bytes(content)
    ((_, found),) = data.each_image([path], SHAPE)
    if isinstance(found, str):
        raise ValueError(f"{path}: {found}")
    assert found.shape == SHAPE
    assert found.dtype == np.uint8
    images = image_files([path], SHAPE, folder)
    assert np.array_equal(images.one(0), found)
    return "an image"


def small_model(folder: Path) -> Path:
    """A folder of a small sound model, made once beside the scratch folders."""
    where = folder.parent / "small"
    if not where.exists():
        torch.manual_seed(0)
        model = SMALL.build()
        model.is_initialized = True
        model.save_pretrained(where)
    return where


def model_config(folder: Path, content: bytes) -> int:
    os.link(small_model(folder) / "model.safetensors", folder / "model.safetensors")
    (folder / "config.json").write_bytes(content)
    return command("check", str(folder), "--batch_size", "2")


def model_weights(folder: Path, content: bytes) -> str:
    os.link(small_model(folder) / "config.json", folder / "config.json")
    (folder / "model.safetensors").write_bytes(content)
    return type(load(folder)).__name__


def reference(folder: Path, content: bytes) -> float:
    path = folder / "reference.json"
    path.write_bytes(content)
    found = Reference.read(path)
    value = found.percentile(2.0)
    assert 0 <= value <= 100
    return value


def original_config(folder: Path, content: bytes) -> str:
    path = folder / "config.json"
    path.write_bytes(content)
    try:
        return type(load_original(path, FIXTURE / "model.pt", size=(8, 8))).__name__
    except ValueError as error:
        raise ValueError(str(error).replace(str(FIXTURE), str(folder))) from None


def original_weights(folder: Path, content: bytes) -> str:
    path = folder / "model.pt"
    path.write_bytes(content)
    return type(load_original(FIXTURE / "config.json", path, size=(8, 8))).__name__


def run_config(folder: Path, content: bytes) -> int:
    """Trains with it on images that are not there: the configuration is read before them."""
    path = folder / "config.yaml"
    path.write_bytes(content)
    argv = ["--data", f"folder:{folder}/nowhere", "--run", str(folder / "run")]
    return command("train", "--preset", "digits", "--config", str(path), *argv)


def run_temperature(folder: Path, content: bytes) -> int:
    for name in ("config.json", "model.safetensors"):
        os.link(small_model(folder) / name, folder / name)
    (folder / "config.yaml").write_bytes(content)
    return command("sample", str(folder), "--count", "1", "--out", str(folder / "out"), "--quiet")


def latents(folder: Path, content: bytes) -> int:
    path = folder / "latents.npz"
    path.write_bytes(content)
    model = str(small_model(folder))
    return command("decode", model, str(path), "--out", str(folder / "out"), "--quiet")


def packed(folder: Path, content: bytes) -> int:
    (folder / "train.npy").write_bytes(content)
    return len(data.load(f"packed:{folder}", "train", SHAPE))


def packed_labels(folder: Path, content: bytes) -> int:
    np.save(folder / "train.npy", np.zeros((2, *SHAPE), np.uint8))
    (folder / "train_labels.npy").write_bytes(content)
    images = data.load(f"packed:{folder}", "train", SHAPE)
    assert images.labels is None or len(images.labels) == len(images)
    return len(images)


def celebahq(folder: Path, content: bytes) -> int:
    path = folder / "all.npy"
    path.write_bytes(content)
    return len(data.load(f"celebahq:{path}", "train", SHAPE))


def imagenet64(folder: Path, content: bytes) -> int:
    (folder / "val_data.npz").write_bytes(content)
    images = data.load(f"imagenet64:{folder}", "test", (3, 64, 64))
    return len(images.take(np.arange(len(images))))


def cifar10_batch(folder: Path, content: bytes) -> int:
    (folder / "test_batch").write_bytes(content)
    return len(data.load(f"cifar10:{folder}", "test"))


def cifar10_archive(folder: Path, content: bytes) -> int:
    path = folder / "cifar.tar.gz"
    path.write_bytes(content)
    return len(data.load(f"cifar10:{path}", "test"))


def lsun(folder: Path, content: bytes) -> int:
    (folder / "x_val_lmdb").mkdir()
    (folder / "x_val_lmdb" / "data.mdb").write_bytes(content)
    return len(data.load(f"lsun:{folder}", "test", SHAPE))
