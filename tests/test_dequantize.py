"""Noise that leans: its density, the slope it follows, the bound it gives."""

import math

import pytest
import torch

import macow
from macow import data
from macow.dequantize import STEEPEST, lean_noise
from macow.evaluate import evaluate
from macow.model import LEAN
from models import images, tiny_model

BOTH = pytest.mark.parametrize("variational", [False, True])
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
    u = torch.rand(8, 3, 16, 16).clamp(min=0.999)
    v, log_lean = lean_noise(u, torch.full_like(u, 30.0))
    assert v.dtype == log_lean.dtype == torch.float32
    assert v.max() < 1


@BOTH
def test_the_slope_is_that_of_the_density(variational):
    model = tiny_model(variational=variational, n_bits=5).double()
    batch = images(2, model)
    slope = model.slope(batch)
    assert not slope.requires_grad
    direction = torch.randn(slope.shape, dtype=torch.double)
    with torch.no_grad():
        ahead, behind = (
            model.log_density(model.continuous(batch, 0.5 + step * direction))
            for step in (1e-5, -1e-5)
        )
    expected = (ahead - behind) / 2e-5
    torch.testing.assert_close(
        (slope * direction).flatten(1).sum(dim=1), expected, rtol=1e-5, atol=0
    )


@BOTH
def test_a_leaning_likelihood_is_its_definition(variational):
    model = tiny_model(variational=variational).double()
    batch = images(3, model)
    eps = torch.rand(2, *batch.shape, dtype=torch.double)
    with torch.no_grad():
        found = model.log_prob(batch, num_samples=2, eps=eps, lean=True)
        each = []
        for one in eps:
            u, log_q = model.dequantizer(batch, one)
            v, log_lean = lean_noise(u, LEAN * model.slope(batch))
            volume = model.num_dims * 7 * math.log(2)
            log_p = model.log_density(model.continuous(batch, v)) - volume
            each.append(log_p - log_q - log_lean)
        torch.testing.assert_close(found, torch.logsumexp(torch.stack(each), 0) - math.log(2))
        bits = model.bits_per_dim(batch, num_samples=2, eps=eps, lean=True)
    torch.testing.assert_close(bits, -found / model.num_dims / math.log(2))


def test_leaning_noise_follows_labels():
    torch.manual_seed(0)
    model = macow.preset("digits-conditional").model.build()
    batch = torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8)
    with macow.initializing(model):
        model(batch, labels=torch.arange(4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    eps = torch.rand(1, 1, 8, 8)
    given = model.given("3").log_prob(batch[:1], eps=eps, lean=True)
    told = model.log_prob(batch[:1], eps=eps, labels=torch.tensor([3]), lean=True)
    torch.testing.assert_close(given, told)
    other = model.log_prob(batch[:1], eps=eps, labels=torch.tensor([4]), lean=True)
    assert not torch.equal(other, told)


def test_leaning_noise_tightens_the_bound_of_a_trained_model():
    model = macow.load("digits")
    test = data.load("digits", "test", model.shape)
    plain, leaning = (
        evaluate(model, test, num_samples=4, limit=64, lean=lean) for lean in (False, True)
    )
    assert leaning.lean
    assert leaning.bits_per_dim < plain.bits_per_dim - 0.04
    assert leaning.importance_weighted < plain.importance_weighted - 0.02
    assert leaning.noise_entropy < 0 == plain.noise_entropy


def test_a_model_that_is_not_initialised_has_no_slope():
    model = macow.preset("digits").model.build()
    with pytest.raises(RuntimeError, match="not initialised"):
        model.slope(torch.zeros(1, 1, 8, 8, dtype=torch.uint8))
