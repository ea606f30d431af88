"""After initialisation, activations are standard and every transform starts as the identity."""

import math

import pytest
import torch

import macow
from macow.bench.images import natural_images
from macow.bijections import ActNorm, MaskedConv
from macow.nets.weight_norm import WeightNormConv2d, WeightNormUpsample2d
from macow.ops import masked_conv
from models import images, tiny_config


def record(model, kind, read):
    """What every module of a kind gives on its way through the model."""
    seen = {}
    handles = [
        module.register_forward_hook(
            lambda module, inputs, output, name=name: seen.__setitem__(
                name, read(module, inputs, output)
            )
        )
        for name, module in model.named_modules()
        if isinstance(module, kind)
    ]
    return seen, handles


def assert_standard(y, scale=1.0):
    y = y.transpose(0, 1).flatten(1)
    torch.testing.assert_close(y.mean(dim=1), torch.zeros(len(y)), atol=1e-4, rtol=0)
    torch.testing.assert_close(y.std(dim=1), torch.full((len(y),), scale), atol=1e-3, rtol=0)


@pytest.fixture
def passed():
    """A fresh variational model, initialised, and the same batch and noise through it again."""
    model = tiny_config(variational=True).build()
    batch = images(16, model)
    eps = torch.randn(batch.shape)
    with macow.initializing(model):
        model(batch, eps=eps)
    return model, lambda: model(batch, eps=eps)


@pytest.mark.parametrize("name", ["cifar10-variational", "imagenet64-variational"])
def test_the_first_noise_is_about_uniform(name):
    config = macow.preset(name).model
    dequantizer = config.variational.build(config.channels, config.n_bits)
    batch = natural_images(8, config.shape, torch.Generator().manual_seed(0))
    with macow.initializing(dequantizer):
        dequantizer(batch)
    with torch.no_grad():
        u, log_q = dequantizer(batch)
    assert u.mean().item() == pytest.approx(1 / 2, abs=0.01)
    assert u.std().item() == pytest.approx(12**-0.5, abs=0.01)
    assert -0.03 < -log_q.mean() / u[0].numel() / math.log(2) < 0  # a standard normal: -0.34


def test_activations_are_standard(passed):
    model, run = passed
    norms, _ = record(model, ActNorm, lambda module, inputs, output: output[0])
    convs, _ = record(
        model,
        (WeightNormConv2d, WeightNormUpsample2d),
        lambda module, inputs, output: (module, output.clone()),  # an ELU takes its place
    )
    reads, _ = record(
        model,
        MaskedConv,
        lambda module, inputs, output: masked_conv.hidden(
            masked_conv.turn(inputs[0], module.order), module.read.weight(), module.read.bias
        ),
    )
    with torch.no_grad():
        run()
    assert len(norms) == 6 * 5 + 2
    assert len(reads) == 6 * 8
    for y in [*norms.values(), *reads.values()]:
        assert_standard(y)
    for name, (module, y) in convs.items():
        if module.zero:
            assert not y.any(), name
        else:
            assert_standard(y)


def test_transforms_start_as_sigmoid_2(passed):
    model, run = passed
    masked, _ = record(model, MaskedConv, lambda module, inputs, output: (inputs[0], *output))
    with torch.no_grad():
        run()
    for x, y, log_det in masked.values():
        torch.testing.assert_close(y, x * torch.sigmoid(torch.tensor(2.0)))
        expected = math.log(1 / (1 + math.exp(-2))) * x[0].numel()
        torch.testing.assert_close(log_det, torch.full((len(x),), expected))


def test_a_failed_pass_leaves_the_model_uninitialised():
    model = tiny_config().build()
    with pytest.raises(ValueError, match="images must be"), macow.initializing(model):
        model(torch.zeros(1, 3, 4, 4, dtype=torch.uint8))
    assert not model.is_initialized
    with macow.initializing(model):
        model(images(4, model))
    assert model.is_initialized


@pytest.mark.parametrize("incomplete", [lambda m, b: None, lambda m, b: m.encode(b)])
def test_an_incomplete_pass_is_named(incomplete):
    model = tiny_config(variational=True).build()
    with pytest.raises(ValueError, match="layers saw no data"), macow.initializing(model):
        incomplete(model, images(4, model))
    assert not model.is_initialized


def test_only_the_first_pass_counts():
    model = tiny_config().build()
    with macow.initializing(model):
        model(images(16, model))
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        model(images(16, model, seed=1))
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_one_value_per_channel_is_too_few():
    layer = ActNorm(3)
    with pytest.raises(ValueError, match="give it more images"), macow.initializing(layer):
        layer(torch.zeros(1, 3, 1, 1))


def test_hooks_do_not_stay(passed):
    model, _ = passed
    assert not any(module._forward_pre_hooks for module in model.modules())
