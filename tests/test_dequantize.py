"""Noise that leans: its density, the slope it follows, the bound it gives."""

import math

import pytest
import torch

import macow
from macow import data
from macow.dequantize import STEEPEST, lean_noise
from macow.evaluate import evaluate
from macow.model import FlowModel
from models import images, tiny_model

SLOPES = [0.0, 1e-12, -1e-6, 0.3, -2.0, 17.0, -STEEPEST, 1e4]


@pytest.mark.parametrize("slope", SLOPES)
def test_the_density_of_leaning_noise_is_that_of_its_map(slope):
    u = torch.linspace(0, 1, 1001, dtype=torch.double)[:-1].view(-1, 1, 1, 1).requires_grad_()
    v, log_lean = lean_noise(u, torch.full_like(u, slope))
    (steepness,) = torch.autograd.grad(v.sum(), u)
    torch.testing.assert_close(log_lean, -steepness.log().flatten())
    assert v.min() >= 0
    assert v.max() < 1
    assert (v.diff(dim=0) > 0).all()


@pytest.mark.parametrize("slope", SLOPES)
def test_leaning_noise_leans_by_its_slope(slope):
    u = (torch.arange(4000, dtype=torch.double).view(-1, 1, 1, 1) + 0.5) / 4000
    v, log_lean = lean_noise(u, torch.full_like(u, slope))
    t = max(-STEEPEST, min(slope, STEEPEST))
    mean = 0.5 if abs(t) < 1e-3 else 1 / -math.expm1(-t) - 1 / t
    assert v.mean().item() == pytest.approx(mean, abs=1e-4)
    # Of a density that rises by just that slope it is the posterior: every draw gives the integral.
    integral = math.log(math.expm1(t) / t) if t else 0.0
    torch.testing.assert_close(t * v.flatten() - log_lean, torch.full((4000,), integral).double())


def test_leaning_noise_stays_below_one_in_float32():
    u = torch.full((1, 1, 1, 1), 1 - 2**-24)
    v, log_lean = lean_noise(u, torch.full_like(u, STEEPEST))
    assert v.dtype == log_lean.dtype == torch.float32
    assert 0.99 < v.item() < 1


def test_a_leaning_likelihood_is_its_definition():
    model = tiny_model(n_bits=6).double()
    batch = images(3, model)
    eps = torch.rand(2, *batch.shape, dtype=torch.double)
    with torch.no_grad():
        found = model.log_prob(batch, num_samples=2, eps=eps, lean=True)
        each = []
        for u in eps:
            v, log_lean = lean_noise(u, model.lean(batch))
            volume = model.num_dims * 5 * math.log(2)
            log_p = model.log_density(model.continuous(batch, v)) - volume
            each.append(log_p - log_lean)
        torch.testing.assert_close(found, torch.logsumexp(torch.stack(each), 0) - math.log(2))
        bits = model.bits_per_dim(batch, num_samples=2, eps=eps, lean=True)
    torch.testing.assert_close(bits, -found / model.num_dims / math.log(2))


def test_the_slope_of_leaning_noise_is_along_that_of_the_density():
    model = tiny_model(n_bits=5).double()
    batch = images(2, model)
    lean = model.lean(batch)
    assert not lean.requires_grad
    direction = torch.randn(lean.shape, dtype=torch.double)
    with torch.no_grad():
        ahead, behind = (
            model.log_density(model.continuous(batch, 0.5 + step * direction))
            for step in (1e-5, -1e-5)
        )
    along = (lean * direction).flatten(1).sum(dim=1) / ((ahead - behind) / 2e-5)
    assert ((along > 0.1) & (along < 1.0001)).all()
    x = model.continuous(batch, 0.5).requires_grad_()
    (slope,) = torch.autograd.grad(model.log_density(x).sum(), x)
    torch.testing.assert_close(lean, slope / 2**4 * along[:, None, None, None], rtol=1e-4, atol=0)


def test_noise_leans_for_the_label_that_is_given():
    torch.manual_seed(0)
    model = macow.preset("digits-conditional").model.build()
    batch = torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8)
    with macow.initializing(model):
        model(batch, labels=torch.arange(4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    lean = model.lean(batch[:1], torch.tensor([3]))
    torch.testing.assert_close(lean, model.given("3").lean(batch[:1]))
    assert not torch.equal(lean, model.lean(batch[:1], torch.tensor([4])))
    with pytest.raises(ValueError, match="labels"):
        model.lean(batch[:1], torch.tensor([10]))


def test_leaning_noise_tightens_the_bound_of_a_trained_model():
    model = macow.load("digits")
    test = data.load("digits", "test", model.shape)
    plain, leaning, again = (
        evaluate(model, test, num_samples=4, limit=64, lean=lean, batch_size=size)
        for lean, size in ((False, 64), (True, 64), (True, 24))
    )
    assert leaning.lean
    assert leaning.bits_per_dim < plain.bits_per_dim - 0.04
    assert leaning.importance_weighted < plain.importance_weighted - 0.02
    assert leaning.noise_entropy < 0 == plain.noise_entropy
    assert again.bits_per_dim == pytest.approx(leaning.bits_per_dim, abs=1e-5)


def test_leaning_noise_costs_flat_images_little():
    model = macow.load("cifar10-small")
    flat = torch.tensor([0, 128, 255], dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 32, 32)
    eps = torch.rand(flat.shape, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        plain, leaning = (model.bits_per_dim(flat, eps=eps, lean=lean) for lean in (False, True))
    assert (leaning < plain + 0.05).all()
    assert not torch.equal(leaning, plain)


def test_noise_does_not_lean_where_the_slope_is_no_number(monkeypatch):
    model = tiny_model()
    batch = images(2, model)
    monkeypatch.setattr(FlowModel, "_slope", lambda *_: torch.full(batch.shape, math.nan))
    eps = torch.rand(batch.shape)
    with torch.no_grad():
        plain, leaning = (model.log_prob(batch, eps=eps, lean=lean) for lean in (False, True))
    torch.testing.assert_close(leaning, plain)


def test_only_noise_that_knows_nothing_leans():
    model = tiny_model(variational=True)
    with pytest.raises(ValueError, match="only uniform noise can lean"):
        model.log_prob(images(1, model), lean=True)
    with pytest.raises(ValueError, match="not initialised"):
        macow.preset("digits").model.build().lean(torch.zeros(1, 1, 8, 8, dtype=torch.uint8))
