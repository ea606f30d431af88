"""Checkpoints of the authors' code: their configuration and names, read into ours."""

import os
import pickletools
import re
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import Tensor

from macow.config import ModelConfig
from macow.documents import brief, from_dict, read_json
from macow.model import FlowModel
from macow.ops.masked_conv import Order, turn

_FLOW_KEYS = {
    "levels", "num_steps", "factors", "in_channels", "kernel_size", "hidden_channels", "scale",
    "prior_scale", "bottom", "coupling_type", "inverse", "type", "s_channels",
}  # fmt: skip
_ATTENTION_KEYS = {"slices", "heads", "pos_enc", "dropout"}
_UNITS = {"conv1": "down", "conv2": "up", "conv3": "right", "conv4": "left"}

_NAMING = {"GLOBAL", "INST", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4"}
_PLAIN = re.compile(
    r"collections OrderedDict|torch\._utils _rebuild_(tensor_v2|parameter)|torch \w+Storage"
)
"""What a state dict is made of, as a pickle asks for it."""

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
    theirs = _read_weights(Path(weights))
    ours = model_config.outline(len(theirs), f"{config} with {weights}")
    names: dict[str, str] = {}
    for their_name in theirs:
        if their_name.endswith(".conv1x1.weight_inv"):
            continue  # derived, and inexact
        name = _our_name(their_name, model_config)
        if name in names:
            raise ValueError(
                f"{weights}: {brief(names[name])} and {brief(their_name)} are the same weight"
            )
        names[name] = their_name
    if unknown := sorted(names[name] for name in names.keys() - ours.keys()):
        raise ValueError(f"{weights}: unknown keys for this configuration: {_some(unknown)}")
    if missing := sorted(ours.keys() - names.keys() - {"initialized"}):
        raise ValueError(f"{weights}: nothing for {_some(missing)}")
    state = {"initialized": torch.tensor(data=True)}
    for name, their_name in names.items():
        tensor = theirs[their_name]
        if tensor.numel() != ours[name].numel() or not tensor.is_floating_point():
            raise ValueError(
                f"{weights}: {their_name} is {tensor.dtype} of shape {list(tensor.shape)}, "
                f"which does not fit {name} {list(ours[name].shape)}"
            )
        if not tensor.isfinite().all():
            raise ValueError(f"{weights}: {their_name} has values that are not finite")
        state[name] = _converted(name, tensor, ours[name].shape)
    with torch.random.fork_rng(devices=[]):
        model = model_config.build()
    model.load_state_dict(state)
    return model


def read_original_config(
    path: str | os.PathLike[str], n_bits: int = 8, size: tuple[int, int] = (32, 32)
) -> ModelConfig:
    """Reads the authors' `config.json` as a model configuration."""
    config = read_json(Path(path))
    if not isinstance(config, dict) or not isinstance(config.get("flow"), dict):
        raise ValueError(f"{path} is not the original code's configuration: it has no flow")
    flow, dequant = config["flow"], config.get("dequant")
    ours: dict[str, Any] = {
        "flow": _flow_config(f"{path}: flow", flow, inverse=True),
        "channels": flow["in_channels"],
        "size": size,
        "n_bits": n_bits,
    }
    if dequant is not None:
        ours["variational"] = {
            "flow": _flow_config(f"{path}: dequant", dequant, inverse=False),
            "cond_channels": dequant.get("s_channels", 0),
        }
        if dequant["in_channels"] != flow["in_channels"]:
            raise ValueError(f"{path}: flow and dequant must have the same in_channels")
    return from_dict(ModelConfig, ours, str(path))


def _flow_config(where: str, theirs: Any, *, inverse: bool) -> dict[str, Any]:
    """Their keys in our names; `from_dict` looks at the values."""
    if not isinstance(theirs, dict):
        raise ValueError(f"{where} must be an object, got {brief(theirs)}")
    if theirs.get("coupling_type", "conv") != "conv":
        raise ValueError(
            f"{where}: coupling_type {brief(theirs['coupling_type'])} is not supported, "
            "only 'conv' is"
        )
    if unknown := sorted(theirs.keys() - _FLOW_KEYS - _ATTENTION_KEYS):
        raise ValueError(f"{where} has unknown keys: {brief(unknown)}")
    if theirs.get("inverse", inverse) is not inverse:
        raise ValueError(f"{where}: inverse must be {str(inverse).lower()}")
    kind = theirs.get("type", "macow")
    if kind not in ("macow", "glow"):
        raise ValueError(f"{where}: type must be 'macow' or 'glow', got {brief(kind)}")
    needed = {"levels", "num_steps", "in_channels"}
    if kind == "macow":
        needed |= {"factors", "hidden_channels", "kernel_size"}
    if missing := sorted(needed - theirs.keys()):
        raise ValueError(f"{where} has no {', '.join(missing)}")
    num_steps, affine = theirs["num_steps"], theirs.get("scale", True)
    if not isinstance(num_steps, list) or theirs["levels"] != len(num_steps):
        found = f"levels is {brief(theirs['levels'])}, but num_steps is {brief(num_steps)}"
        raise ValueError(f"{where}: {found}")
    steps = [n if isinstance(n, list) else [n] for n in num_steps]
    if kind == "glow":
        return {
            "kind": "glow",
            "steps": steps,
            "factors": [2] * (len(steps) - 1),
            "hidden": [512] * len(steps),
            "bottom": False,
            "affine": affine,
            "affine_prior": affine,
        }
    return {
        "steps": steps,
        "factors": theirs["factors"],
        "hidden": theirs["hidden_channels"],
        "bottom": theirs.get("bottom", True),
        "kernel": theirs["kernel_size"],
        "affine": affine,
        "affine_prior": theirs.get("prior_scale", True),
    }


def _read_weights(path: Path) -> dict[str, Tensor]:
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: not a regular file")
    with open(path, "rb") as file:  # so that a file that cannot be opened says so itself
        try:
            _require_plain(file)
            file.seek(0)
            weights = torch.load(file, map_location="cpu", weights_only=True)
        except Exception:  # a damaged pickle raises anything
            raise ValueError(f"{path} is not a checkpoint of plain tensors, or damaged") from None
    if not isinstance(weights, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) and tensor.layout == torch.strided
        for name, tensor in weights.items()
    ):
        raise ValueError(f"{path} is not a state dict: it must map names to tensors")
    if sum(t.numel() * t.element_size() for t in weights.values()) > path.stat().st_size:
        raise ValueError(f"{path} is damaged: its tensors are larger than the file")
    return weights


def _require_plain(file: IO[bytes]) -> None:
    """Looks through a checkpoint without running it: torch itself admits more than tensors."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            if any(info.file_size > info.compress_size for info in archive.infolist()):
                raise ValueError("torch does not compress")
            (pickle,) = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            streams = [BytesIO(archive.read(pickle))]
    else:
        file.seek(0)
        streams = [
            cast(BytesIO, file)
        ] * 5  # magic number, version, machine, weights, keys of the storages
    for stream in streams:
        for opcode, argument, _ in pickletools.genops(stream):
            if opcode.name in _NAMING and not _PLAIN.fullmatch(str(argument)):
                raise ValueError(f"it asks for {argument}")


def _our_name(name: str, config: ModelConfig) -> str:
    for pattern, replacement in _RENAMES:
        name = re.sub(pattern, replacement, name)
    variational = name.startswith("dequantizer.") and config.variational
    flow = config.variational.flow if variational and config.variational else config.flow
    first = 0 if flow.bottom else 1
    return re.sub(r"\.blocks\.(\d+)\.", lambda m: f".level{int(m[1]) + first}.", name)


def _converted(name: str, tensor: Tensor, shape: torch.Size) -> Tensor:
    """Their tensor in our shape and orientation: our masked kernels always read downwards."""
    found = re.search(r"\.(up|right|left)\.read\.direction$", name)
    if found and tensor.dim() == 4:
        tensor = turn(tensor, cast(Order, found[1]))
    return tensor.reshape(shape)


def _some(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return brief(names[:most]) + more
