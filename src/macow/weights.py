"""Weights in files, each with a checksum, and values that must be finite."""

import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from safetensors.torch import save as packed
from torch import Tensor

from macow import files
from macow.documents import brief

Named = Iterable[tuple[str, Tensor]]
DERIVED = ("reference.json", "likelihood.pt2")
"""What stands beside weights and is true of these alone."""


def checksums(weights: Mapping[str, Tensor]) -> dict[str, str]:
    """What a file of weights says of each of them, so that one flipped bit is found and named."""
    return {
        name: f"{zlib.crc32(weight.cpu().flatten().view(torch.uint8).numpy().data):08x}"
        for name, weight in sorted(weights.items())
    }


def write_model(folder: Path, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> None:
    """Writes `config.json` and `model.safetensors`; killed at any point, both are of one model.

    What is `DERIVED` from another model that stood there goes with it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    description = json.dumps(config, indent=2) + "\n"
    weights = {name: tensor.cpu().contiguous() for name, tensor in state.items()}
    metadata = {"crc32": json.dumps(checksums(weights))}  # one entry: of several, the order varies
    contents = {
        "model.safetensors": packed(weights, metadata),
        "config.json": description.encode(),
    }
    changed = {name for name, content in contents.items() if not _holds(folder / name, content)}
    gone = changed & {"config.json"}  # new weights must never stand beside another configuration
    gone |= set(DERIVED) if changed else set()
    superseded = [path for name in sorted(gone) if (path := folder / name).exists()]
    files.write_together(folder, contents, superseded)


def _holds(path: Path, content: bytes) -> bool:
    return path.exists() and path.stat().st_size == len(content) and path.read_bytes() == content


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, if they are those that were written."""
    if not path.is_file():
        raise ValueError(f"{path.parent} is not a model folder: it has no {path.name}")
    try:
        weights = load_file(path)
        with safe_open(path, "pt") as file:
            written = json.loads((file.metadata() or {}).get("crc32", "{}"))  # older files: none
    except (SafetensorError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {brief(error)}") from None
    for name, checksum in checksums(weights).items():
        if not isinstance(written, dict) or written.get(name, checksum) != checksum:
            raise ValueError(f"{path} is damaged: {brief(name)} is not what was written")
    return weights


def require_finite_weights(weights: Named) -> None:
    """Raises if a weight is NaN or infinite, and names it."""
    bad = [name for name, weight in weights if not weight.isfinite().all()]
    if bad:
        raise FloatingPointError(f"{len(bad)} weights are not finite, {bad[0]} first")


def require_finite(values: Tensor, what: str, weights: Named = ()) -> Tensor:
    """Gives back likelihoods, latents or images `[B, ...]` if they are all numbers."""
    wrong = ~values.detach().reshape(len(values), -1).isfinite()
    if wrong.any():
        require_finite_weights(weights)
        count = int(wrong.any(dim=1).sum())
        raise FloatingPointError(
            f"{what} of {count} of {len(values)} images gave NaN or infinity: they lie beyond "
            "what the model can compute, or it is damaged (`macow check` says)"
        )
    return values
