"""What a run is careful about: its folder, its data, its disk, and giving back the best."""

import errno
import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import macow.cli
from macow import data
from macow.train import checkpoint, fit
from macow.train.loop import Trainer
from small_runs import SMALL, changed, rows, state


def pictures(folder, count, seed=0):
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(seed)
    for i in range(count):
        pixels = rng.integers(0, 256, (9, 9), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    return f"folder:{folder}"


def test_the_best_model_is_given_back(tmp_path, monkeypatch):
    original = Trainer.update

    def update(self):
        if self.step == 3:  # from here on it only gets worse
            with torch.no_grad():
                self.shown.flow.level1["block0"].step0.glow.norm.log_scale.add_(3.0)
        return original(self)

    monkeypatch.setattr(Trainer, "update", update)
    model = fit(changed(ema=0.0), "digits", tmp_path, quiet=True)
    tested = [row["test_bits"] for row in rows(tmp_path) if "test_bits" in row]
    assert tested[1] > tested[0]
    expected = state(tmp_path, 3)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, expected[f"model.{name}"])


def test_changed_images_are_noticed(tmp_path):
    source = pictures(tmp_path / "pictures", 30)
    run = tmp_path / "run"
    fit(changed(steps=2), source, run, quiet=True)
    pictures(tmp_path / "pictures", 35)
    with pytest.raises(ValueError, match="are not those that .* began with"):
        fit(SMALL, source, run, quiet=True)


def test_a_run_that_learnt_nothing_locks_no_folder(tmp_path):
    with pytest.raises(ValueError, match="[Ii]nvalid beta"):
        fit(changed(betas=(1.0, 0.9)), "digits", tmp_path, quiet=True)
    fit(changed(steps=2), "digits", tmp_path, quiet=True)


def test_two_runs_do_not_share_a_folder(tmp_path, monkeypatch):
    original = Trainer.update

    def update(self):
        monkeypatch.setattr(Trainer, "update", original)
        with pytest.raises(ValueError, match="another process is training in"):
            fit(SMALL, "digits", tmp_path, quiet=True)
        return original(self)

    monkeypatch.setattr(Trainer, "update", update)
    fit(SMALL, "digits", tmp_path, quiet=True)


def test_a_model_folder_is_no_run_folder(tmp_path):
    macow.load("digits").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="holds a model, not a run"):
        fit(SMALL, "digits", tmp_path, quiet=True)


def test_a_full_disk_does_not_end_the_run(tmp_path, monkeypatch, capsys):
    original = checkpoint.write

    def full(folder, step, content):
        if step == 4:
            raise OSError(errno.ENOSPC, "No space left on device", str(folder))
        return original(folder, step, content)

    monkeypatch.setattr(checkpoint, "write", full)
    fit(SMALL, "digits", tmp_path)
    assert "step 4: no checkpoint" in capsys.readouterr().err
    assert not list((tmp_path / "checkpoints").glob(".writing*"))
    assert state(tmp_path, 6)


@pytest.mark.parametrize("ends", [{"schedule": "cosine"}, {"shift": 1, "shift_until": 0.5}])
def test_what_ends_with_a_run_keeps_its_length(ends, tmp_path):
    config = changed(steps=2, **ends)
    fit(config, "digits", tmp_path, quiet=True)
    longer = replace(config, train=replace(config.train, steps=4))
    with pytest.raises(ValueError, match="train.steps 2, not 4"):
        fit(longer, "digits", tmp_path, quiet=True)


def test_memory_at_the_start_counts_too(tmp_path, monkeypatch):
    def begin(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("macow.train.loop.first_weights", begin)
    with pytest.raises(MemoryError, match="64 to initialise.*fewer --train.init_images"):
        fit(SMALL, "digits", tmp_path, quiet=True)


def test_figures_are_float32_when_training_is_not(tmp_path):
    fit(changed(ema=0.0, precision="bfloat16"), "digits", tmp_path, quiet=True)
    best = min(row["test_bits"] for row in rows(tmp_path) if "test_bits" in row)
    model = macow.load(tmp_path)
    result = macow.evaluate.evaluate(
        model, data.load("digits", "test"), batch_size=16, limit=32, seed=0
    )
    assert result.bits_per_dim == pytest.approx(best, abs=1e-6)


@pytest.mark.filterwarnings("ignore:left out")
def test_a_stream_with_a_broken_image_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "IN_MEMORY", 0)
    source = pictures(tmp_path / "pictures", 30)
    images = data.load(source, "train", (1, 8, 8))
    broken = images.items[3]
    whole = broken.read_bytes()
    broken.write_bytes(whole[: len(whole) - 40])
    taken = images.take(np.array([2, 3]))
    assert np.array_equal(taken[1], images.one(4))
    assert len(images.problems) == 1
    assert broken.name in images.problems[0]
    fit(changed(steps=4), source, tmp_path / "run", quiet=True)


def test_packing_leaves_out_what_cannot_be_read(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(data, "IN_MEMORY", 0)
    source = pictures(tmp_path / "pictures", 30)
    count = len(data.load(source, "train", (1, 8, 8)))
    broken = data.load(source, "train", (1, 8, 8)).items[0]
    whole = broken.read_bytes()
    broken.write_bytes(whole[: len(whole) - 40])
    argv = ["data", "pack", source, str(tmp_path / "packed"), "--size", "8,8", "--channels", "1"]
    assert macow.cli.main(argv) == 0
    assert "left out" in capsys.readouterr().out
    sizes = [len(np.load(tmp_path / "packed" / f"{s}.npy")) for s in ("train", "test")]
    assert sum(sizes) == 29
    assert count in (sizes[0], sizes[0] + 1)
    fit(changed(steps=2), f"packed:{tmp_path / 'packed'}", tmp_path / "run", quiet=True)


def test_env_says_where_it_began(tmp_path):
    fit(changed(steps=2), "digits", tmp_path, quiet=True)
    environment = json.loads((tmp_path / "env.json").read_text())
    assert environment["torch"] == torch.__version__
    assert environment["processes"] == 1
    assert "commit" in environment
    assert os.listdir(tmp_path / "tensorboard")
