"""Checkpoints of the authors' code: their configuration and names, read into ours."""

import json
import os
import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from macow.config import FlowConfig, ModelConfig, VariationalConfig
from macow.model import FlowModel
from macow.ops.masked_conv import Order, turn

_FLOW_KEYS = {
    "levels", "num_steps", "factors", "in_channels", "kernel_size", "hidden_channels", "scale",
    "prior_scale", "bottom", "coupling_type", "inverse", "type", "s_channels",
}  # fmt: skip
_ATTENTION_KEYS = {"slices", "heads", "pos_enc", "dropout"}
_UNITS = {"conv1": "down", "conv2": "up", "conv3": "right", "conv4": "left"}

# Their names become ours, from the outside in.
_RENAMES: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
    (r"^(flow|dequant_flow)\.flow\.", r"\1."),  # several GPUs wrap the flow once more
    (r"^dequant_flow\.macow\.", "dequantizer.flow."),
    (r"^dequant_flow\.encoder\.", "dequantizer.encoder."),
    (r"\.steps\.(\d+)\.", r".block0.step\1."),
    (r"\.layers\.(\d+)\.(\d+)\.", r".block\1.step\2."),
    (r"\.priors\.(\d+)\.", r".block\1.prior."),
    (r"(\.blocks\.\d+)\.prior\.", r"\1.block0.prior."),  # Glow has one block a level
    (r"\.units\.(\d+)\.actnorm1\.", r".unit\1.norm0."),
    (r"\.units\.(\d+)\.actnorm2\.", r".unit\1.norm1."),
    (r"\.units\.(\d+)\.(conv\d)\.", lambda m: f".unit{m[1]}.{_UNITS.get(m[2], m[2])}."),
    (r"\.net\.masked_conv\.conv\.", ".read."),
    (r"\.net\.conv1x1\.conv\.", ".mix."),
    (r"\.s_conv\.conv\.", ".context."),
    (r"\.glow_step\.", ".glow."),
    (r"\.actnorm\.", ".norm."),
    (r"\.conv1x1\.weight$", ".mix.weight"),
    (r"\.nice\.", ".coupling."),
    (r"\.net\.conv1\.conv\.", ".net.first."),
    (r"\.net\.conv2\.conv\.", ".net.middle."),
    (r"\.net\.conv3\.conv\.", ".net.last."),
    (r"encoder\.resnet_bottom\.main\.(\d)\.", r"encoder.enter.\1."),
    (r"encoder\.nin_bottom\.conv\.", "encoder.enter."),
    (r"encoder\.down(\d+)\.conv\.", r"encoder.down.\1.0."),
    (r"encoder\.resnet(\d+)\.main\.(\d)\.", lambda m: f"encoder.down.{m[1]}.{int(m[2]) + 2}."),
    (r"encoder\.up(\d+)\.deconv\.", r"encoder.up.\1.0."),
    (r"encoder\.s_level\.conv\.", "encoder.last."),
    (r"(encoder\..*)\.conv1\.conv\.", r"\1.first."),
    (r"(encoder\..*)\.conv2\.conv\.", r"\1.second."),
    (r"(encoder\..*)\.downsample\.conv\.", r"\1.project."),
    (r"(norm\d?)\.bias$", r"\1.shift"),
    (r"\.weight_v$", ".direction"),
    (r"\.weight_g$", ".gain"),
]  # fmt: skip


def load_original(
    config: str | os.PathLike[str],
    weights: str | os.PathLike[str],
    n_bits: int = 8,
    size: tuple[int, int] = (32, 32),
) -> FlowModel:
    """Reads a checkpoint of the authors' code: its `config.json` and its `model.pt`.

    Neither file says how many bits or which image size the model was trained for.
    """
    model_config = read_original_config(config, n_bits=n_bits, size=size)
    model = model_config.build()
    ours = model.state_dict()
    theirs = _read_weights(weights)
    names = {
        _our_name(name, model_config): name
        for name in theirs
        if not name.endswith(".weight_inv")  # derived, and inexact
    }
    if unknown := sorted(names[name] for name in names.keys() - ours.keys()):
        raise ValueError(f"{weights}: unknown keys for this configuration: {_some(unknown)}")
    if missing := sorted(ours.keys() - names.keys() - {"initialized"}):
        raise ValueError(f"{weights}: nothing for {_some(missing)}")
    state = {"initialized": torch.tensor(data=True)}
    for name, their_name in names.items():
        state[name] = _converted(name, theirs[their_name])
        if state[name].shape != ours[name].shape:
            raise ValueError(
                f"{weights}: {their_name} has shape {list(theirs[their_name].shape)}, "
                "which does not fit this configuration"
            )
    model.load_state_dict(state)
    return model


def read_original_config(
    path: str | os.PathLike[str], n_bits: int = 8, size: tuple[int, int] = (32, 32)
) -> ModelConfig:
    """Reads the authors' `config.json` as a model configuration."""
    try:
        config = json.loads(Path(path).read_text())
        flow, dequant = config["flow"], config.get("dequant")
        variational = None
        if dequant is not None:
            variational = VariationalConfig(
                _flow_config(f"{path}: dequant", dequant), dequant.get("s_channels", 0)
            )
        return ModelConfig(
            flow=_flow_config(f"{path}: flow", flow),
            channels=flow["in_channels"],
            size=size,
            n_bits=n_bits,
            variational=variational,
        )
    except (json.JSONDecodeError, UnicodeDecodeError, AttributeError, TypeError) as error:
        raise ValueError(f"{path} is not the original code's configuration: {error}") from None
    except KeyError as error:
        raise ValueError(f"{path} is not the original code's configuration: no {error}") from None


def _flow_config(where: str, theirs: Mapping[str, Any]) -> FlowConfig:
    if theirs.get("coupling_type", "conv") != "conv":
        raise ValueError(
            f"{where}: coupling_type {theirs['coupling_type']!r} is not supported, only 'conv' is"
        )
    if unknown := sorted(theirs.keys() - _FLOW_KEYS - _ATTENTION_KEYS):
        raise ValueError(f"{where} has unknown keys: {', '.join(unknown)}")
    if theirs["levels"] != len(theirs["num_steps"]):
        raise ValueError(
            f"{where}: levels is {theirs['levels']}, but num_steps has {len(theirs['num_steps'])}"
        )
    kind = theirs.get("type", "macow")
    affine = theirs.get("scale", True)
    steps = tuple(tuple(n) if isinstance(n, list) else (n,) for n in theirs["num_steps"])
    if kind == "glow":
        return FlowConfig(
            kind="glow",
            steps=steps,
            factors=(2,) * (len(steps) - 1),
            hidden=(512,) * len(steps),
            bottom=False,
            affine=affine,
            affine_prior=affine,
        )
    if kind != "macow":
        raise ValueError(f"{where}: type must be 'macow' or 'glow', got {kind!r}")
    kh, kw = theirs["kernel_size"]
    return FlowConfig(
        steps=steps,
        factors=tuple(theirs["factors"]),
        hidden=tuple(theirs["hidden_channels"]),
        bottom=theirs.get("bottom", True),
        kernel=(kh, kw),
        affine=affine,
        affine_prior=theirs.get("prior_scale", True),
    )


def _read_weights(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} cannot be read safely as a state dict: {reason}") from None
    if not isinstance(weights, dict) or not all(isinstance(t, Tensor) for t in weights.values()):
        raise ValueError(f"{path} is not a state dict: it must map names to tensors")
    return weights


def _our_name(name: str, config: ModelConfig) -> str:
    for pattern, replacement in _RENAMES:
        name = re.sub(pattern, replacement, name)
    variational = name.startswith("dequantizer.") and config.variational
    flow = config.variational.flow if variational and config.variational else config.flow
    first = 0 if flow.bottom else 1
    return re.sub(r"\.blocks\.(\d+)\.", lambda m: f".level{int(m[1]) + first}.", name)


def _converted(name: str, tensor: Tensor) -> Tensor:
    """Their tensor in our shape and orientation: our masked kernels always read downwards."""
    if found := re.search(r"\.(up|right|left)\.read\.direction$", name):
        return turn(tensor, cast(Order, found[1])).contiguous()
    return tensor.flatten() if name.endswith((".gain", ".log_scale", ".shift")) else tensor


def _some(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
