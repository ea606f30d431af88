"""Models pushed to their limits: finite figures, or a failure that says what failed."""

import copy
import json
import math

import numpy as np
import pytest
import torch
from PIL import Image

import macow
from cases import CASES
from macow import data
from macow.check import check, own_samples, verdict
from macow.cli import main
from macow.config import FlowConfig, ModelConfig
from macow.initialize import initializing
from models import images, tiny_model

KINDS = {
    "norm": "flow.level1.block0.step2.glow.norm.log_scale",
    "shift": "flow.level2.block0.step0.unit0.norm0.shift",
    "1x1": "flow.level1.block1.step1.glow.mix.weight",
    "masked, read": "flow.level1.block0.step0.unit0.right.read.direction",
    "masked, mix": "flow.level2.block0.step1.unit0.up.mix.gain",
    "masked, bias": "flow.level1.block1.step0.unit0.left.mix.bias",
    "coupling": "flow.level1.block0.step1.glow.coupling.net.middle.direction",
    "coupling, last": "flow.level2.block0.step2.glow.coupling.net.last.gain",
    "prior": "flow.level1.block0.prior.coupling.net.first.bias",
}


@pytest.fixture(scope="module")
def digits():
    return macow.load("digits")


@pytest.fixture(scope="module")
def some_digits():
    return torch.from_numpy(data.load("digits", "test").take(np.arange(64)))


def outcome(compute):
    """What a computation gives, which must be finite, or how it failed by name."""
    try:
        found = compute()
    except FloatingPointError as error:
        return str(error)
    assert torch.isfinite(found).all()
    return found


def everything(model, batch):
    """All a user can ask of a model."""
    z = torch.randn(2, *model.shape, dtype=model.dtype)
    x = model.continuous(batch, 0.5)
    asked = {
        "log_prob": lambda: model.log_prob(batch),
        "importance-weighted": lambda: model.log_prob(batch, num_samples=3),
        "log_density": lambda: model.log_density(x),
        "encode": lambda: model.encode(batch),
        "decode": lambda: model.decode(z).float(),
        "sample": lambda: model.sample(2).float(),
        "hot": lambda: model.sample(2, temperature=1.5).float(),
    }
    return {name: outcome(compute) for name, compute in asked.items()}


LAST = ("mix.bias", "last.bias")
PUSHES = {
    "weights x10": lambda name, p: p.mul_(10),
    "weights x1e4": lambda name, p: p.mul_(1e4),
    "weights x1e-4": lambda name, p: p.mul_(1e-4),
    "gains at 1e3": lambda name, p: p.fill_(1e3) if name.endswith("gain") else None,
    "scales closed": lambda name, p: (
        p.fill_(-60) if name.endswith(("mix.bias", "last.bias")) else 0
    ),
    "scales open": lambda name, p: p.fill_(60) if name.endswith(("mix.bias", "last.bias")) else 0,
    "norms at e^20": lambda name, p: p.fill_(20) if name.endswith("log_scale") else None,
    "norms at e^-20": lambda name, p: p.fill_(-20) if name.endswith("log_scale") else None,
    "norms at e^90": lambda name, p: p.fill_(90) if name.endswith("log_scale") else None,
    "norms at e^-120": lambda name, p: p.fill_(-120) if name.endswith("log_scale") else None,
    "all zero": lambda name, p: p.zero_(),
    "all one": lambda name, p: p.fill_(1),
    "all 1e30": lambda name, p: p.fill_(1e30),
    "noise": lambda name, p: p.normal_(0, 5),
}


@pytest.mark.parametrize("variational", [False, True], ids=["uniform", "variational"])
@pytest.mark.parametrize("push", PUSHES.values(), ids=PUSHES)
@torch.no_grad()
def test_an_adversarial_model_is_finite_or_fails_by_name(push, variational):
    model = tiny_model(variational=variational, size=(4, 4))
    for name, parameter in model.named_parameters():
        push(name, parameter)
    everything(model, images(3, model))


@pytest.mark.parametrize("kind", ["glow", "realnvp", "maf", "emerging"])
@pytest.mark.parametrize("push", ["weights x10", "all zero", "noise", "norms at e^90"])
@torch.no_grad()
def test_adversarial_peers_are_finite_or_fail_by_name(kind, push):
    flow = FlowConfig(((1,),), hidden=(12,), kind=kind, bottom=False)
    model = ModelConfig(flow, size=(4, 4)).build()
    batch = images(8, model)
    with initializing(model):
        model(batch)
    for name, parameter in model.named_parameters():
        PUSHES[push](name, parameter)
    everything(model, batch)


@torch.no_grad()
def test_float32_agrees_with_float64(digits, some_digits):
    eps = torch.rand(some_digits.shape)
    single = digits.bits_per_dim(some_digits, eps=eps)
    double = copy.deepcopy(digits).double().bits_per_dim(some_digits, eps=eps.double())
    assert (single - double).abs().max() < 1e-4  # it is 2e-6


@pytest.mark.parametrize("temperature", [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5])
def test_samples_of_every_temperature_are_pictures(digits, temperature):
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        found = outcome(lambda g=generator: digits.sample(32, temperature, generator=g).float())
        if isinstance(found, str):  # far out, a trained model may not invert
            assert temperature > 1.25
            assert "decoding of" in found
        else:
            assert (found.flatten(1).std(dim=1) > 0).all(), "a blank picture"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@torch.no_grad()
def test_a_loaded_weight_that_is_no_number_is_named_by_every_method(value):
    model = tiny_model(variational=True, size=(4, 4))
    batch = images(2, model)
    sound = copy.deepcopy(model.state_dict())
    kinds = {".".join(name.split(".")[-2:]): name for name, _ in model.named_parameters()}
    for name in kinds.values():
        state = {**sound, name: sound[name].clone()}
        state[name].view(-1)[0] = value
        model.load_state_dict(state)
        for asked, found in everything(model, batch).items():
            assert isinstance(found, str), (asked, name)
            assert name in found
    model.load_state_dict(sound)
    assert not any(isinstance(found, str) for found in everything(model, batch).values())


@torch.no_grad()
def test_a_weight_that_becomes_no_number_is_named():
    sound = tiny_model(size=(4, 4))
    batch = images(2, sound)
    kinds = {".".join(name.split(".")[-2:]): name for name, _ in sound.named_parameters()}
    for name in kinds.values():
        model = copy.deepcopy(sound)
        model.get_parameter(name).view(-1)[0] = math.nan
        for compute in (lambda m=model: m.log_prob(batch), lambda m=model: m.sample(2).float()):
            found = outcome(compute)
            assert isinstance(found, str), name
            assert name in found


def test_a_damaged_model_fails_in_one_line(digits, tmp_path, capsys, monkeypatch):
    """Loading it works, for `macow check` to look at; no other verb makes figures of it."""
    monkeypatch.chdir(tmp_path)
    model = copy.deepcopy(digits)
    with torch.no_grad():
        model.get_parameter(KINDS["coupling"]).view(-1)[3] = math.nan
    model.save_pretrained(tmp_path / "model")
    Image.fromarray(np.full((8, 8), 80, np.uint8)).save(tmp_path / "a.png")
    np.savez(tmp_path / "z.npz", latents=np.zeros((1, 1, 8, 8), np.float32))
    for argv in (
        ["evaluate", "model", "--data", "digits", "--limit", "4"],
        ["sample", "model", "--count", "2"],
        ["encode", "model", "a.png"],
        ["decode", "model", "z.npz"],
        ["interpolate", "model", "sample:0", "sample:1", "--frames", "2"],
        ["score", "model", "a.png", "--reference", "digits"],
    ):
        assert main([*argv, "--quiet"]) == 2
        printed = capsys.readouterr()
        assert printed.err.count("\n") == 1
        assert "not finite" in printed.err
        assert "nan" not in printed.out.lower()
    assert main(["score", "model", "a.png", "--quiet"]) == 0
    assert "1 weights are not finite" in capsys.readouterr().out
    assert main(["check", "model"]) == 1
    assert KINDS["coupling"] in capsys.readouterr().out


def flip(parameter, bit):
    """One bit of one value, as a failing disk does."""
    parameter.view(-1)[:1].view(torch.int32).bitwise_xor_(1 << bit if bit < 31 else -(1 << 31))


DAMAGES = {
    "NaN": lambda p: p.view(-1)[-1:].fill_(math.nan),
    "infinite": lambda p: p.view(-1)[-1:].fill_(-math.inf),
    "huge": lambda p: p.mul_(1e9),
    "one huge value": lambda p: p.view(-1)[:1].fill_(-3e20),
    "zeroed": lambda p: p.zero_(),
    "top bit of an exponent": lambda p: flip(p, 30),
}


@pytest.mark.parametrize("layer", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@torch.no_grad()
def test_check_names_the_damaged_layer(digits, layer, damage):
    model = copy.deepcopy(digits)
    damage(model.get_parameter(layer))
    findings = [f for f in check(model, own_samples(model, 2)) if f.level != "ok"]
    assert any(layer in finding.text for finding in findings), findings
    assert verdict(findings) != "sound"


@pytest.mark.parametrize("bit", range(32))
def test_every_flipped_bit_of_a_file_is_named(digits, bit, tmp_path, capsys):
    """Also those that leave a weight plausible: files carry a checksum of each."""
    digits.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    content = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    name = [*KINDS.values()][bit % len(KINDS)]
    place = start + header[name]["data_offsets"][0] + bit // 8
    content[place] ^= 1 << bit % 8
    path.write_bytes(content)
    assert main(["check", str(tmp_path)]) == 2
    printed = capsys.readouterr().err
    assert f"model.safetensors is damaged: {name} is not what was written" in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize("name", ["macow-step", "glow-step", "emerging-step", "maf-step"])
@torch.no_grad()
def test_scales_at_their_limits_are_undone(name):
    """A layer whose weights are twice what they were still inverts itself in float64."""
    case = CASES[name]
    bijection = case.bijection()
    x, cond = case.inputs()
    for parameter in bijection.parameters():
        parameter.mul_(2)
    y, log_det = bijection(x, cond)
    assert log_det.isfinite().all()
    torch.testing.assert_close(bijection.inverse(y, cond), x, atol=1e-5, rtol=0)
