"""Killed at every touch of its files, a save leaves the old or the new, and a run goes on."""

import json
import re
import shutil
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import torch

import children
import macow
from macow.train import checkpoint
from models import tiny_config, tiny_model
from small_runs import assert_same_outcome, assert_same_state, changed, outcome, train

KILLED = -9
PARTS = 8
CONFIG = changed(log_every=3)


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda handle: None)


def tensors(value):
    return {
        "model": {"a": torch.full((300,), value)},
        "average": {"module.a": torch.full((300,), value)},
        "optimizer": {"0.step": torch.tensor(value)},
        "recent": {"bits": torch.zeros(0)},
    }


def save(folder, step):
    checkpoint.save(folder, step, tensors(float(step)), {})
    checkpoint.prune(folder, 2, None)


def killed_at_every_touch(tmp_path, prepare, function, *args):
    """A fresh folder for each touch, and what the process that died there left in it."""
    folder, log = tmp_path / "folder", tmp_path / "log"
    for at in count(1):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        prepare(folder)
        code = children.run(children.touching, folder, log, at, function, *args)
        yield at, folder
        if code == 0:
            assert len(json.loads(log.read_text())) == at - 1
            return
        assert code == KILLED


def before(folder):
    for step in (1, 2, 3):
        save(folder, step)


def before_and_left_overs(folder):
    before(folder)
    for name in (".writing", ".replaced"):
        shutil.copytree(folder / "step_3", folder / name)


@pytest.mark.parametrize("step", [4, 3], ids=["new", "again"])
@pytest.mark.parametrize("prepare", [before, before_and_left_overs])
def test_a_killed_save_leaves_the_old_or_the_new(prepare, step, tmp_path):
    found = []
    for at, folder in killed_at_every_touch(tmp_path, prepare, save, tmp_path / "folder", step):
        loaded, numbers = checkpoint.load_newest(folder)
        found.append(numbers["step"])
        assert found[-1] in (2, 3, 4)
        for group, wanted in tensors(float(found[-1])).items():
            for name, tensor in wanted.items():
                assert torch.equal(loaded[group][name], tensor), (at, name)
        save(folder, 5)
        assert checkpoint.load_newest(folder)[1]["step"] == 5
        assert not list(folder.glob(".*")), "a killed save's files are cleared away"
    assert len(found) >= 20
    assert found[-1] == step
    if step == 4:
        assert found == sorted(found), "once it is new it stays new"
        assert set(found) == {3, 4}


def export(folder, changed):
    torch.manual_seed(1)
    model = tiny_model()
    if changed:
        model.config = replace(model.config, n_bits=5)
    model.save_pretrained(folder)


@pytest.mark.parametrize("another", [False, True])
def test_a_killed_export_leaves_the_old_or_the_new(another, tmp_path):
    old = tiny_model()
    torch.manual_seed(1)
    new = tiny_model()
    found = []

    def prepare(folder):
        old.save_pretrained(folder)
        (folder / "reference.json").write_text("of the old weights")

    for _, folder in killed_at_every_touch(tmp_path, prepare, export, tmp_path / "folder", another):
        if not (folder / "config.json").exists():
            with pytest.raises(ValueError, match="it has no config.json"):
                macow.load(folder)
            found.append("none")
            continue
        model = macow.load(folder)
        which = "new" if torch.equal(next(model.parameters()), next(new.parameters())) else "old"
        assert_same_state(model.state_dict(), {"old": old, "new": new}[which].state_dict())
        assert model.n_bits == (5 if another and which == "new" else tiny_config().n_bits)
        assert which == "old" or not (folder / "reference.json").exists()
        found.append(which)
    assert found[0] == "old"
    assert found[-1] == "new"
    assert ("none" in found) == another, "weights never stand beside another configuration"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A run nobody disturbs, and its touches of each kind of file."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run, log = folder / "run", folder / "log"
    assert children.run(children.touching, run, log, 0, train, CONFIG, run) == 0
    kinds = {}
    for at, touch in enumerate(json.loads(log.read_text()), 1):
        what, path = touch.split(" ", 1)
        kinds.setdefault((what, re.sub(r"\d+", "N", Path(path).name)), []).append(at)
    return outcome(run, 6), kinds


@pytest.mark.parametrize("part", range(PARTS))
def test_a_run_killed_anywhere_is_the_same_run(part, undisturbed, tmp_path):
    wanted, kinds = undisturbed
    assert len(kinds) > 40
    assert ("write", "model.safetensors.part") in kinds
    for kind in sorted(kinds)[part::PARTS]:
        at = kinds[kind][len(kinds[kind]) // 2]
        run = tmp_path / "_".join(kind)
        code = children.run(children.touching, run, tmp_path / "log", at, train, CONFIG, run)
        assert code == KILLED
        if (run / "config.json").exists():
            macow.load(run)
        assert children.run(train, CONFIG, run) == 0
        assert_same_outcome(outcome(run, 6), wanted)
