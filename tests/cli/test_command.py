"""The command as people type it, in a process of its own or called directly."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import macow
from macow.bench import precision
from macow.cli import VERBS, main

FIXTURE = Path(__file__).parents[1] / "fixtures" / "original" / "uniform"


def run(*argv):
    return subprocess.run([sys.executable, "-m", "macow", *argv], capture_output=True, text=True)


def test_it_runs_as_a_module():
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout == f"macow {macow.__version__}\n"


def test_help_names_every_verb(capsys):
    assert main([]) == 0
    printed = capsys.readouterr().out
    for verb in VERBS:
        assert f"\n  {verb} " in printed


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb, capsys):
    assert main([verb, "--help"]) == 0
    assert f"usage: macow {verb}" in capsys.readouterr().out


def test_presets_are_a_table(capsys):
    assert main(["presets"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert "parameters" in header
    assert "paper bits/dim" in header
    assert [row.split()[0] for row in rows] == list(macow.preset_names())
    assert "37,197,547" in rows[0]
    assert rows[0].endswith("3.28")


def test_presets_as_json(capsys):
    assert main(["presets", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["preset"] for row in rows} == set(macow.preset_names())


def test_import_original(tmp_path, capsys):
    files = [str(FIXTURE / "config.json"), str(FIXTURE / "model.pt")]
    assert main(["import-original", *files, str(tmp_path / "out"), "--size", "8,8"]) == 0
    assert "229,161 parameters" in capsys.readouterr().out
    assert macow.load(tmp_path / "out").shape == (3, 8, 8)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["sing"], "unknown verb 'sing'; there are train"),
        (["presets", "--wings"], "unrecognized arguments: --wings"),
        (["presets", "--js"], "unrecognized arguments: --js"),
        (["import-original", "a", "b", "c"], "macow: a: No such file or directory"),
        (["import-original", "a"], "the following arguments are required"),
        (["import-original", "a", "b", "c", "--size", "x"], "size must be HEIGHT,WIDTH, got 'x'"),
        (["bench", "wings"], "invalid choice: 'wings'"),
        (["bench", "inverse", "--preset", "cifar11"], "unknown preset 'cifar11'"),
        (["bench", "inverse", "--batch_size", "0"], "batch_size"),
        (["bench", "inverse", "--device", "abacus"], "abacus"),
        (["bench", "inverse", "--device", "meta"], "only cpu and cuda"),
        (["--version", "please"], "unknown verb '--version'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(argv, message, capsys):
    assert main(argv) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert message in printed.err


def test_bench_inverse(tmp_path, capsys):
    out = tmp_path / "results" / "inverse.csv"
    argv = ["bench", "inverse", "--preset", "cifar10-small", "--batch_size", "2", "--repeats", "1"]
    assert main([*argv, "--out", str(out)]) == 0
    assert "wall_to_forward" in capsys.readouterr().out
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["pass"] for row in rows] == ["forward", "plain", "inverse", "sampler"]
    assert all(float(row["cpu_s"]) > 0 for row in rows)
    assert float(rows[2]["round_trip_error"]) < 1 / 256
    assert rows[0]["command"].startswith("macow bench inverse --preset cifar10-small")


def test_bench_save(tmp_path, capsys):
    out = tmp_path / "save.csv"
    argv = ["bench", "save", "--preset", "digits", "--repeats", "1", "--device", "cpu"]
    assert main([*argv, "--out", str(out)]) == 0
    (row,) = csv.DictReader(out.read_text().splitlines())
    assert 0 < float(row["blocked_s"]) <= float(row["written_s"])
    assert "blocked_s" in capsys.readouterr().out


def test_bench_training(tmp_path, capsys):
    out = tmp_path / "training.csv"
    argv = ["bench", "training", "--preset", "digits", "--repeats", "1", "--device", "cpu"]
    assert main([*argv, "--out", str(out)]) == 0
    (row,) = csv.DictReader(out.read_text().splitlines())
    assert int(row["images"]) == macow.preset("digits").train.batch_size
    assert float(row["images_per_s"]) > 0
    assert 0 < float(row["bits"]) < 8
    assert row["mib_per_image"] == ""  # counted on a GPU
    assert main([*argv, "--batch_size", "4", "--precision", "float32"]) == 0
    assert "batch 4" in capsys.readouterr().out


def test_bench_scaling(tmp_path):
    out = tmp_path / "scaling.csv"
    argv = ["bench", "scaling", "--preset", "digits", "--batch_size", "4", "--repeats", "1"]
    assert main([*argv, "--device", "cpu", "--out", str(out)]) == 0
    rows = {row["model"]: row for row in csv.DictReader(out.read_text().splitlines())}
    size = {name: int(row["parameters"]) for name, row in rows.items()}
    assert size["half the depth"] < size["as it is"] < size["twice the depth"]
    assert size["half the width"] < size["as it is"] < size["twice the width"]
    assert rows["twice the side"]["images"] == "1"


def test_bench_precision(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(precision, "TEST_IMAGES", 16)
    out = tmp_path / "precision.csv"
    argv = ["bench", "precision", "--preset", "digits", "--device", "cpu"]
    assert main(argv) == 2
    assert "--data is missing" in capsys.readouterr().err
    argv += ["--data", "digits", "--batch_size", "8", "--repeats", "4", "--out", str(out)]
    assert main(argv) == 0
    single, low = csv.DictReader(out.read_text().splitlines())
    assert (single["precision"], low["precision"]) == ("float32", "bfloat16")
    assert single["test_bits"] == single["test_bits_own"]
    assert float(low["training_bits"]) == pytest.approx(float(single["training_bits"]), abs=0.05)
    assert float(low["test_bits"]) == pytest.approx(float(low["test_bits_own"]), abs=0.05)
    assert low["skipped"] == "0"


def test_bench_soak(tmp_path, capsys):
    out = tmp_path / "soak.csv"
    assert main(["bench", "soak", "--repeats", "3", "--device", "cpu", "--out", str(out)]) == 0
    counts = {
        row["what"]: int(row["count"]) for row in csv.DictReader(out.read_text().splitlines())
    }
    assert sum(count for what, count in counts.items() if "killed" in what) == 3
    assert counts["checkpoints lost"] == 0
    assert "updates at the end" in capsys.readouterr().out


def test_bench_serve(tmp_path, capsys):
    out = tmp_path / "serve.csv"
    assert main(["bench", "serve", "--repeats", "2", "--device", "cpu", "--out", str(out)]) == 0
    alone, crowd = csv.DictReader(out.read_text().splitlines())
    assert (alone["clients"], alone["answered"], alone["errors"]) == ("1", "2", "0")
    assert (crowd["clients"], crowd["requests"], crowd["errors"]) == ("50", "100", "0")
    assert int(crowd["answered"]) + int(crowd["busy"]) == 100
    assert 0 < float(crowd["median_s"]) <= float(crowd["worst_s"])
    assert "median_s" in capsys.readouterr().out


def test_bench_data(tmp_path, capsys):
    out = tmp_path / "data.csv"
    argv = ["bench", "data", "--data", "digits", "--preset", "digits", "--batch_size", "8"]
    assert main([*argv, "--repeats", "1", "--out", str(out)]) == 0
    (row,) = csv.DictReader(out.read_text().splitlines())
    assert 0 < float(row["batch_s"]) < float(row["update_s"])
    assert main(["bench", "data"]) == 2
    assert "--data is missing" in capsys.readouterr().err


def test_a_closed_pipe_is_no_error():
    line = f"{sys.executable} -m macow presets | true; exit ${{PIPESTATUS[0]}}"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=buffered)
    assert done.stderr == ""
    assert done.returncode == 0
