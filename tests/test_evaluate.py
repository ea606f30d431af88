"""Evaluation: its figures against sums written out."""

import math

import numpy as np
import pytest
import torch

from macow.baselines import baselines
from macow.data.images import ArrayImages
from macow.evaluate import AT_ONCE, _noise, evaluate
from macow.pictures import grid
from macow.sampler import latents
from macow.score import Reference
from models import images, tiny_model


@pytest.mark.parametrize("variational", [False, True])
@torch.no_grad()
def test_figures_are_what_they_say(variational):
    model = tiny_model(variational=variational)
    batch = images(7, model)
    result = evaluate(model, ArrayImages(batch.numpy()), num_samples=3, batch_size=4, seed=5)
    again = evaluate(model, ArrayImages(batch.numpy()), num_samples=3, batch_size=7, seed=5)
    assert result.bits_per_dim == pytest.approx(again.bits_per_dim, abs=1e-5)
    assert result.images == 7
    assert result.importance_weighted < result.bits_per_dim
    assert (result.noise_entropy != 0) == variational
    single = evaluate(model, ArrayImages(batch.numpy()), batch_size=4)
    assert single.importance_weighted == single.bits_per_dim
    assert single.bits_per_dim_error > 0
    limited = evaluate(model, ArrayImages(batch.numpy()), limit=2)
    assert limited.images == 2


@pytest.mark.parametrize("variational", [False, True])
def test_noise_is_of_seed_and_image(variational):
    model = tiny_model(variational=variational)
    batch = images(5, model)
    everything = torch.stack([*_noise(model, batch, 5, np.arange(5), AT_ONCE + 3)])
    assert len(everything.flatten(1).unique(dim=0)) == AT_ONCE + 3
    last = torch.stack([*_noise(model, batch[4:], 5, np.array([4]), AT_ONCE + 3)])
    assert torch.equal(everything[:, 4:], last)
    (first,) = _noise(model, batch, 5, np.arange(5), 1)
    assert torch.equal(everything[0], first)


@torch.no_grad()
def test_the_error_is_of_the_mean():
    model = tiny_model()
    batch = images(9, model)
    result = evaluate(model, ArrayImages(batch.numpy()), num_samples=2)
    rows = [evaluate(model, ArrayImages(batch[i : i + 1].numpy()), num_samples=2) for i in range(1)]
    assert rows[0].bits_per_dim_error is None
    spread = model.bits_per_dim(batch).std().item() / 3
    assert result.bits_per_dim_error == pytest.approx(spread, rel=0.3)


def test_baselines_on_data_they_know():
    rng = np.random.default_rng(0)
    coin = (rng.random((40_000, 1, 2, 2)) < 0.25).astype(np.uint8) * 255
    found = baselines(coin[:20_000], coin[20_000:], n_bits=1)
    assert found["uniform"] == 1.0
    entropy = -(0.25 * math.log2(0.25) + 0.75 * math.log2(0.75))
    assert found["histogram"] == pytest.approx(entropy, abs=0.02)
    noise = rng.integers(0, 256, (4000, 1, 2, 2), dtype=np.uint8)
    found = baselines(noise[:3000], noise[3000:], n_bits=8)
    assert found["histogram"] == pytest.approx(8.0, abs=0.1)
    gaussian_for_uniform = math.log2(256 / math.sqrt(12) * math.sqrt(2 * math.pi * math.e))
    assert found["gaussian"] == pytest.approx(gaussian_for_uniform, abs=0.02)


def test_digits_have_the_baselines_of_the_documentation():
    from macow import data

    train, test = (data.load("digits", split).array for split in ("train", "test"))
    found = baselines(train, test, n_bits=4)
    assert found["uniform"] == 4.0
    assert found["histogram"] == pytest.approx(2.33, abs=0.01)
    assert found["gaussian"] == pytest.approx(2.91, abs=0.02)


@torch.no_grad()
def test_a_sample_is_known_by_its_number():
    model = tiny_model()
    assert torch.equal(latents(model.shape, 3, [4])[0], latents(model.shape, 3, range(6))[4])
    sampler = model.sampler()
    together = sampler.numbered(range(5), 0.5, seed=3)
    apart = torch.cat([sampler.numbered([n], 0.5, seed=3) for n in range(5)])
    assert (together.int() - apart.int()).abs().max() <= 1


def test_a_grid_holds_every_image():
    batch = np.zeros((5, 3, 4, 4), np.uint8)
    batch[4] = 77
    picture = np.asarray(grid(batch, columns=2))
    factor = picture.shape[1] // 11
    assert picture.shape == (16 * factor, 11 * factor, 3)
    assert (picture[11 * factor : 15 * factor, factor : 5 * factor] == 77).all()
    assert grid(batch[:, :1]).mode == "L"


@pytest.mark.parametrize("quantiles", [(1.0, 1.0, 1.0, 2.0, 4.0), (1.0, 3.0, 3.0), (2.0, 2.0)])
def test_the_histogram_of_a_reference_holds_every_image(quantiles):
    edges, shares = Reference(9, quantiles, quantiles).histogram()
    assert len(edges) == len(shares) + 1
    assert sum(shares) == pytest.approx(1)
    assert min(shares) >= 0
