"""Every line of recipes/README.md is a run that can begin; what was trained is what it says."""

import re
import shlex
from dataclasses import replace

import pytest

import macow
import macow.cli.train as train_verb
import results
import synthesis
from macow.bench import learning
from macow.cli import main

SHOWN = ("eval_every", "log_every", "save_every", "sample_temperatures")
FOLDER = synthesis.DOCS.parent / "recipes"
README = (FOLDER / "README.md").read_text()
LINES = re.findall(r"^(?:torchrun .* -m -- )?macow (train .*)$", README, re.MULTILINE)
COMPARISONS = re.findall(r"^macow (bench .*)$", README, re.MULTILINE)


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


@pytest.mark.parametrize("line", COMPARISONS)
def test_what_is_compared_is_as_large_and_trained_alike(line, monkeypatch):
    monkeypatch.chdir(FOLDER.parent)
    compared = []
    monkeypatch.setattr(learning, "measure", lambda configs, *_: compared.append(configs) or [])
    assert main(shlex.split(line)) == 0
    configs = compared[0].values()
    assert len(configs) == 4
    sizes = [sum(p.numel() for p in config.model.build().parameters()) for config in configs]
    assert max(sizes) < 1.05 * min(sizes)
    (train,) = {config.train for config in configs}
    assert train.optimizer == "muon"


def test_every_file_has_a_line():
    used = set(re.findall(r"recipes/[\w/-]+\.yaml", "\n".join(LINES + COMPARISONS)))
    assert used == {f"recipes/{path.relative_to(FOLDER)}" for path in FOLDER.rglob("*.yaml")}


@pytest.mark.parametrize("run", ["small", "whole", "learnt"])
def test_a_line_is_the_run_that_was_measured(run, configured):
    row = next(row for row in results.read("recipe_gpu.csv") if row["run"] == run)
    measured = shlex.split(row["command"])
    line = next(line for line in LINES if f"--preset {row['preset']} " in line)
    assert re.findall("--from (.*?) ", line) == re.findall("--from (.*?) ", row["command"])
    config = configured(line).train
    there = configured(shlex.join(measured[1:]).replace("--device cuda", "")).train
    assert [step for step, *_ in results.tested(run)] == [config.steps] == [int(row["reached"])]
    assert config.steps % config.eval_every == 0
    shown = {name: getattr(config, name) for name in SHOWN}
    assert config == replace(there, **shown)
