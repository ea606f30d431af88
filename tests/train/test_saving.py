"""Checkpoints beside the training: one at a time, none forgotten, failures said."""

import errno
import threading

import pytest
import torch

from macow.config import TrainConfig
from macow.train import checkpoint
from macow.train.console import Console
from macow.train.saving import Saver

TENSORS = {"model": {"a": torch.zeros(3)}, "optimizer": {}}


@pytest.fixture
def saver(tmp_path):
    return Saver(tmp_path, 2, Console(quiet=False))


def steps(folder):
    return [path.name for path in checkpoint.steps(folder)]


def test_training_goes_on_beside_a_save(saver, tmp_path, monkeypatch):
    go, at_once, most = threading.Event(), 0, 0
    original = checkpoint.write

    def write(*args):
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        go.wait(10)
        original(*args)
        at_once -= 1

    monkeypatch.setattr(checkpoint, "write", write)
    state = {"model": {"a": torch.zeros(3)}, "optimizer": {}}
    saver.save(1, state, {}, None)
    state["model"]["a"].fill_(7.0)  # training goes on
    saver.save(1, state, {}, None)  # the same step: nothing to wait for
    assert steps(tmp_path) == []
    go.set()
    for step in (2, 3):
        saver.save(step, state, {}, None)
    saver.wait()
    assert steps(tmp_path) == ["step_2", "step_3"]
    assert most == 1
    saver.save(4, state, {}, 3)
    saver.wait()
    checkpoint.load(tmp_path / "step_4")


def test_what_is_saved_is_the_state_of_the_moment(saver, tmp_path):
    state = {"model": {"a": torch.zeros(3)}, "optimizer": {}}
    saver.save(1, state, {}, None)
    state["model"]["a"].fill_(7.0)
    saver.wait()
    assert not checkpoint.load(tmp_path / "step_1")[0]["model"]["a"].any()


def test_a_failed_save_is_said_and_the_next_tries_again(saver, tmp_path, monkeypatch, capsys):
    def write(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    saver.save(1, TENSORS, {}, None)
    saver.wait()
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write", write)
        saver.save(2, TENSORS, {}, None)
        saver.wait()
    assert "step 2: no checkpoint, [Errno 28] No space left on device; training goes on" in (
        capsys.readouterr().err
    )
    assert steps(tmp_path) == ["step_1"]
    saver.save(2, TENSORS, {}, None)
    saver.wait()
    assert steps(tmp_path) == ["step_1", "step_2"]


def test_a_mistake_in_the_thread_is_raised(saver, monkeypatch):
    def write(*_):
        raise AssertionError("ours")

    monkeypatch.setattr(checkpoint, "write", write)
    saver.save(1, TENSORS, {}, None)
    with pytest.raises(AssertionError, match="ours"), saver:
        pass


def test_who_leaves_at_once_does_not_wait(saver, monkeypatch):
    go = threading.Event()
    monkeypatch.setattr(checkpoint, "write", lambda *_: go.wait(10))
    saver.save(1, TENSORS, {}, None)
    with pytest.raises(KeyboardInterrupt), saver:
        raise KeyboardInterrupt
    assert saver._thread.is_alive()
    go.set()
    saver.wait()


def test_at_least_two_are_kept():
    with pytest.raises(ValueError, match="keep must be at least 2"):
        TrainConfig(keep=1)
