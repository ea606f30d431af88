"""Whether kernels can take an operation, or plain torch must."""

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from torch import Tensor

NEEDED = 160 << 10
"""What an A100 has, in bytes on chip; the kernels were tried on an H200, which has 227 KiB."""
_plain: ContextVar[bool] = ContextVar("plain", default=False)


@contextmanager
def plain_torch() -> Iterator[None]:
    """Within it no kernels are used: the specification alone."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


def in_plain_torch() -> bool:
    """Whether no kernels are to be used."""
    return _plain.get()


def finite_or_plain(run: Callable[[], Tensor]) -> Tensor:
    """Runs with kernels, and again in plain torch if values outgrew what kernels can hold."""
    found = run()
    if not found.is_cuda or _plain.get() or found.isfinite().all():
        return found
    with plain_torch():
        return run()


def kernels_serve(x: Tensor, *others: Tensor | None) -> bool:
    """Whether there are kernels for these: float32 on a GPU, with nothing to differentiate."""
    if not x.is_cuda or x.dtype != torch.float32 or _plain.get():
        return False
    tensors = [x, *(t for t in others if t is not None)]
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return False
    return missing(x.device) is None


def kernels_train(x: Tensor) -> bool:
    """Whether there are kernels that also know gradients: for float32 on a GPU."""
    on_gpu = x.is_cuda and x.dtype == torch.float32 and not _plain.get()
    return on_gpu and missing(x.device) is None


@cache
def on_chip(device: torch.device) -> int:
    """Bytes that one program may hold on a multiprocessor."""
    if device.type != "cuda":
        return 227 << 10  # Triton's interpreter has room
    properties: Any = torch.cuda.get_device_properties(device)  # torch's stubs lack the field
    return int(properties.shared_memory_per_block_optin)


@cache
def missing(device: torch.device) -> str | None:
    """What keeps kernels from running on a device, said once; None if nothing does."""
    if device.type != "cuda":
        return "no GPU"
    found = None
    if importlib.util.find_spec("triton") is None:
        found = "triton is not installed"
    elif on_chip(device) < NEEDED:
        found = "the GPU has less memory on chip than the kernels need"
    if found is not None:
        warnings.warn(f"{found}: plain torch computes instead, more slowly", stacklevel=4)
    return found
