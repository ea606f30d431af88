"""Models in files: what ships with the package, and what `save_pretrained` wrote."""

import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from macow.config import ModelConfig, from_dict
from macow.model import FORMAT, FlowModel

SHIPPED = Path(__file__).parent


def shipped_names() -> tuple[str, ...]:
    """The models that come with the package."""
    return tuple(sorted(path.parent.name for path in SHIPPED.glob("*/model.safetensors")))


def load(name: str | os.PathLike[str], device: str | torch.device | None = None) -> FlowModel:
    """Loads a model: a shipped name, an exported folder or a run folder.

    A shipped name wins over a folder of the same name; `./name` is the folder.
    """
    shipped = name in shipped_names()
    folder = SHIPPED / name if shipped else Path(name)
    if not shipped and not folder.is_dir():
        known = f"; shipped models are {', '.join(shipped_names())}" if shipped_names() else ""
        raise ValueError(f"{name}: no such folder{known}")
    model = _read_config(folder / "config.json").build()
    _read_weights(model, folder / "model.safetensors")
    return model.to(device)


def _read_config(path: Path) -> ModelConfig:
    try:
        config = json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"{path.parent} is not a model folder: it has no {path.name}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict) or not isinstance(config.get("format"), int):
        raise ValueError(f"{path} is not a model's configuration: it has no format number")
    if config["format"] > FORMAT:
        raise ValueError(
            f"{path} has format {config['format']}, this version reads up to {FORMAT}: update macow"
        )
    return from_dict(ModelConfig, config.get("model"), f"{path}: model")


def _read_weights(model: FlowModel, path: Path) -> None:
    try:
        weights = load_file(path)
    except FileNotFoundError:
        raise ValueError(f"{path.parent} is not a model folder: it has no {path.name}") from None
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reasons = str(error).splitlines()
        raise ValueError(f"{path} does not fit its config.json: {reasons[1].strip()}") from None
