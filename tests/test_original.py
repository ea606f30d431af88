"""Checkpoints of the authors' code: their outputs, reproduced."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import macow
import original_code

FIXTURES = Path(__file__).parent / "fixtures" / "original"
NAMES = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())


def load_case(name):
    with np.load(FIXTURES / name / "expected.npz") as archive:
        expected = {key: torch.from_numpy(archive[key]) for key in archive}
    image = expected["image"]
    paths = FIXTURES / name / "config.json", FIXTURES / name / "model.pt"
    size = tuple(image.shape[2:])
    model = macow.load_original(*paths, n_bits=int(expected["n_bits"]), size=size)
    return model.double(), expected


def assert_agrees(found, expected, tolerance):
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_fixtures_agree(name):
    model, expected = load_case(name)
    z, log_det = model.flow(expected["x"])
    assert_agrees(z, expected["z"], 1e-9)
    assert_agrees(log_det, expected["log_det"], 1e-9)
    assert_agrees(model.log_density(expected["x"]), expected["log_prob"], 1e-9)
    assert_agrees(model.flow.inverse(expected["latent"]), expected["decoded"], 1e-6)
    eps = expected.get("dequant_eps", expected["noise"])
    u, log_q = model.dequantizer(expected["image"], eps)
    assert_agrees(u, expected["noise"], 1e-9)
    assert_agrees(log_q, expected.get("log_q", torch.zeros(len(u)).double()), 1e-9)
    bits = model.bits_per_dim(expected["image"], eps=eps)
    assert_agrees(bits, expected["bits_per_dim"], 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_the_second_reading_agrees_with_the_fixtures_too(name):
    """The interpreter that checks other configurations is itself held to the authors' outputs."""
    _, expected = load_case(name)
    state = original_code.Recorder(torch.load(FIXTURES / name / "model.pt", weights_only=True))
    config = json.loads((FIXTURES / name / "config.json").read_text())
    size = len(state)
    z, log_det = original_code.flow(state, "flow", expected["x"], None, config["flow"])
    assert_agrees(z, expected["z"], 1e-9)
    assert_agrees(log_det, expected["log_det"], 1e-9)
    if "dequant" in config:
        u, log_q = original_code.dequantize(
            state, expected["image"], expected["dequant_eps"], 8, config["dequant"]
        )
        assert_agrees(u, expected["noise"], 1e-9)
        assert_agrees(log_q, expected["log_q"], 1e-9)
    assert len(state) == size, "it asked for weights the checkpoint does not have"


MACOW = {"type": "macow", "in_channels": 3, "kernel_size": [2, 3], "inverse": True}
DEQUANT = {"in_channels": 3, "kernel_size": [2, 3], "s_channels": 4}
OTHERS = {
    "four levels": {
        "flow": {**MACOW, "levels": 4, "num_steps": [1, [1, 1], [1, 1], 2], "factors": [4, 4],
                 "hidden_channels": [6, 8, 8, 8]},
    },
    "M = 2 and M = 6": {
        "flow": {**MACOW, "levels": 4, "num_steps": [1, [2], [1, 1, 1], 1], "factors": [2, 6],
                 "hidden_channels": [6, 8, 8, 8]},
    },
    "kernel 3x7, more channels": {
        "flow": {**MACOW, "in_channels": 7, "kernel_size": [3, 7], "levels": 3,
                 "num_steps": [1, [1, 1], 1], "factors": [4], "hidden_channels": [6, 8, 8]},
    },
    "no bottom level": {
        "flow": {**MACOW, "levels": 2, "num_steps": [[1, 1], 1], "factors": [4],
                 "hidden_channels": [8, 8], "bottom": False},
    },
    "additive, affine priors": {
        "flow": {**MACOW, "levels": 3, "num_steps": [1, [1, 1], 1], "factors": [4],
                 "hidden_channels": [6, 8, 8], "scale": False},
    },
    "additive priors only": {
        "flow": {**MACOW, "levels": 3, "num_steps": [1, [1, 1], 1], "factors": [4],
                 "hidden_channels": [6, 8, 8], "prior_scale": False, "coupling_type": "conv"},
    },
    "dequantizer that factors out": {
        "flow": {**MACOW, "levels": 2, "num_steps": [1, 1], "factors": [],
                 "hidden_channels": [6, 8]},
        "dequant": {**DEQUANT, "levels": 3, "num_steps": [1, [1], 1], "factors": [2],
                    "hidden_channels": [6, 8, 8]},
    },
    "dequantizer without bottom level": {
        "flow": {**MACOW, "levels": 2, "num_steps": [1, 1], "factors": [],
                 "hidden_channels": [6, 8]},
        "dequant": {**DEQUANT, "levels": 2, "num_steps": [[1], 1], "factors": [2],
                    "hidden_channels": [8, 8], "bottom": False, "scale": False},
    },
    "glow, additive": {
        "flow": {"type": "glow", "levels": 3, "num_steps": [1, 2, 1], "in_channels": 3,
                 "scale": False, "inverse": True},
    },
    "grey glow": {
        "flow": {"type": "glow", "levels": 2, "num_steps": [1, 1], "in_channels": 1,
                 "inverse": True},
    },
}  # fmt: skip


def write_checkpoint(folder, config, state):
    (folder / "config.json").write_text(json.dumps({**config, "ngpu": 1, "gpu_id": 0}))
    torch.save(dict(state), folder / "model.pt")
    return folder / "config.json", folder / "model.pt"


@pytest.mark.parametrize("several_gpus", [False, True])
@pytest.mark.parametrize("config", OTHERS.values(), ids=OTHERS)
@torch.no_grad()
def test_other_configurations_agree(config, several_gpus, tmp_path):
    channels, size = config["flow"]["in_channels"], (8, 16)
    x = 2 * torch.rand(2, channels, *size, dtype=torch.double) - 1
    image = torch.randint(0, 256, x.shape, dtype=torch.uint8)
    eps = torch.randn_like(x)
    state = original_code.Recorder()
    z, log_det = original_code.flow(state, "flow", x, None, config["flow"])
    if "dequant" in config:
        noise, log_q = original_code.dequantize(state, image, eps, 5, config["dequant"])
    if several_gpus:
        state = {name.replace("flow.", "flow.flow.", 1): tensor for name, tensor in state.items()}
    model = macow.load_original(*write_checkpoint(tmp_path, config, state), n_bits=5, size=size)
    model.double()
    found_z, found_log_det = model.flow(x)
    assert_agrees(found_z, z, 1e-9)
    assert_agrees(found_log_det, log_det, 1e-9)
    assert_agrees(model.flow.inverse(z), x, 1e-9)
    normal = torch.distributions.Normal(0.0, 1.0).log_prob(z).flatten(1).sum(dim=1)
    assert_agrees(model.log_density(x), normal + log_det, 1e-9)
    if "dequant" in config:
        u, found_log_q = model.dequantizer(image, eps)
        assert_agrees(u, noise, 1e-9)
        assert_agrees(found_log_q, log_q, 1e-9)


@pytest.fixture
def checkpoint(tmp_path):
    for name in ("config.json", "model.pt"):
        shutil.copy(FIXTURES / "uniform" / name, tmp_path / name)
    return tmp_path / "config.json", tmp_path / "model.pt"


def edit_config(path, **changes):
    config = json.loads(path.read_text())
    config["flow"].update(changes)
    path.write_text(json.dumps(config))


def edit_weights(path, change):
    state = torch.load(path, weights_only=True)
    change(state)
    torch.save(state, path)


KEY = "flow.blocks.0.steps.0.glow_step.actnorm.bias"
TWICE = f"flow.{KEY}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c, w: edit_config(c, coupling_type="self_attn"), "self_attn.*not supported"),
        (lambda c, w: edit_config(c, type="realnvp"), "type must be 'macow' or 'glow'"),
        (lambda c, w: edit_config(c, wings=2), "unknown keys: wings"),
        (lambda c, w: edit_config(c, factors=[]), "factors must be one number"),
        (lambda c, w: edit_config(c, levels=4), "levels is 4, but num_steps"),
        (lambda c, w: edit_config(c, num_steps=3), "num_steps is 3"),
        (lambda c, w: c.write_text("{"), "is not JSON"),
        (lambda c, w: c.write_text("{}"), "it has no flow"),
        (lambda c, w: edit_config(c, hidden_channels=[8.0, 16, 16]), "must be int, got 8.0"),
        (lambda c, w: edit_config(c, scale="false"), "affine must be bool"),
        (lambda c, w: edit_config(c, kernel_size=[2, 3, 4]), "list of 2 values"),
        (lambda c, w: edit_config(c, inverse=False), "inverse must be true"),
        (lambda c, w: edit_weights(w, lambda s: s.pop(KEY)), "nothing for flow.level0.*norm.shift"),
        (lambda c, w: edit_weights(w, lambda s: s.update(extra=s[KEY])), "unknown keys.*: extra"),
        (lambda c, w: edit_weights(w, lambda s: s.update({KEY: torch.zeros(5)})), "shape \\[5\\]"),
        (lambda c, w: w.write_bytes(b"not a checkpoint"), "or damaged"),
        (lambda c, w: w.write_bytes(b""), "or damaged"),
        (lambda c, w: w.write_bytes(w.read_bytes()[:5000]), "or damaged"),
        (lambda c, w: edit_weights(w, lambda s: s.update({KEY: s[KEY] * math.nan})), "not finite"),
        (lambda c, w: edit_weights(w, lambda s: s.update({KEY: s[KEY].long()})), "torch.int64"),
        (lambda c, w: edit_weights(w, lambda s: s.update({TWICE: s[KEY]})), "same weight"),
        (lambda c, w: torch.save([1, 2], w), "must map names to tensors"),
    ],
)
def test_bad_checkpoints_are_named(checkpoint, change, message):
    change(*checkpoint)
    with pytest.raises(ValueError, match=message):
        macow.load_original(*checkpoint, size=(8, 8))


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        macow.load_original(tmp_path / "config.json", tmp_path / "model.pt")
