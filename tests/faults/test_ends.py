"""Signals, a process that dies, data that vanishes, values that are not finite."""

import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image

import children
import macow.cli.train
from macow import data, distribution
from macow.model import FlowModel
from macow.train import checkpoint, fit
from macow.train.loop import Trainer
from small_runs import SMALL, assert_same_outcome, changed, outcome, rows, state, train

ENDLESS = changed(steps=10_000, save_every=10_000, eval_every=10_000, log_every=10_000)


def marked(config, run, mark, pause=0.0):
    """Trains, and from the third update on each begins with a file and a pause."""
    original = Trainer.update

    def update(self):
        if self.step == 2:
            mark.with_name(f"{mark.name}{distribution.rank()}").touch()
        if self.step >= 2:
            time.sleep(pause)
        return original(self)

    Trainer.update = update
    try:
        fit(config, "digits", run, quiet=True)
    except KeyboardInterrupt:
        os._exit(130)


CODES = [(signal.SIGTERM, 143), (signal.SIGINT, 130)]


@pytest.mark.parametrize(("number", "code"), CODES)
def test_a_signal_finishes_the_step_and_saves(number, code, tmp_path):
    run = tmp_path / "run"
    process = children.begin(marked, ENDLESS, run, tmp_path / "mark")
    children.wait_for((tmp_path / "mark0").exists)
    os.kill(process.pid, number)
    assert children.end(process) == code
    step = int(checkpoint.steps(run / "checkpoints")[-1].name[5:])
    assert step >= 2
    straight = tmp_path / "straight"
    fit(changed(ENDLESS, steps=step), "digits", straight, quiet=True)
    for name, tensor in state(straight, step).items():
        if not name.startswith("recent."):
            assert torch.equal(state(run, step)[name], tensor), name


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(number, tmp_path):
    process = children.begin(marked, ENDLESS, tmp_path / "run", tmp_path / "mark", 30)
    children.wait_for((tmp_path / "mark0").exists)
    os.kill(process.pid, number)
    time.sleep(1.5)  # a second one that comes before the first is handled is no second one
    began = time.monotonic()
    os.kill(process.pid, number)
    assert children.end(process) in (-number, 130)
    assert time.monotonic() - began < 10
    assert not checkpoint.steps(tmp_path / "run" / "checkpoints")


@pytest.mark.parametrize(("number", "code"), CODES)
@pytest.mark.parametrize("count", [1, 2])
def test_a_signal_that_is_passed_on_is_one_signal(count, number, code, tmp_path):
    run = tmp_path / "run"
    processes = children.together(count, marked, ENDLESS, run, tmp_path / "mark", 1)
    for rank in range(count):
        children.wait_for((tmp_path / f"mark{rank}").exists)
    for process in processes + processes:
        os.kill(process.pid, number)
        time.sleep(0.05)
    assert [children.end(process) for process in processes] == [code] * count
    assert len(checkpoint.steps(run / "checkpoints")) == 1


def dies(config, run, rank, at):
    """One process of several is killed before a step; the command says what it says."""
    original = Trainer.update

    def update(self):
        if self.step == at and distribution.rank() == rank:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self)

    Trainer.update = update
    macow.cli.train.fit = lambda *_, device, **__: fit(config, "digits", run, device=device)
    argv = ["train", "--preset", "digits", "--data", "digits", "--run", str(run)]
    os._exit(macow.cli.main(argv))


@pytest.mark.parametrize("dead", [0, 1])
def test_when_one_dies_the_others_say_so_and_end(dead, tmp_path):
    run = tmp_path / "run"
    processes = children.together(2, dies, SMALL, run, dead, 5, said=tmp_path / "said", joins=True)
    codes = [children.end(process, timeout=60) for process in processes]
    assert codes[dead] == -9
    assert codes[1 - dead] == 2
    said = (tmp_path / f"said{1 - dead}").read_text()
    assert "another process of this run has ended" in said
    assert "Traceback" not in said
    codes = [children.end(process) for process in children.together(2, train, SMALL, run)]
    assert codes == [0, 0]
    straight = tmp_path / "straight"
    assert [children.end(p) for p in children.together(2, train, SMALL, straight)] == [0, 0]
    assert_same_outcome(outcome(run, 6), outcome(straight, 6))


SCRIPT = """
import os, signal, sys
from macow.cli import main
from macow.train.loop import Trainer
original = Trainer.update
def update(self):
    if self.step == 3 and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self)
Trainer.update = update
sys.exit(main(sys.argv[1:]))
"""


def test_under_torchrun_nothing_hangs(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [
        "--",
        str(tmp_path / "script.py"),
        "train",
        "--preset",
        "digits",
        "--data",
        "digits",
    ]
    command += ["--run", str(tmp_path / "run"), "--train.save_every", "2", "--train.steps", "9"]
    command += ["--train.init_images", "32", "--train.batch_size", "16"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "macow: another process of this run has ended" in done.stderr
    assert checkpoint.load_newest(tmp_path / "run" / "checkpoints")[1]["step"] == 2


def pictures(folder, count):
    rng = np.random.default_rng(0)
    folder.mkdir()
    for i in range(count):
        Image.fromarray(rng.integers(0, 256, (9, 9), dtype=np.uint8)).save(folder / f"{i}.png")
    return f"folder:{folder}"


def files_vanish(run, source, at, *, all_of_them):
    """Streams a folder's pictures, of which one or all are removed in the midst of the run."""
    data.IN_MEMORY = 0
    macow.train.batches.IN_MEMORY = 0
    original = Trainer.update

    def update(self):
        if self.step == at:
            gone = self.train.items if all_of_them else self.train.items[:1]
            for item in gone:
                item.unlink()
        return original(self)

    Trainer.update = update
    macow.cli.train.fit = lambda *_, **__: fit(changed(steps=12), source, run)
    argv = ["train", "--preset", "digits", "--data", source, "--run", str(run)]
    os._exit(macow.cli.main(argv))


def test_a_picture_that_vanishes_is_named_and_left_out(tmp_path):
    source, said = pictures(tmp_path / "pictures", 40), tmp_path / "said"
    run = tmp_path / "run"
    assert children.run(files_vanish, run, source, 5, all_of_them=False, said=said) == 0
    assert ".png: no such file" in said.read_text()
    assert all(tensor.isfinite().all() for tensor in state(tmp_path / "run", 12).values())


def test_when_all_vanish_the_run_ends_in_one_line(tmp_path):
    source, said = pictures(tmp_path / "pictures", 40), tmp_path / "said"
    assert children.run(files_vanish, tmp_path / "run", source, 5, all_of_them=True, said=said) == 2
    assert "macow: ten images in a row cannot be read" in said.read_text()
    assert "Traceback" not in said.read_text()
    assert checkpoint.load_newest(tmp_path / "run" / "checkpoints")[1]["step"] >= 4


LAYER = "flow.level1.block0.step0.glow.norm"


def poison(where, value, at):
    """Puts a value that is not finite into the loss, a gradient or the input of one update."""
    original = Trainer.update
    forward, continuous = FlowModel.forward, FlowModel.continuous

    def update(self):
        if self.step != at:
            return original(self)
        parameter = dict(self.model.named_parameters())[f"{LAYER}.shift"]
        hook = None
        if where == "loss":
            FlowModel.forward = lambda self, *args, **kwargs: forward(self, *args, **kwargs) + value
        elif where == "gradient":
            hook = parameter.register_hook(lambda gradient: gradient + value)
        else:
            FlowModel.continuous = lambda self, images, u: continuous(self, images, u) + value
        before = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        moments = checkpoint.optimizer_tensors(self.optimizer)
        moments = {name: tensor.clone() for name, tensor in moments.items()}
        result = original(self)
        FlowModel.forward, FlowModel.continuous = forward, continuous
        if hook is not None:
            hook.remove()
        assert all(torch.equal(t, before[n]) for n, t in self.model.state_dict().items())
        after = checkpoint.optimizer_tensors(self.optimizer)
        assert all(torch.equal(t, moments[n]) for n, t in after.items())
        return result

    Trainer.update = update


def poisoned(run, where, value, die_at=None):
    poison(where, value, 2)
    train(SMALL, run, die_at, quiet=False)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("where", "named"),
    [
        ("loss", "the loss alone"),
        ("gradient", f"the gradient of {LAYER}.shift"),
        ("input", "the output of flow.level1"),
    ],
)
def test_what_is_not_finite_is_skipped_and_named(where, named, value, tmp_path):
    run, said = tmp_path / "run", tmp_path / "said"
    assert children.run(poisoned, run, where, value, 5, said=said) == -9
    assert f"step 3: skipped, {named}" in said.read_text()
    assert children.run(poisoned, run, where, value) == 0
    assert children.run(poisoned, tmp_path / "straight", where, value) == 0
    assert_same_outcome(outcome(run, 6), outcome(tmp_path / "straight", 6))
    assert all(tensor.isfinite().all() for tensor in state(run, 6).values())
    assert [row["skipped"] for row in rows(run) if "skipped" in row] == [0, 1, 1]
    numbers = json.loads((run / "checkpoints" / "step_6" / "state.json").read_text())
    assert numbers["skipped"] == 1
