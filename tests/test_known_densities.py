"""Likelihoods against densities that are known exactly."""

import math
from itertools import product

import pytest
import torch
from torch.distributions import Normal

from cases import Diagonal, NormalQuantile
from macow.dequantize import UniformDequantizer
from macow.initialize import initializing
from macow.model import FlowModel
from models import VARIATIONAL


@pytest.mark.parametrize("n_bits", range(1, 9))
def test_a_uniform_model_costs_exactly_n_bits(n_bits):
    model = FlowModel(NormalQuantile(), UniformDequantizer(), (3, 4, 4), n_bits)
    model.is_initialized = True
    images = torch.randint(0, 256, (5, 3, 4, 4), dtype=torch.uint8)
    bits = model.bits_per_dim(images, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(bits, torch.full((5,), float(n_bits)), atol=2e-5, rtol=0)


def gaussian_model(shape, n_bits, dequantizer):
    generator = torch.Generator().manual_seed(5)
    mean = 0.6 * torch.rand(shape, generator=generator, dtype=torch.double) - 0.3
    std = 0.2 + 0.3 * torch.rand(shape, generator=generator, dtype=torch.double)
    model = FlowModel(Diagonal(mean, std), dequantizer, shape, n_bits).double()
    model.is_initialized = True
    return model


def exact_log_prob(model, images):
    """`log P(image)` of a Gaussian model: products of differences of its distribution function."""
    levels = (images >> (8 - model.n_bits)).double()
    normal = Normal(model.flow.mean, model.flow.std)
    low, high = (2 * (levels + end) / 2**model.n_bits - 1 for end in (0, 1))
    return (normal.cdf(high) - normal.cdf(low)).log().flatten(1).sum(dim=1).detach()


def every_image(shape, n_bits):
    levels = list(product(range(2**n_bits), repeat=math.prod(shape)))
    images = torch.tensor(levels, dtype=torch.uint8).view(-1, *shape)
    return images << (8 - n_bits)


@torch.no_grad()
def test_all_images_of_a_small_space_sum_to_the_mass_the_density_has():
    shape = (1, 1, 2)
    model = gaussian_model(shape, 2, UniformDequantizer())
    images = every_image(shape, 2)
    assert len(images) == 16
    noise = (torch.arange(30).double() + 0.5) / 30  # midpoints: integrate over the noise by hand
    eps = torch.cartesian_prod(noise, noise).view(-1, 1, *shape)
    normal = Normal(model.flow.mean, model.flow.std)
    total = 0.0
    for image, exact in zip(images, exact_log_prob(model, images), strict=True):
        found = model.log_prob(image[None], num_samples=len(eps), eps=eps)
        cells = 2 * ((image >> 6) + eps[:, 0]) / 4 - 1
        volume = (2 / 4) ** math.prod(shape)
        summed = volume * normal.log_prob(cells).flatten(1).sum(dim=1).exp().mean()
        assert abs(found - summed.log()) < 1e-12
        assert abs(found - exact) < 2e-3  # what midpoints lose
        total += found.exp().item()
    mass = (normal.cdf(torch.tensor(1.0)) - normal.cdf(torch.tensor(-1.0))).prod()
    assert total == pytest.approx(mass.item(), abs=1e-4)


def uniform(shape):
    return UniformDequantizer()


def variational(shape):
    dequantizer = VARIATIONAL.build(shape[0], 2).double()
    images = torch.randint(0, 256, (64, *shape), dtype=torch.uint8)
    with torch.no_grad():
        for name, parameter in dequantizer.named_parameters():
            if name.endswith("gain"):
                parameter.copy_(0.1 * torch.rand_like(parameter) + 0.1)
    with initializing(dequantizer):
        dequantizer(images)
    return dequantizer


@pytest.mark.parametrize("make", [uniform, variational])
@torch.no_grad()
def test_the_bound_holds_and_tightens(make):
    shape = (3, 2, 2)
    model = gaussian_model(shape, 2, make(shape))
    images = torch.randint(0, 256, (100, *shape), dtype=torch.uint8)
    exact = exact_log_prob(model, images).mean().item()
    bounds = []
    for num_samples in (1, 8, 64):
        generator = torch.Generator().manual_seed(7)
        bounds.append(model.log_prob(images, num_samples, generator=generator).mean().item())
    assert bounds[0] < bounds[1] < bounds[2] < exact
    assert exact - bounds[2] < 0.7 * (exact - bounds[0])


@pytest.mark.parametrize("n_bits", [1, 2, 3, 4])
@torch.no_grad()
def test_leaning_noise_is_nearer_to_the_exact_likelihood_and_never_beyond(n_bits):
    shape = (1, 1, 2)
    model = gaussian_model(shape, n_bits, UniformDequantizer())
    images = every_image(shape, n_bits)
    grid = (torch.arange(60).double() + 0.5) / 60
    eps = torch.cartesian_prod(grid, grid).view(-1, *shape)

    def bound(image, slope):
        log_p, log_q = model.log_terms(image.expand(len(eps), *shape), eps, slope=slope)
        return (log_p - log_q).mean().item()

    for image, exact in zip(images, exact_log_prob(model, images), strict=True):
        lean = model.lean(image[None])
        plain, less, leaning, more = (bound(image, share * lean) for share in (0, 0.7, 1, 1.3))
        assert plain < leaning < exact.item()
        if n_bits == 4:  # within a level the density is nearly quadratic
            assert max(less, more) < leaning
