"""Checkpoints are whole or not there, and know when they are damaged."""

import json

import pytest
import torch

from macow.train import checkpoint

TENSORS = {"model": {"a": torch.arange(3.0)}, "optimizer": {"0.step": torch.tensor(4.0)}}


def test_what_is_saved_is_loaded(tmp_path):
    checkpoint.save(tmp_path, 7, TENSORS, {"skipped": 2})
    tensors, numbers = checkpoint.load_newest(tmp_path)
    assert numbers == {"step": 7, "skipped": 2}
    assert torch.equal(tensors["model"]["a"], TENSORS["model"]["a"])
    assert tensors["optimizer"]["0.step"].shape == ()
    assert [path.name for path in tmp_path.iterdir()] == ["step_7"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: (c / "model.safetensors").write_bytes(b"short"),
        lambda c: (c / "model.safetensors").unlink(),
        lambda c: (c / "state.json").write_text("{}"),
        lambda c: (c / "manifest.json").unlink(),
        lambda c: (c / "manifest.json").write_text("[]"),
    ],
)
def test_a_damaged_one_is_passed_over(damage, tmp_path):
    checkpoint.save(tmp_path, 1, TENSORS, {})
    damage(checkpoint.save(tmp_path, 2, TENSORS, {}))
    with pytest.warns(UserWarning, match="step_2"):
        _, numbers = checkpoint.load_newest(tmp_path)
    assert numbers["step"] == 1


def test_a_flipped_bit_is_noticed(tmp_path):
    file = checkpoint.save(tmp_path, 1, TENSORS, {}) / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(
        ValueError, match=r"none of the 1.*model.safetensors is not what was written"
    ):
        checkpoint.load_newest(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step_1"]


def test_the_last_and_the_best_are_kept(tmp_path):
    for step in (1, 2, 10, 20, 30):
        checkpoint.save(tmp_path, step, TENSORS, {})
    checkpoint.prune(tmp_path, keep=2, best=2)
    assert [path.name for path in checkpoint.steps(tmp_path)] == ["step_2", "step_20", "step_30"]
    assert json.loads((tmp_path / "step_2" / "state.json").read_text())["step"] == 2
