"""The README's code runs, and its figures stand in the results."""

import csv
import re
import shutil
from pathlib import Path
from statistics import median

import pytest
import torch

import learning
import macow
import synthesis
from macow.bench.images import natural_images

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
FIXTURE = ROOT / "tests" / "fixtures" / "original" / "uniform"


@pytest.fixture
def quick(monkeypatch):
    """The same lines with less work: a smaller preset, fewer samples, no training."""
    small = macow.preset("cifar10-small")
    monkeypatch.setattr(macow, "preset", lambda name: small)
    monkeypatch.setattr(macow.train, "fit", lambda config, source, run: macow.load("digits"))


@torch.no_grad()
def test_the_code_runs(quick, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("config.json", "model.pt"):
        shutil.copy(FIXTURE / name, name)
    images = natural_images(2, (3, 32, 32), torch.Generator().manual_seed(0))
    names = {"images": images, "x": 2 * torch.rand(2, 3, 32, 32) - 1}
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block.replace("num_samples=64", "num_samples=2"), names)


def test_the_figures_of_the_inverse_are_measured():
    ratios = {
        kind: sorted(
            float(r["wall_to_forward"]) for r in rows("inverse_cpu.csv") if r["pass"] == kind
        )
        for kind in ("plain", "inverse", "sampler")
    }
    said, of_all = " ".join(README.split()), ratios["inverse"]
    assert f"takes {median(of_all):.2f} times its forward pass" in said
    assert f"median of four runs, {of_all[0]:.2f} to {of_all[-1]:.2f}" in said
    assert f"by `model.sampler()` {median(ratios['sampler']):.2f} times" in said
    assert f"the same layers in plain torch take {median(ratios['plain']):.2f} times" in said
    assert len(of_all) == 4


def rows(name):
    return list(csv.DictReader((ROOT / "benchmarks" / "results" / name).read_text().splitlines()))


def test_the_figures_of_sampling_are_measured():
    costs = {row["model"]: float(row["ms_per_image"]) for row in rows("sampling_gpu.csv")}
    assert f"{costs['cifar10']:.3f} ms for a CIFAR-10 image" in README
    ratio = costs["cifar10"] / costs["glow-cifar10"]
    said = " ".join(README.split())
    assert f"{ratio:.2f} times our Glow" in said
    assert f"the same kernels draw in {costs['glow-cifar10']:.3f} ms" in said
    paper, authors = synthesis.PEERS["cifar10"][2], synthesis.AUTHORS["cifar10"]
    assert f"in the paper it is {paper} times Glow" in said
    assert f"in batches of 100 | {authors} ms | {costs['cifar10']:.3f} ms |" in said


def test_the_figures_of_learning_are_measured():
    found = {row["model"]: row for row in rows("training_gpu.csv")}
    speed = {name: f"{float(row['images_per_s']):,.0f}" for name, row in found.items()}
    authors = {name: f"{figures[0]:.0f}" for name, figures in learning.AUTHORS.items()}
    said = " ".join(README.split())
    for name, told in (("cifar10", "learnt from in a second"), ("imagenet64", "(ImageNet-64)")):
        assert f"{told} | {authors[name]} | {speed[name]} |" in said
    celeba = found["celebahq256"]
    gigabytes = float(celeba["peak_mib"]) * 2**20 / 1e9
    assert f"batch of {celeba['images']} takes {gigabytes:.0f} GB" in said
    single, low = (float(row["training_bits"]) for row in rows("precision_gpu.csv"))
    assert f"learnt the same to {abs(low - single):.3f} bits/dim" in said


def test_the_tables_of_sampling_are_those_of_the_results():
    assert synthesis.readme_tables() in README, "run make pages"
    assert synthesis.with_tables(README) == README, "run make pages"
    said = " ".join(README.split()).replace("\\ ", "")
    for name in ("sampling_gpu.csv", "sampling_peers_gpu.csv"):
        (command,) = {row["command"] for row in rows(name)}
        assert command.partition(" --out")[0] in said


def test_every_verb_and_folder_is_named():
    from macow.cli import VERBS

    for verb in VERBS:
        assert f"macow {verb}" in README, verb
    for path in (ROOT / "src" / "macow").iterdir():
        if path.name[0] not in "_." and path.name not in ("py.typed", "seeds.py", "pictures.py"):
            assert path.name in README, path
