"""Models in files: what ships with the package, and what `save_pretrained` wrote."""

import os
from functools import reduce
from pathlib import Path

import torch
from torch import Tensor

from macow.config import ModelConfig
from macow.documents import brief, from_dict, read_json
from macow.model import FORMAT, FlowModel
from macow.nets.weight_norm import lengthened
from macow.weights import read_weights

SHIPPED = Path(__file__).parent
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def shipped_names() -> tuple[str, ...]:
    """The models that come with the package."""
    return tuple(sorted(path.parent.name for path in SHIPPED.glob("*/model.safetensors")))


def find(name: str | os.PathLike[str]) -> Path:
    """The folder of a shipped name, or the folder that is named."""
    if name in shipped_names():
        return SHIPPED / name
    if not Path(name).is_dir():
        known = f"; shipped models are {', '.join(shipped_names())}" if shipped_names() else ""
        raise ValueError(f"{name}: no such folder{known}")
    return Path(name)


def load(name: str | os.PathLike[str], device: str | torch.device | None = None) -> FlowModel:
    """Loads a model: a shipped name, an exported folder or a run folder.

    A shipped name wins over a folder of the same name; `./name` is the folder. Weights may be kept
    in 16 or 8 bits, but a flow that computed with so few would not find back from its latents.
    """
    folder = find(name)
    config = _read_config(folder / "config.json")
    weights = read_weights(folder / "model.safetensors")
    _check_weights(config, weights, folder / "model.safetensors")
    weights = {n: lengthened(w) if w.dtype == torch.int8 else w for n, w in weights.items()}
    with torch.random.fork_rng(devices=[]):  # fresh weights are drawn only to be replaced
        model = config.build()
    floats = [t.dtype for t in weights.values() if t.is_floating_point()]
    model.to(reduce(torch.promote_types, floats, torch.float32))
    model.load_state_dict(weights)
    return model.to(device)


def _read_config(path: Path) -> ModelConfig:
    if not path.is_file():
        raise ValueError(f"{path.parent} is not a model folder: it has no {path.name}")
    config = read_json(path)
    found = config.get("format") if isinstance(config, dict) else None
    if type(found) is not int or found < 1:
        raise ValueError(f"{path} is not a model's configuration: it has no format number")
    if found > FORMAT:
        raise ValueError(
            f"{path} has format {brief(found)}, this version reads up to {FORMAT}: update macow"
        )
    if unknown := sorted(config.keys() - {"format", "macow", "model"}):
        raise ValueError(f"{path} has unknown keys: {brief(unknown)}")
    return from_dict(ModelConfig, config.get("model"), f"{path}: model")


def _check_weights(config: ModelConfig, weights: dict[str, Tensor], path: Path) -> None:
    """Compares names, shapes and types before anything of the configured size is made."""
    wanted = config.outline(len(weights), path.parent)
    for name in sorted(wanted.keys() | weights.keys()):
        if name not in weights or name not in wanted:
            lacks = "has no" if name in wanted else "has an unknown"
            raise ValueError(f"{path} does not fit its config.json: it {lacks} {brief(name)}")
        found = weights[name]
        if found.shape != wanted[name].shape:
            raise ValueError(
                f"{path} does not fit its config.json: {name} is {list(found.shape)}, "
                f"not {list(wanted[name].shape)}"
            )
        kinds = FLOATS if wanted[name].is_floating_point() else (torch.bool,)
        if found.dtype not in (*kinds, *([torch.int8] if name.endswith(".direction") else [])):
            raise ValueError(f"{path} does not fit its config.json: {name} is {found.dtype}")
