"""Every line of recipes/README.md is a run that can begin; what was trained is what it says."""

import csv
import re
import shlex
from dataclasses import replace

import pytest

import macow
import macow.cli.train as train_verb
import synthesis
from macow.cli import main

SHOWN = ("eval_every", "save_every", "sample_temperatures")
FOLDER = synthesis.DOCS.parent / "recipes"
LINES = re.findall(r"^macow (train .*)$", (FOLDER / "README.md").read_text(), re.MULTILINE)


@pytest.fixture
def configured(monkeypatch):
    """What a line would train."""
    monkeypatch.chdir(FOLDER.parent)

    def configured(line):
        found = []
        monkeypatch.setattr(train_verb, "fit", lambda config, *_, **__: found.append(config))
        assert main(shlex.split(line)) == 0
        return found[0]

    return configured


@pytest.mark.parametrize("line", LINES)
def test_a_line_trains_its_preset_with_its_recipe(line, configured):
    config, words = configured(line), shlex.split(line)
    preset = macow.preset(words[words.index("--preset") + 1])
    assert config.model == preset.model
    assert config.train.optimizer == "muon"
    assert config.train.min_lr == 0
    recipe = FOLDER.parent / words[words.index("--config") + 1]
    trained_here = "cifar10" in line
    assert ("Not trained here" in recipe.read_text()) != trained_here


def test_every_file_has_a_line():
    used = {word for line in LINES for word in shlex.split(line) if word.endswith(".yaml")}
    assert used == {f"recipes/{path.name}" for path in FOLDER.glob("*.yaml")}


def test_the_small_model_is_the_run_that_was_measured(configured):
    rows = csv.DictReader((synthesis.RESULTS / "recipe_gpu.csv").read_text().splitlines())
    measured = next(shlex.split(row["command"]) for row in rows if row["run"] == "small")
    config = configured(next(line for line in LINES if "cifar10-small" in line)).train
    there = configured(shlex.join(measured[1:]).replace("--device cuda", "")).train
    assert config.eval_every == config.steps  # tested once, so nothing is chosen by test images
    shown = {name: getattr(config, name) for name in SHOWN}
    assert config == replace(there, **shown)
