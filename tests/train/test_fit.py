"""Whole runs, small: what they write, that they resume, what they say when something is wrong."""

import errno
import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partialmethod
from types import SimpleNamespace

import pytest
import torch
import yaml

import macow
from macow.config import RunConfig
from macow.train import checkpoint, console, fit
from macow.train.figures import Figures, seconds
from macow.train.health import culprit
from macow.train.loop import Trainer
from macow.train.report import _progress
from small_runs import SMALL, assert_same_state, changed, rows, state


def test_a_run_fills_its_folder(tmp_path, capsys):
    run = tmp_path / "run"
    model = fit(SMALL, "digits", run)
    assert isinstance(model, macow.FlowModel)
    names = {path.name for path in run.iterdir()}
    assert names == {
        "config.yaml", "env.json", "metrics.jsonl", "tensorboard", "samples", "checkpoints",
        "config.json", "model.safetensors", "report.html", "reference.json", "images.json", ".lock",
    }  # fmt: skip
    logged = rows(run)
    assert [row["step"] for row in logged if "bits" in row] == [2, 4, 6]
    tested = [row for row in logged if "test_bits" in row]
    assert [row["step"] for row in tested] == [3, 6]
    assert all(math.isfinite(row["test_bits"]) and row["reconstruction"] < 0.5 for row in tested)
    assert sorted(p.name for p in (run / "samples").iterdir()) == [
        "step_0000003.png",
        "step_0000006.png",
    ]
    document = yaml.safe_load((run / "config.yaml").read_text())
    assert document["train"]["lr"] == 1e-2
    assert document["data"] == "digits"
    report = (run / "report.html").read_text()
    for part in ("<svg", "data:image/png;base64", "histogram (baseline)", "n_bits: 4", "Finished"):
        assert part in report
    assert "http" not in report.replace('http-equiv="refresh"', "")
    printed = capsys.readouterr().err
    assert "step 6:" in printed
    assert "1,437 images to learn from, 360 to test, as 1x8x8 of 4 bits" in printed
    best = min(tested, key=lambda row: row["test_bits"])["step"]
    loaded = macow.load(run)
    saved = state(run, best)
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, saved[f"average.module.{name}"])


def test_time_goes_on_where_a_run_stopped(tmp_path, monkeypatch):
    """An update takes 100 s here; the first of a process compiles, and is not counted."""
    now = 0.0

    def update(self):
        nonlocal now
        now += 100
        return original(self)

    original = Trainer.update
    monkeypatch.setattr(Trainer, "update", update)
    monkeypatch.setattr(console, "time", SimpleNamespace(perf_counter=lambda: now))
    stop_after(SMALL, tmp_path, 4)
    now += 5000
    fit(SMALL, "digits", tmp_path, quiet=True)
    spent = {row["step"]: row["seconds"] for row in rows(tmp_path)}
    assert spent == {2: 100, 3: 200, 4: 300, 6: 400}
    assert "6 updates in 7 min" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("last", [{}, *({"seconds": s} for s in (None, "9", True, -1, 2e9, 1e400))])
def test_what_is_no_time_takes_none(last, tmp_path):
    figures = Figures(tmp_path)
    figures.file.write_text(json.dumps({"step": 1, "seconds": 99}) + "\n")
    with figures.file.open("a") as file:
        json.dump({"step": 2, **last}, file)
    assert seconds(figures.rows()) == 99
    figures.begin(2)
    assert figures.seconds == 99
    whole = "2 updates in 99 s" if last else "2 updates"  # of an older version: not all was timed
    assert _progress(figures.rows()) == whole


def test_the_loss_falls(tmp_path):
    config = changed(steps=60, log_every=20, eval_every=60, save_every=60, mirror=False, shift=0)
    fit(config, "digits", tmp_path, quiet=True)
    bits = [row["bits"] for row in rows(tmp_path) if "bits" in row]
    assert bits[-1] < bits[0] - 0.1


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_steps": 2},
        {"variational": True, "noise_samples": 3},
        {"ema": 0.0, "schedule": "cosine"},
        {"precision": "bfloat16"},
    ],
    ids=["plain", "accumulating", "variational", "cosine", "bfloat16"],
)
def test_a_resumed_run_is_the_same_run(options, tmp_path):
    config = changed(**options)
    fit(config, "digits", tmp_path / "straight", quiet=True)
    stop_after(config, tmp_path / "resumed", 4)
    fit(config, "digits", tmp_path / "resumed", quiet=True)
    assert_same_state(state(tmp_path / "straight", 6), state(tmp_path / "resumed", 6))


def stop_after(config, run, steps, *, quiet=True):
    """Runs until a step and is interrupted there, as by Ctrl-C."""
    original = Trainer.update

    def update(self):
        result = original(self)
        if self.step == steps:
            os.kill(os.getpid(), signal.SIGINT)
        return result

    Trainer.update = update
    try:
        with pytest.raises(KeyboardInterrupt):
            fit(config, "digits", run, quiet=quiet)
    finally:
        Trainer.update = original


def test_an_interrupted_run_keeps_what_it_finished(tmp_path):
    stop_after(SMALL, tmp_path, 5)
    assert state(tmp_path, 5)
    assert max(row["step"] for row in rows(tmp_path)) == 4


def test_a_full_disk_while_stopping_is_not_said_to_go_on(tmp_path, monkeypatch, capsys):
    def write(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "write", write)
    stop_after(SMALL, tmp_path, 1, quiet=False)
    printed = capsys.readouterr().err
    assert "step 1: no checkpoint, [Errno 28] No space left on device; the run stops" in printed
    assert "goes on" not in printed


def test_accumulation_changes_nothing_but_rounding(tmp_path):
    for passes in (1, 4):
        fit(changed(batch_steps=passes), "digits", tmp_path / str(passes), quiet=True)
    one, four = state(tmp_path / "1", 6), state(tmp_path / "4", 6)
    for name in one:
        torch.testing.assert_close(one[name], four[name], atol=2e-3, rtol=2e-2)


def test_another_seed_is_another_run(tmp_path):
    for seed in (0, 1):
        fit(changed(steps=2), "digits", tmp_path / str(seed), seed=seed, quiet=True)
    one, two = (rows(tmp_path / str(seed))[0]["bits"] for seed in (0, 1))
    assert one != two


@pytest.mark.parametrize(
    ("config", "source", "seed", "message"),
    [
        (changed(lr=2e-2), "digits", 0, r"train.lr 0.01, not 0.02"),
        (changed(), "digits", 1, "seed 0, not 1"),
        (changed(), "packed:/x", 0, "data digits, not packed:/x"),
        (changed(variational=True), "digits", 0, "model.variational None"),
    ],
)
def test_a_folder_of_another_run_is_left_alone(config, source, seed, message, tmp_path):
    fit(changed(steps=2), "digits", tmp_path, quiet=True)
    before = state(tmp_path, 2)
    with pytest.raises(ValueError, match=message):
        fit(config, source, tmp_path, seed=seed, quiet=True)
    assert_same_state(before, state(tmp_path, 2))


def test_weights_to_start_from(tmp_path):
    start = fit(changed(steps=2), "digits", tmp_path / "first", quiet=True)
    config = changed(variational=True, steps=0)
    model = fit(config, "digits", tmp_path / "second", start=start, quiet=True)
    for name, tensor in start.flow.state_dict().items():
        assert torch.equal(tensor, model.flow.state_dict()[name])
    assert model.is_initialized
    other = replace(config.model.flow, hidden=(4, 4))
    with pytest.raises(ValueError, match="do not fit this configuration's flow"):
        fit(
            RunConfig(replace(config.model, flow=other), config.train),
            "digits",
            tmp_path / "third",
            start=start,
        )


def test_weights_of_8_bits_go_on_learning_as_fast(tmp_path):
    start = fit(changed(steps=2, optimizer="muon"), "digits", tmp_path / "first", quiet=True)
    start.save_pretrained(tmp_path / "short", bits=8)
    name = "flow.level1.block0.step0.glow.coupling.net.middle.direction"
    turns = []
    for begin in (start, macow.load(tmp_path / "short")):
        run = tmp_path / f"run{len(turns)}"
        end = fit(changed(steps=3, optimizer="muon"), "digits", run, start=begin, quiet=True)
        before, after = (model.state_dict()[name].flatten() for model in (begin, end))
        turns.append(1 - torch.cosine_similarity(before, after, dim=0).item())
    assert turns[0] > 1e-4
    assert turns[1] == pytest.approx(turns[0], rel=0.2)


def poison(monkeypatch, steps, name="flow.level1.block0.step0.glow.norm.shift"):
    original = Trainer.update

    def update(self):
        parameter = dict(self.model.named_parameters())[name]
        if self.step in steps:
            kept = parameter.detach().clone()
            parameter.data.fill_(math.nan)
            result = original(self)
            parameter.data.copy_(kept)
            return result
        return original(self)

    monkeypatch.setattr(Trainer, "update", update)


def test_a_step_that_is_not_finite_is_skipped_and_its_culprit_named(tmp_path, monkeypatch, capsys):
    poison(monkeypatch, {2, 3})
    fit(SMALL, "digits", tmp_path)
    printed = capsys.readouterr().err
    assert "step 3: skipped, the weights of flow.level1.block0.step0.glow.norm.shift" in printed
    assert rows(tmp_path)[-2]["skipped"] == 2
    assert all(t.isfinite().all() for t in state(tmp_path, 6).values())


def test_the_culprit_is_looked_for_in_as_many_passes(tmp_path, monkeypatch):
    poison(monkeypatch, {2})
    at_once, seen = changed(batch_steps=4), []

    def looked(model, images, eps, labels, passes):
        hook = model.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
        try:
            return culprit(model, images, eps, labels, passes)
        finally:
            hook.remove()

    monkeypatch.setattr("macow.train.loop.culprit", looked)
    fit(at_once, "digits", tmp_path, quiet=True)
    assert seen == [at_once.train.batch_size // 4] * 4


def test_too_many_end_the_run_with_advice(tmp_path, monkeypatch):
    poison(monkeypatch, set(range(99)))
    with pytest.raises(FloatingPointError, match=r"3 updates in a row.*lower --train.lr"):
        fit(changed(max_skipped=3), "digits", tmp_path, quiet=True)


def test_out_of_memory_says_what_to_try(tmp_path, monkeypatch):
    def update(self):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate ...")

    monkeypatch.setattr(Trainer, "update", update)
    with pytest.raises(MemoryError, match=r"--train.batch_size 8, or --train.batch_steps 2,"):
        fit(SMALL, "digits", tmp_path, quiet=True)


def test_a_full_disk_is_noticed_at_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    with pytest.raises(ValueError, match="checkpoints need"):
        fit(SMALL, "digits", tmp_path, quiet=True)


@pytest.mark.filterwarnings("ignore")  # torch's own, while it compiles
def test_compiling_a_step_gives_the_same_losses(tmp_path, monkeypatch):
    quickly = partialmethod(torch.nn.Module.compile, backend="aot_eager")  # no code generation
    monkeypatch.setattr(torch.nn.Module, "compile", quickly)
    for compiled in (False, True):
        config = changed(compile=compiled, steps=1, log_every=1)
        fit(config, "digits", tmp_path / str(compiled), quiet=True)
    plain, fast = (rows(tmp_path / str(c))[0]["bits"] for c in (False, True))
    assert plain == pytest.approx(fast, abs=1e-4)


@pytest.mark.parametrize(("asked", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_step_and_keeps_the_run(asked, code, tmp_path):
    argv = ["train", "--preset", "digits", "--data", "digits", "--run", str(tmp_path / "run")]
    argv += ["--train.steps", "100000", "--train.batch_size", "16", "--train.log_every", "1"]
    command = [sys.executable, "-m", "macow", *argv]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if line.startswith("step 2:"):
                process.send_signal(asked)
                break
        rest = process.stderr.read()
    assert process.returncode == code
    assert "finishing this step and saving" in rest
    assert "Traceback" not in rest
    assert list((tmp_path / "run" / "checkpoints").glob("step_*"))
    assert "Stopped" in (tmp_path / "run" / "report.html").read_text()
    assert macow.load(tmp_path / "run").is_initialized


def test_a_run_without_a_bar_says_how_long_it_takes(monkeypatch, capsys):
    now = iter(range(0, 10_000, 25))
    monkeypatch.setattr(console, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    said = console.Console(quiet=False)
    with said.open(5000, 10):
        for _ in range(4):
            said.step()
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "step 13 of 5,000, about 34.6 h left"
    assert [console.lasting(s) for s in (99, 100, 5999, 150_000)] == [
        "99 s", "2 min", "100 min", "1.7 days",
    ]  # fmt: skip
