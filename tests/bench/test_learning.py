"""Runs of equal time: their curves, their ends, and the command that makes them."""

import csv
import math
import weakref
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

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


@pytest.mark.parametrize("skipped", [1, 2])
def test_a_run_that_diverges_ends_and_the_others_go_on(skipped):
    hot = digits(lr=1e30, warmup=0, max_skipped=skipped, ema=0.0)
    configs = {"hot": hot, "mild": digits()}
    found = list(learning.measure(configs, "digits", 0.01, 1, 1, "cpu", 0))
    (ended,) = [point for point in found if point.preset == "hot" and math.isnan(point.training)]
    assert ended.test is None
    assert ended.skipped == skipped
    assert found[-1].preset == "mild"
    assert found[-1].test is not None


def test_one_run_is_held_at_a_time(monkeypatch):
    alive, made = [], []
    make = learning.trainer

    @contextmanager
    def watched(*given):
        alive.append(sum(run() is not None for run in made))
        with make(*given) as run:
            made.append(weakref.ref(run))
            yield run

    monkeypatch.setattr(learning, "trainer", watched)
    list(learning.measure({"a": digits()}, "digits", 0.007, 1, 2, "cpu", 0))
    assert alive == [0, 0, 0]


def test_a_time_that_ends_in_the_warm_up_is_refused():
    with pytest.raises(ValueError, match="a gets no further than its warm-up of 50 updates"):
        list(learning.measure({"a": digits(warmup=50)}, "digits", 0.05, 1, 1, "cpu", 0))


def test_the_command(tmp_path, capsys):
    recipe, out = tmp_path / "recipe.yaml", tmp_path / "learning.csv"
    recipe.write_text("{train: {batch_size: 8, init_images: 64, warmup: 0}, data: digits, seed: 3}")
    argv = ["bench", "learning", "--preset", "digits,digits-conditional", "--device", "cpu"]
    argv += ["--config", str(recipe), "--repeats", "2", "--out", str(out)]
    assert main(argv) == 2
    assert "--data is missing" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == [recipe]
    argv += ["--data", "digits"]
    assert main([*argv, "--minutes", "0"]) == 2
    assert "--minutes must be above 0" in capsys.readouterr().err
    assert main([*argv, "--minutes", "1e-3"]) == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["seed"] for row in rows] == ["0", "0", "1", "1"]
    assert [row["model"] for row in rows[:2]] == ["digits", "digits-conditional"]
    assert {row["images"] for row in rows} == {"8"}
    assert all(0 < float(row["error"]) < 1 for row in rows)
    assert [*tmp_path.glob("*.partial")] == []


def test_a_model_may_come_from_a_file(tmp_path, capsys):
    mine, recipe, out = (tmp_path / name for name in ("mine.yaml", "recipe.yaml", "learning.csv"))
    mine.write_text(
        "{model: {flow: {steps: [[1]], hidden: [8], bottom: false}, channels: 1, size: [8, 8],"
        " n_bits: 4}, train: {batch_size: 4}}"
    )
    recipe.write_text("train: {init_images: 64, batch_size: 8, warmup: 0}\n")
    argv = ["bench", "learning", "--data", "digits", "--device", "cpu", "--minutes", "1e-3"]
    argv += ["--config", str(recipe), "--repeats", "1", "--out", str(out)]
    assert main([*argv, "--preset", f"{mine},digits"]) == 0
    one, other = csv.DictReader(out.read_text().splitlines())
    assert (one["model"], one["images"]) == (str(mine), "8")  # the recipe has the last word
    assert int(one["parameters"]) < int(other["parameters"])
    mine.write_text("{model: {flow: {paces: 3}}}")
    assert main([*argv, "--preset", f"digits,{mine}"]) == 2
    assert f"{mine}.model.flow has unknown keys: paces" in capsys.readouterr().err


def test_one_model_by_two_names_is_refused(tmp_path, capsys):
    file = tmp_path / "config.yaml"
    file.write_text("model: {labels: [], label_channels: 4}\n")
    argv = ["bench", "learning", "--preset", "digits,digits-conditional", "--data", "digits"]
    assert main([*argv, "--config", str(file)]) == 2
    assert f"are one and the same, as {file} makes them" in capsys.readouterr().err
    assert main(["bench", "learning", "--preset", f"{file},{file}", "--data", "digits"]) == 2
    assert "config.yaml" in capsys.readouterr().err


def test_one_model_may_be_trained_in_two_ways(tmp_path):
    argv = ["bench", "learning", "--data", "digits", "--device", "cpu", "--minutes", "0.01"]
    for kind in ("adam", "muon"):
        (tmp_path / f"{kind}.yaml").write_text(
            "{model: {flow: {steps: [[1]], hidden: [8], bottom: false}, channels: 1, size: [8, 8],"
            " n_bits: 4}, train: {batch_size: 4, init_images: 64, warmup: 0, lr: 0.1,"
            f" optimizer: {kind}}}}}"
        )
    argv += ["--preset", f"{tmp_path / 'adam.yaml'},{tmp_path / 'muon.yaml'}", "--repeats", "1"]
    assert main([*argv, "--out", str(tmp_path / "learning.csv")]) == 0
    rows = csv.DictReader((tmp_path / "learning.csv").read_text().splitlines())
    one, other = (row for row in rows if row["test_bits"])
    assert one["parameters"] == other["parameters"]
    assert one["test_bits"] != other["test_bits"]


def test_a_test_split_of_one_image_has_no_error(tmp_path):
    for split, count in (("train", 8), ("test", 1)):
        (tmp_path / "images" / split).mkdir(parents=True)
        for number in range(count):
            picture = Image.fromarray(np.full((8, 8), 20 * number, dtype=np.uint8))
            picture.save(tmp_path / "images" / split / f"{number}.png")
    recipe, out = tmp_path / "recipe.yaml", tmp_path / "learning.csv"
    recipe.write_text("train: {warmup: 0, batch_size: 4, init_images: 8}\n")
    argv = ["bench", "learning", "--preset", "digits", "--device", "cpu", "--minutes", "1e-3"]
    argv += ["--data", f"folder:{tmp_path / 'images'}", "--config", str(recipe)]
    assert main([*argv, "--repeats", "1", "--out", str(out)]) == 0
    (row,) = csv.DictReader(out.read_text().splitlines())
    assert float(row["test_bits"]) > 0
    assert row["error"] == ""


def test_what_a_run_has_learnt_is_measured_in_float32():
    ((*_, end), (*_, same)) = (
        learning.measure({"a": digits(precision=kind, lr=1e-30)}, "digits", 0.007, 1, 1, "cpu", 0)
        for kind in ("bfloat16", "float32")
    )
    assert end.test.bits_per_dim == pytest.approx(same.test.bits_per_dim, abs=1e-6)


def test_what_was_measured_stays_when_the_next_run_fails(tmp_path, monkeypatch, capsys):
    measure = learning.measure

    def broken(*given):
        yield next(iter(measure(*given)))
        raise ValueError("the machine is gone")

    out, recipe = tmp_path / "learning.csv", tmp_path / "recipe.yaml"
    out.write_text("of yesterday\n")
    recipe.write_text("train: {warmup: 0}\n")
    argv = ["bench", "learning", "--preset", "digits", "--data", "digits", "--device", "cpu"]
    argv += ["--batch_size", "8", "--minutes", "1e-3", "--config", str(recipe)]
    with monkeypatch.context() as patched:
        patched.setattr(learning, "measure", broken)
        assert main([*argv, "--out", str(out)]) == 2
    assert "the machine is gone" in capsys.readouterr().err
    (row,) = csv.DictReader((tmp_path / "learning.csv.partial").read_text().splitlines())
    assert row["model"] == "digits"
    assert out.read_text() == "of yesterday\n"
    assert main([*argv, "--out", str(out)]) == 2
    assert "learning.csv.partial holds the rows of an earlier run" in capsys.readouterr().err
    assert row["model"] in (tmp_path / "learning.csv.partial").read_text()
    assert main([*argv, "--out", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err
    link = tmp_path / "link.csv"
    link.symlink_to(out)
    assert main([*argv, "--repeats", "1", "--out", str(link)]) == 0
    assert link.is_symlink()
    assert out.read_text().startswith("model,")
    assert main([*argv, "--out", str(recipe / "there.csv")]) == 2  # before anything is measured
    assert "recipe.yaml" in capsys.readouterr().err
