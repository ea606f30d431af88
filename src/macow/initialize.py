"""Data-dependent initialisation: one forward pass that leaves every activation standard."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from macow.model import FlowModel


@contextmanager
def initializing(model: nn.Module) -> Iterator[None]:
    """Within it, one forward pass sets scales and shifts from its batch: `model(images)`.

    Layer by layer, so each sees what the layers before it, already set, make of the images.

        with macow.initializing(model):
            model(images)

    A bare bijection will do as well; a `FlowModel` also remembers that it was done.
    """
    if isinstance(model, FlowModel):
        if model.is_initialized:
            raise ValueError("the model is initialised already: again would undo its training")
        model.is_initialized = True  # opens its door for the pass
    hooks = [
        module.register_forward_pre_hook(_initialize)
        for module in model.modules()
        if hasattr(module, "initialize_")
    ]
    try:
        with torch.no_grad():
            yield
    except BaseException:
        if isinstance(model, FlowModel):
            model.is_initialized = False
        raise
    finally:
        for hook in hooks:
            hook.remove()


def _initialize(module: nn.Module, inputs: tuple[Any, ...]) -> None:
    module.initialize_(*inputs)  # type: ignore[operator]
