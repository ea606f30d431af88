"""The published configurations: their counts to the last parameter, and full-size round trips."""

from dataclasses import asdict, replace

import pytest
import torch

import macow
from macow.bench.images import natural_images
from macow.config import RunConfig
from macow.documents import from_dict
from macow.presets import PRESETS, cifar10, cifar10_org, imagenet64, imagenet64_org

PINNED = {
    "cifar10": 37_197_547,
    "cifar10-variational": 38_403_423,
    "imagenet64": 117_244_127,
    "imagenet64-variational": 123_100_393,
    "lsun128": 166_570_083,
    "lsun128-variational": 171_913_089,
    "celebahq256": 171_945_151,
    "celebahq256-variational": 177_288_157,
    "glow-cifar10": 44_175_264,
    "glow-imagenet64": 111_592_800,
    "glow-lsun128": 198_596_076,
    "glow-celebahq256": 170_883_756,
}


def count(config: RunConfig) -> int:
    with torch.device("meta"):
        model = config.model.build()
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", macow.preset_names())
def test_every_preset_builds_with_its_count(name):
    parameters = count(macow.preset(name))
    assert parameters == PRESETS[name].parameters
    assert parameters == PINNED.get(name, parameters)


def test_counts_stand_to_each_other_as_promised():
    parameters = {name: published.parameters for name, published in PRESETS.items()}
    for org, fine in [("cifar10-org", "cifar10"), ("imagenet64-org", "imagenet64")]:
        assert abs(parameters[org] / parameters[fine] - 1) < 0.03
    for peer in ("maf-cifar10", "emerging-cifar10"):
        assert abs(parameters[peer] / parameters["glow-cifar10"] - 1) < 0.10
    assert parameters["cifar10-small"] <= 7_500_000


@pytest.mark.parametrize(("fine", "org"), [(cifar10, cifar10_org), (imagenet64, imagenet64_org)])
def test_at_equal_steps_the_fine_grained_architecture_is_smaller(fine, org):
    config = fine()
    steps = tuple((sum(blocks),) for blocks in config.model.flow.steps)
    flow = replace(org().model.flow, steps=steps)
    assert count(config) < count(replace(config, model=replace(config.model, flow=flow)))


def test_the_wider_kernel_has_the_count_of_the_notes():
    config = cifar10()
    flow = replace(config.model.flow, kernel=(2, 5))
    assert count(replace(config, model=replace(config.model, flow=flow))) == 42_469_099


@pytest.mark.parametrize("name", macow.preset_names())
def test_presets_survive_json(name):
    preset = macow.preset(name)
    assert from_dict(RunConfig, asdict(preset)) == preset


def test_presets_carry_the_papers_setting():
    for name, bits, batch, temperature in [
        ("cifar10", 8, 512, 1.0),
        ("imagenet64-org", 8, 160, 1.0),
        ("lsun128-variational", 5, 160, 0.9),
        ("glow-lsun128", 5, 160, 0.9),
        ("celebahq256", 5, 40, 0.7),
    ]:
        preset = macow.preset(name)
        assert preset.model.n_bits == bits
        assert preset.train.batch_size == batch
        assert preset.temperature == temperature


def test_an_unknown_preset_is_named():
    with pytest.raises(ValueError, match="unknown preset 'cifar11'; there are cifar10"):
        macow.preset("cifar11")


HALF_A_GREY_LEVEL = 1 / 256


@pytest.mark.parametrize(
    ("name", "batch"),
    [("cifar10", 4), ("imagenet64", 2), ("cifar10-variational", 2), ("digits", 64)],
)
@torch.no_grad()
def test_full_size_round_trip(name, batch):
    model = macow.preset(name).model.build()
    images = natural_images(batch, model.shape, torch.Generator().manual_seed(0))
    with macow.initializing(model):
        model(images)
    x = 2 * ((images >> (8 - model.n_bits)) + 0.5) / 2**model.n_bits - 1
    z, log_det = model.flow(x)
    assert log_det.isfinite().all()
    assert (model.flow.inverse(z) - x).abs().max() < HALF_A_GREY_LEVEL
    cut = images >> (8 - model.n_bits) << (8 - model.n_bits)
    assert torch.equal(model.decode(model.encode(images)), cut)
    assert model.sample(1, temperature=0.7).shape == (1, *model.shape)
    assert 0 < model.bits_per_dim(images).mean() < 12


@pytest.mark.parametrize(
    "name", ["glow-cifar10", "realnvp-cifar10", "emerging-cifar10", "maf-cifar10"]
)
@torch.no_grad()
def test_peers_score_full_size(name):
    model = macow.preset(name).model.build()
    images = natural_images(2, model.shape, torch.Generator().manual_seed(0))
    with macow.initializing(model):
        model(images)
    assert model.bits_per_dim(images).isfinite().all()
    if name in ("glow-cifar10", "realnvp-cifar10"):
        assert torch.equal(model.decode(model.encode(images)), images)
