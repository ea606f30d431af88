"""A disk that is full, limited or read-only costs a checkpoint, not the run."""

import json
import os
import resource
import shutil
import tempfile
from pathlib import Path

import pytest

import children
import macow.cli
from macow.train import checkpoint, fit
from macow.train.loop import Trainer
from small_runs import SMALL, assert_same_outcome, assert_same_state, changed, outcome, state, train

NOBODY = 65534
LONGER = changed(steps=12)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight")
    run, log = folder / "run", folder / "log"
    assert children.run(children.touching, run, log, 0, train, LONGER, run) == 0
    return run, json.loads(log.read_text())


def touching_full(folder, log, at, lasting, function, *args):
    children.touching(folder, log, at, function, *args, kind="full", lasting=lasting)


@pytest.mark.parametrize("lasting", [1, 12])
@pytest.mark.parametrize("part", range(6))
def test_a_disk_full_for_a_while_costs_no_work(part, lasting, straight, tmp_path):
    begun = max(i for i, what in enumerate(straight[1]) if "env.json" in what) + 3
    at = begun + part * (len(straight[1]) - begun) // 12
    run, said = tmp_path / "run", tmp_path / "said"
    log = tmp_path / "log"
    code = children.run(touching_full, run, log, at, lasting, train, LONGER, run, said=said)
    assert code == 0, said.read_text()
    assert_same_state(state(run, 12), state(straight[0], 12))
    assert macow.load(run).is_initialized
    assert not list(run.rglob("*.part"))
    assert not list(run.rglob(".writing"))


def limited(run, begins, ends):
    """Trains while, for some steps, no file may grow beyond 16 kB: a real error of writing."""
    original = Trainer.update
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)

    def update(self):
        self.saver.wait()
        tight = begins <= self.step < ends
        limit = (16_000, unlimited[1]) if tight else unlimited
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        return original(self)

    Trainer.update = update
    fit(changed(sample_temperatures=()), "digits", run)


def test_files_that_may_not_grow_cost_a_checkpoint(tmp_path):
    run, said = tmp_path / "run", tmp_path / "said"
    assert children.run(limited, run, 3, 5, said=said) == 0
    printed = said.read_text()
    assert "step 4: no checkpoint" in printed
    assert "File too large" in printed
    assert "training goes on" in printed
    kept = [path.name for path in checkpoint.steps(run / "checkpoints")]
    assert kept == ["step_3", "step_6"]
    fit(changed(sample_temperatures=()), "digits", tmp_path / "straight", quiet=True)
    assert_same_outcome(outcome(run, 6), outcome(tmp_path / "straight", 6))


def test_a_last_step_that_cannot_be_saved_is_a_failure(tmp_path):
    said = tmp_path / "said"
    assert children.run(limited, tmp_path / "run", 5, 99, said=said) == 1
    assert "OSError: the last step could not be saved: " in said.read_text()
    assert checkpoint.load_newest(tmp_path / "run" / "checkpoints")[1]["step"] == 4
    assert children.run(train, changed(sample_temperatures=()), tmp_path / "run") == 0
    assert state(tmp_path / "run", 6)


def test_room_is_looked_for_before_writing(tmp_path, monkeypatch):
    tensors = {"model": {}, "optimizer": {}}
    checkpoint.save(tmp_path, 1, tensors, {})
    monkeypatch.setattr(
        "shutil.disk_usage", lambda path: shutil._ntuple_diskusage(10**6, 10**6, 2**20)
    )
    with pytest.raises(OSError, match="No space left: 1 MB are needed, 1 free"):
        checkpoint.save(tmp_path, 2, tensors, {})
    assert [path.name for path in tmp_path.iterdir()] == ["step_1"]


def test_a_run_that_filled_its_disk_goes_on(tmp_path, monkeypatch):
    fit(changed(steps=5, keep=4), "digits", tmp_path, quiet=True)
    assert len(checkpoint.steps(tmp_path / "checkpoints")) == 4
    size = sum(p.numel() * 4 for p in macow.load(tmp_path).parameters())
    room = 8 * size
    monkeypatch.setattr(checkpoint, "MARGIN", 0)
    monkeypatch.setattr("shutil.disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, room))
    fit(changed(keep=4), "digits", tmp_path, quiet=True)
    assert state(tmp_path, 6)


@pytest.fixture
def open_folder():
    """A folder an unprivileged user may enter, which pytest's own are not."""
    children.require_open_checkout()
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    if os.getuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


def as_nobody():
    if os.getuid() == 0:
        with tempfile.TemporaryDirectory() as folder:  # imports what it may not read later
            macow.cli.main(command(Path(folder) / "run", steps=1))
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def command(run, steps):
    argv = ["train", "--preset", "digits", "--data", "digits", "--run", str(run)]
    return [*argv, "--train.steps", str(steps), "--train.init_images", "32"]


def denied(folder):
    """The plain operation must be denied, or nothing is tested."""
    try:
        (folder / "probe").write_text("")
    except PermissionError:
        return
    raise AssertionError(f"{folder} can be written")


def becomes_read_only(run):
    as_nobody()
    original = Trainer.update
    folders = [run, run / "checkpoints", run / "samples"]

    def update(self):
        self.saver.wait()
        for folder in folders:
            folder.chmod(0o555 if self.step == 3 else 0o755)
        if self.step == 3:
            denied(run / "checkpoints")
        return original(self)

    Trainer.update = update
    fit(SMALL, "digits", run)


def test_a_folder_that_becomes_read_only_costs_a_checkpoint(open_folder, tmp_path):
    run, said = open_folder / "run", tmp_path / "said"
    assert children.run(becomes_read_only, run, said=said) == 0
    assert "step 4: no checkpoint, [Errno 13] Permission denied" in said.read_text()
    fit(SMALL, "digits", tmp_path / "straight", quiet=True)
    assert_same_outcome(outcome(run, 6), outcome(tmp_path / "straight", 6))


def command_in_read_only(run, *, locked):
    as_nobody()
    if locked:
        (run / ".lock").chmod(0o444)
        for folder in (run, run / "checkpoints"):
            folder.chmod(0o555)
    denied(run if locked else run.parent)
    os._exit(macow.cli.main(command(run, steps=1)))


def first_steps(run):
    as_nobody()
    assert macow.cli.main(command(run, steps=0)) == 0


@pytest.mark.parametrize("locked", [False, True], ids=["new", "old"])
def test_a_read_only_folder_is_said_in_one_line(locked, open_folder, tmp_path):
    run = open_folder / "run"
    if locked:
        assert children.run(first_steps, run) == 0
    else:
        open_folder.chmod(0o555)
    said = tmp_path / "said"
    assert children.run(command_in_read_only, run, locked=locked, said=said) == 2
    (line,) = [line for line in said.read_text().splitlines() if line.startswith("macow:")]
    assert str(run) in line
    assert "Permission denied" in line


def unreadable_checkpoint(run):
    as_nobody()
    train(SMALL, run)
    newest = checkpoint.steps(run / "checkpoints")[-1]
    newest.chmod(0)
    try:
        list(newest.iterdir())
    except PermissionError:
        pass
    else:
        raise AssertionError("it can be read")
    try:
        train(SMALL, run)
    except PermissionError:
        os._exit(13)


def test_a_checkpoint_that_may_not_be_read_is_not_put_aside(open_folder):
    assert children.run(unreadable_checkpoint, open_folder / "run") == 13
    assert checkpoint.steps(open_folder / "run" / "checkpoints")[-1].name == "step_6"
