"""The models that come with the package are what their cards say."""

import csv

import numpy as np
import pytest
import torch

import macow
import synthesis
from macow.pretrained import SHIPPED, shipped_names
from macow.score import Reference, score

MIB = 2**20


def test_they_are_small():
    assert shipped_names() == ("cifar10-small", "digits")
    assert (SHIPPED / "cifar10-small" / "model.safetensors").stat().st_size <= 15 * MIB


def test_cifar10_small_draws_scores_and_comes_back():
    model, reference = (
        macow.load("cifar10-small"),
        Reference.read(SHIPPED / "cifar10-small" / "reference.json"),
    )
    assert model.dtype == torch.float32
    drawn = model.sample(4, 0.9, torch.Generator().manual_seed(0))
    assert torch.equal(model.decode(model.encode(drawn)), drawn)
    assert drawn.float().std(dim=(1, 2, 3)).min() > 10  # not of one colour
    scores = score(model, drawn, reference=reference)
    assert all(0 < s.percentile < 100 for s in scores)
    seeded = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, (1, 3, 32, 32), generator=seeded, dtype=torch.uint8)
    (found,) = score(model, noise, reference=reference)
    assert found.percentile == 100


def test_its_card_tells_what_was_measured():
    card = " ".join((SHIPPED / "cifar10-small" / "README.md").read_text().split())
    rows = csv.DictReader((synthesis.RESULTS / "recipe_gpu.csv").read_text().splitlines())
    small = next(row for row in rows if row["run"] == "small")
    assert f"Test: {small['test_bits']} bits/dim on the 10,000 test images" in card
    line = (synthesis.DOCS.parent / "recipes" / "README.md").read_text()
    command = next(words for words in line.splitlines() if "cifar10-small" in words)
    assert f"`{command}`" in card
    reference = Reference.read(SHIPPED / "cifar10-small" / "reference.json")
    assert reference.images == 10_000
    middle = np.convolve(reference.bits_per_dim, [0.5, 0.5], "valid").mean()  # of the quantiles
    assert middle == pytest.approx(float(small["test_bits"]), abs=3e-3)
