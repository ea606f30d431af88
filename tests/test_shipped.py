"""The models that come with the package are what their cards say."""

import numpy as np
import pytest
import torch

import macow
import results
import synthesis
from macow.pretrained import SHIPPED, shipped_names
from macow.score import Reference, score

MIB = 2**20
OF_CIFAR10 = ("cifar10", "cifar10-small", "cifar10-small-variational", "cifar10-variational")


def test_they_are_small():
    assert shipped_names() == (*OF_CIFAR10, "digits")
    for name in shipped_names():
        most = 40 if name in ("cifar10", "cifar10-variational") else 15
        assert (SHIPPED / name / "model.safetensors").stat().st_size <= most * MIB
    assert sum(path.stat().st_size for path in SHIPPED.rglob("*")) <= 100 * MIB


def test_the_pages_name_them():
    for page in ("README.md", "docs/verbs/index.md"):
        text = (synthesis.DOCS.parent / page).read_text()
        assert all(f"`{name}`" in text for name in shipped_names())


@pytest.mark.parametrize("name", OF_CIFAR10)
def test_a_model_of_cifar10_draws_scores_and_comes_back(name):
    model, reference = macow.load(name), Reference.read(SHIPPED / name / "reference.json")
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


def measured():
    """Plain bits/dim of all test images, as they were found first."""
    found = {}
    for row in results.read("evaluation.csv"):
        if row["images"] == "10000" and row["split"] == "test":
            found.setdefault(row["model"], row["bits_per_dim"])
    return found


@pytest.mark.parametrize("name", OF_CIFAR10)
def test_its_card_tells_what_was_measured(name):
    card = " ".join((SHIPPED / name / "README.md").read_text().split())
    bits = measured()[name]
    assert f"Test: {bits} bits/dim on the 10,000 test images" in card
    line = (synthesis.DOCS.parent / "recipes" / "README.md").read_text()
    command = next(words for words in line.splitlines() if words.endswith(f"--run runs/{name}"))
    assert f"`{command}`" in card
    reference = Reference.read(SHIPPED / name / "reference.json")
    assert reference.images == 10_000
    middle = np.convolve(reference.bits_per_dim, [0.5, 0.5], "valid").mean()  # of the quantiles
    assert middle == pytest.approx(float(bits), abs=3e-3)
