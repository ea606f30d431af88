"""Weights kept in 16 and 8 bits: what they lose, what does not fit, what is refused."""

import errno
import math
from dataclasses import replace
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file, save_file

import macow
from macow import files
from macow.cli import main
from macow.config import FlowConfig, ModelConfig
from macow.export import export
from macow.nets.weight_norm import WeightNorm, WeightNormConv2d
from macow.score import Reference
from macow.weights import DERIVED
from models import images, stirred, tiny_model


@pytest.mark.parametrize(("bits", "size", "error"), [(16, 0.9, 2e-3), (8, 0.85, 2e-2)])
@pytest.mark.parametrize("variational", [False, True])
def test_fewer_bits_of_networks_are_enough(variational, bits, size, error, tmp_path):
    model = tiny_model(variational=variational)
    batch = images(8, model)
    model.save_pretrained(tmp_path / "whole")
    model.save_pretrained(tmp_path / "short", bits=bits)
    sizes = [(tmp_path / n / "model.safetensors").stat().st_size for n in ("whole", "short")]
    assert sizes[1] < size * sizes[0]
    back = macow.load(tmp_path / "short")
    assert back.dtype == torch.float32
    for name, weight in model.state_dict().items():
        if not name.endswith(".direction"):
            assert torch.equal(back.state_dict()[name], weight)
    layers = [[m for m in whole.modules() if isinstance(m, WeightNorm)] for whole in (back, model)]
    for short, long in zip(*layers, strict=True):
        apart = torch.linalg.vector_norm(short.weight() - long.weight())
        assert apart <= (2**-11 if bits == 16 else 0.01) * torch.linalg.vector_norm(long.weight())
    found, expected = (
        m.bits_per_dim(batch, generator=torch.Generator().manual_seed(0)) for m in (back, model)
    )
    torch.testing.assert_close(found, expected, atol=error, rtol=0)
    back.save_pretrained(tmp_path / "again", bits=bits)
    files = [(tmp_path / n / "model.safetensors").read_bytes() for n in ("short", "again")]
    assert files[0] == files[1]


def test_weights_in_8_bits_are_as_long_as_fresh_ones(tmp_path):
    model = tiny_model()
    model.save_pretrained(tmp_path, bits=8)
    for module in macow.load(tmp_path).modules():
        if isinstance(module, WeightNorm):
            assert module.direction.square().mean().sqrt().item() == pytest.approx(0.05)


def test_whole_numbers_are_for_directions_alone(tmp_path, capsys):
    model = tiny_model()
    model.save_pretrained(tmp_path, bits=8)
    weights = load_file(tmp_path / "model.safetensors")
    lost = next(name for name in weights if name.endswith(".direction"))
    save_file({**weights, lost: torch.zeros_like(weights[lost])}, tmp_path / "model.safetensors")
    assert not macow.load(tmp_path).state_dict()[lost].any()
    assert main(["check", str(tmp_path)]) == 1
    assert "is not sound" in capsys.readouterr().out
    gain = next(name for name in weights if name.endswith(".gain"))
    save_file({**weights, gain: weights[gain].to(torch.int8)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=f"{gain} is torch.int8"):
        macow.load(tmp_path)


def test_a_peers_masked_weights_survive_8_bits(tmp_path):
    maf = FlowConfig(kind="maf", bottom=False, steps=((1,),), hidden=(12,))
    model = stirred(ModelConfig(maf, size=(4, 4)).build())
    model.save_pretrained(tmp_path, bits=8)
    batch = images(3, model)
    eps = torch.rand(batch.shape)
    with torch.no_grad():
        found, expected = (m.bits_per_dim(batch, eps=eps) for m in (macow.load(tmp_path), model))
    torch.testing.assert_close(found, expected, atol=2e-2, rtol=0)


def test_a_number_of_bits_is_one_of_three(tmp_path):
    with pytest.raises(ValueError, match="bits must be 32, 16 or 8, got 4"):
        tiny_model().save_pretrained(tmp_path, bits=4)
    assert not list(tmp_path.iterdir())


def test_what_was_true_of_other_weights_goes_with_them_and_not_before(tmp_path):
    model, put = tiny_model(), files.put
    reference = Reference(1, (3.0,), (0.0,))
    export(model, tmp_path, reference)
    (tmp_path / "likelihood.pt2").touch()

    def found():
        return {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    before = found()
    macow.load(tmp_path).save_pretrained(tmp_path)
    assert found() == before
    with pytest.raises(ValueError, match="bits must be"):
        export(model, tmp_path, bits=4)
    model.config = replace(model.config, n_bits=5)
    for at in (1, 2):  # the disk is full when the weights are written, or when config.json is
        left = iter(range(at - 1))

        def full(path, content, left=left):
            put(path, content)
            if next(left, None) is None:
                raise OSError(errno.ENOSPC, "No space left")

        with mock.patch.object(files, "put", full), pytest.raises(OSError, match="space"):
            export(model, tmp_path)
        assert found() == before
    model.save_pretrained(tmp_path, bits=8)
    assert found().keys() == before.keys() - set(DERIVED)


def test_a_weight_that_is_no_number_is_not_rounded_to_one(tmp_path):
    model = tiny_model()
    next(m for m in model.modules() if isinstance(m, WeightNorm)).direction.data[0] = math.nan
    with pytest.raises(ValueError, match="does not fit 8 bits"):
        model.save_pretrained(tmp_path, bits=8)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("factor", [1e7, 1e-9])
def test_weights_that_half_cannot_hold_are_refused(factor, tmp_path):
    model = tiny_model()
    for module in model.modules():
        if isinstance(module, WeightNormConv2d):
            module.direction.data *= factor
    with pytest.raises(ValueError, match="does not fit 16 bits"):
        model.save_pretrained(tmp_path, bits=16)
    assert not list(tmp_path.iterdir())
