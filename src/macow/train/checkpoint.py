"""Checkpoints: tensors in safetensors, numbers in JSON, a manifest that proves them whole."""

import hashlib
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from macow import distribution

MANIFEST = "manifest.json"
State = dict[str, dict[str, Tensor]]
"""Named groups of tensors: model, average, optimizer."""


def save(folder: Path, step: int, tensors: State, numbers: dict[str, Any]) -> Path:
    """Writes `step_N` whole or not at all: to a sibling, flushed to disk, then renamed."""
    target = folder / f"step_{step}"
    temporary = folder / f".writing_{step}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        _write(temporary, step, tensors, numbers)
    except SafetensorError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise OSError(str(error)) from None
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    shutil.rmtree(target, ignore_errors=True)
    temporary.rename(target)
    _flush(folder)
    return target


def _write(temporary: Path, step: int, tensors: State, numbers: dict[str, Any]) -> None:
    for name, group in tensors.items():
        whole = {key: tensor.detach().cpu().contiguous() for key, tensor in group.items()}
        save_file(whole, temporary / f"{name}.safetensors")
    (temporary / "state.json").write_text(json.dumps({"step": step, **numbers}, indent=2))
    digests = {file.name: _digest(file) for file in sorted(temporary.iterdir())}
    (temporary / MANIFEST).write_text(json.dumps(digests, indent=2))
    for file in temporary.iterdir():
        _flush(file)
    _flush(temporary)


def load(checkpoint: Path) -> tuple[State, dict[str, Any]]:
    """Reads a checkpoint; one that fails its manifest is a `ValueError`."""
    try:
        digests = json.loads((checkpoint / MANIFEST).read_text())
        for name, digest in digests.items():
            if _digest(checkpoint / name) != digest:
                raise ValueError(f"{checkpoint / name} is not what was written")
        tensors = {
            name.removesuffix(".safetensors"): load_file(checkpoint / name)
            for name in digests
            if name.endswith(".safetensors")
        }
        return tensors, json.loads((checkpoint / "state.json").read_text())
    except (OSError, json.JSONDecodeError, AttributeError, SafetensorError) as error:
        raise ValueError(f"{checkpoint} is damaged: {error}") from None


def load_newest(folder: Path) -> tuple[State, dict[str, Any]] | None:
    """The newest checkpoint that is whole; a damaged one is put aside with a warning."""
    found = steps(folder)
    for checkpoint in reversed(found):
        try:
            return load(checkpoint)
        except ValueError as error:
            warnings.warn(f"{error}; put aside", stacklevel=2)
            if distribution.is_first():
                aside = checkpoint.with_name(f"damaged_{checkpoint.name}")
                shutil.rmtree(aside, ignore_errors=True)
                checkpoint.rename(aside)
    if found:
        raise ValueError(f"{folder}: all {len(found)} checkpoints are damaged")
    return None


def restore_model(model: nn.Module, tensors: State, where: Path) -> None:
    """Puts the weights back; those of another configuration are a `ValueError`."""
    found, wanted = tensors["model"], model.state_dict()
    for name in found.keys() | wanted.keys():
        if name not in found or name not in wanted or found[name].shape != wanted[name].shape:
            raise ValueError(f"{where} holds checkpoints of another configuration: {name} differs")
    model.load_state_dict(found)


def steps(folder: Path) -> list[Path]:
    """All checkpoints, oldest first."""
    found = [path for path in folder.glob("step_*") if path.name[5:].isdigit()]
    return sorted(found, key=lambda path: int(path.name[5:]))


def prune(folder: Path, keep: int, best: int | None) -> None:
    """Removes all but the last `keep` and the best."""
    for checkpoint in steps(folder)[:-keep]:
        if checkpoint.name != f"step_{best}":
            shutil.rmtree(checkpoint)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Adam's moments, named by the place of their parameter."""
    state = optimizer.state_dict()["state"]
    return {f"{i}.{name}": value for i, values in state.items() for name, value in values.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Puts the moments back."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        place, name = key.split(".")
        state.setdefault(int(place), {})[name] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
