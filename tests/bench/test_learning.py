"""Runs of equal time: their curves, their ends, and the command that makes them."""

import csv
from dataclasses import replace
from types import SimpleNamespace

import pytest

import macow
from macow.bench import learning
from macow.cli import main
from macow.train.loop import Trainer


@pytest.fixture(autouse=True)
def rates(monkeypatch):
    """Of all updates, each of which takes a tenth of a second."""
    rates, update = [], Trainer.update

    def watched(self):
        figures = update(self)
        rates.append(figures[2])
        return figures

    monkeypatch.setattr(learning, "FIRST", 3)
    monkeypatch.setattr(learning, "POINTS", 4)
    monkeypatch.setattr(Trainer, "update", watched)
    clock = SimpleNamespace(perf_counter=lambda: 0.1 * len(rates))
    monkeypatch.setattr(learning, "time", clock)
    return rates


def digits(**changes):
    config = macow.preset("digits")
    small = {"batch_size": 8, "init_images": 64, "min_lr": 0.0, "warmup": 2, **changes}
    return replace(config, train=replace(config.train, **small))


def test_the_rate_falls_to_zero_with_the_time(rates):
    (*points, last) = learning.measure({"a": digits()}, "digits", 0.05, 2, 1, "cpu", 0)
    rates = rates[learning.FIRST :]  # which told how long an update takes
    assert last.updates == len(rates) == 30
    assert last.seconds == pytest.approx(2.9)  # since the first
    assert rates[-1] < 0.01 * max(rates)  # a cosine's end, though 420 updates were configured
    assert [point.updates for point in points] == [8, 15, 23]
    assert all(point.test is None for point in points)
    assert last.test.images == 360
    assert last.test.importance_weighted < last.test.bits_per_dim
    assert last.training < points[0].training


def test_runs_of_a_seed_are_the_same_and_of_two_are_not():
    plain, averaged = {"a": digits(ema=0.0)}, {"a": digits(ema=0.9)}
    *_, one, _, _, _, other = learning.measure(plain, "digits", 0.007, 1, 2, "cpu", 0)
    *_, again = learning.measure(averaged, "digits", 0.007, 1, 1, "cpu", 0)
    assert one.updates == again.updates == other.updates == 4
    assert (one.seed, other.seed) == (0, 1)
    assert one.training == again.training != other.training
    assert one.test.bits_per_dim != again.test.bits_per_dim  # the average is what is shown


def test_the_command(tmp_path, capsys):
    recipe, out = tmp_path / "recipe.yaml", tmp_path / "learning.csv"
    recipe.write_text("train: {batch_size: 8, init_images: 64, precision: bfloat16}\n")
    argv = ["bench", "learning", "--preset", "digits,digits-conditional", "--device", "cpu"]
    assert main(argv) == 2
    assert "--data is missing" in capsys.readouterr().err
    argv += ["--data", "digits", "--config", str(recipe), "--repeats", "2", "--out", str(out)]
    assert main([*argv, "--minutes", "0"]) == 2
    assert "--minutes must be above 0" in capsys.readouterr().err
    assert main([*argv, "--minutes", "1e-3"]) == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["seed"] for row in rows] == ["0", "0", "1", "1"]
    assert [row["model"] for row in rows[:2]] == ["digits", "digits-conditional"]
    assert {row["images"] for row in rows} == {"8"}
    assert all(0 < float(row["error"]) < 1 for row in rows)


def test_what_was_measured_stays_when_the_next_run_fails(tmp_path, monkeypatch, capsys):
    measure = learning.measure

    def broken(*given):
        yield next(iter(measure(*given)))
        raise ValueError("the machine is gone")

    monkeypatch.setattr(learning, "measure", broken)
    out = tmp_path / "learning.csv"
    argv = ["bench", "learning", "--preset", "digits", "--data", "digits", "--device", "cpu"]
    assert main([*argv, "--batch_size", "8", "--minutes", "1e-3", "--out", str(out)]) == 2
    assert "the machine is gone" in capsys.readouterr().err
    (row,) = csv.DictReader(out.read_text().splitlines())
    assert row["model"] == "digits"
