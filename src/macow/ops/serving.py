"""Whether kernels can take an operation, or plain torch must."""

import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch
from torch import Tensor

_plain: ContextVar[bool] = ContextVar("plain", default=False)


@contextmanager
def plain_torch() -> Iterator[None]:
    """Within it no kernels are used: the specification alone."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


def kernels_serve(x: Tensor, *others: Tensor | None) -> bool:
    """Whether there are kernels for these: float32 on a GPU, with nothing to differentiate."""
    if not x.is_cuda or x.dtype != torch.float32 or _plain.get():
        return False
    tensors = [x, *(t for t in others if t is not None)]
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return False
    return missing(x.device) is None


@cache
def missing(device: torch.device) -> str | None:
    """What keeps kernels from running on a device, said once; None if nothing does."""
    if device.type != "cuda":
        return "no GPU"
    found = None
    if importlib.util.find_spec("triton") is None:
        found = "triton is not installed"
    elif torch.cuda.get_device_capability(device) < (8, 0):
        found = "the GPU is older than Ampere"
    if found is not None:
        warnings.warn(f"{found}: inverses are computed by plain torch, more slowly", stacklevel=4)
    return found
