"""Checkpoints: tensors in safetensors, numbers in JSON, a manifest that proves them whole."""

import errno
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as unpack
from safetensors.torch import save as packed
from torch import Tensor, nn

from macow import distribution, files

MANIFEST = "manifest.json"
NEEDED = ("state.json", "model.safetensors", "optimizer.safetensors")
MARGIN = 1 << 20
"""Bytes of a disk left free for what else a run writes."""
State = dict[str, dict[str, Tensor]]
"""Named groups of tensors: model, average, optimizer."""
Check = Callable[[dict[str, Any]], None]
"""Looks at a checkpoint's numbers; raises `ValueError` for one of another run."""


def pack(step: int, tensors: State, numbers: dict[str, Any]) -> dict[str, bytes]:
    """The files of a checkpoint, the manifest last: a copy that training does not change."""
    content = {
        f"{name}.safetensors": packed({k: t.detach().cpu().contiguous() for k, t in group.items()})
        for name, group in tensors.items()
    }
    content["state.json"] = json.dumps({"step": step, **numbers}, indent=2).encode()
    return content


def write(folder: Path, step: int, content: dict[str, bytes]) -> Path:
    """Writes `step_N` whole or not at all: to a sibling, flushed to disk, then renamed."""
    target, temporary, replaced = (
        folder / name for name in (f"step_{step}", ".writing", ".replaced")
    )
    for left_over in (temporary, replaced):
        shutil.rmtree(left_over, ignore_errors=True)
    needed = sum(map(len, content.values())) + MARGIN
    free = shutil.disk_usage(folder).free
    if free < needed:
        room = f"{needed / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} free"
        raise OSError(errno.ENOSPC, f"No space left: {room}", str(target))
    digests = {name: hashlib.sha256(part).hexdigest() for name, part in content.items()}
    try:
        os.mkdir(temporary)
        for name, part in content.items():
            files.put(temporary / name, part)
        files.put(temporary / MANIFEST, json.dumps(digests, indent=2))
        files.flush(temporary)
        if target.exists():
            os.rename(target, replaced)
        os.rename(temporary, target)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    files.flush(folder)
    shutil.rmtree(replaced, ignore_errors=True)
    return target


def save(folder: Path, step: int, tensors: State, numbers: dict[str, Any]) -> Path:
    """Packs and writes in one go."""
    return write(folder, step, pack(step, tensors, numbers))


def load(checkpoint: Path, check: Check | None = None) -> tuple[State, dict[str, Any]]:
    """Reads a checkpoint; one that fails its manifest, or is another's, is a `ValueError`."""
    try:
        digests = json.loads((checkpoint / MANIFEST).read_bytes())
        if not isinstance(digests, dict) or not digests.keys() >= set(NEEDED):
            raise ValueError(f"{MANIFEST} does not name {', '.join(NEEDED)}")
        content = {}
        for name, digest in digests.items():
            content[name] = (checkpoint / Path(name).name).read_bytes()
            if hashlib.sha256(content[name]).hexdigest() != digest:
                raise ValueError(f"{name} is not what was written")
        numbers = json.loads(content.pop("state.json"))
        if checkpoint.name != f"step_{numbers['step']}":
            raise ValueError(f"it holds step {numbers['step']}")
        if check is not None:
            check(numbers)
        return {n.removesuffix(".safetensors"): unpack(c) for n, c in content.items()}, numbers
    except PermissionError:
        raise  # whole, perhaps: for its owner to say
    except (OSError, ValueError, TypeError, KeyError, RecursionError, SafetensorError) as error:
        raise ValueError(f"{checkpoint} cannot be used: {error}") from None


def load_newest(folder: Path, check: Check | None = None) -> tuple[State, dict[str, Any]] | None:
    """The newest checkpoint that is whole; those that are not are put aside with a warning.

    The first process chooses: all go on from the same one.
    """
    chosen = _choose(folder, check) if distribution.is_first() else None
    step = distribution.gathered(None if chosen is None else chosen[1]["step"])[0]
    if chosen is None and step is not None:
        return load(folder / f"step_{step}", check)
    return chosen


def _choose(folder: Path, check: Check | None) -> tuple[State, dict[str, Any]] | None:
    found = steps(folder)
    problems: list[tuple[Path, ValueError]] = []
    for checkpoint in reversed(found):
        try:
            good = load(checkpoint, check)
        except ValueError as error:
            problems.append((checkpoint, error))
            continue
        for other, problem in problems:
            aside = other.with_name(f"aside_{other.name}")
            warnings.warn(f"{problem}; put aside as {aside.name}", stacklevel=4)
            shutil.rmtree(aside, ignore_errors=True)
            os.rename(other, aside)
        return good
    if found:
        raise ValueError(
            f"none of the {len(found)} checkpoints in {folder} can be used: {problems[0][1]}; "
            "move them away to begin anew"
        )
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
    """Puts the moments back; those that were never saved stay as they are."""
    state, groups = (optimizer.state_dict()[name] for name in ("state", "param_groups"))
    for key, tensor in tensors.items():
        place, name = key.split(".")
        state.setdefault(int(place), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": groups})
