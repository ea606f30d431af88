"""Data-dependent initialisation: one forward pass that leaves every activation standard."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from macow.bijections.masked_conv import MaskedConv
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
    waiting = _waiting(model)
    hooks: dict[nn.Module, RemovableHandle] = {}

    def initialize(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if module in waiting:  # once: a second pass must not start over
            module.initialize_(*inputs)  # type: ignore[operator]
            del waiting[module]

    try:
        for module in waiting:
            hooks[module] = module.register_forward_pre_hook(initialize)
        with torch.no_grad():
            yield
        if waiting:
            first = next(iter(waiting.values()))
            raise ValueError(
                f"{len(waiting)} layers saw no data, {first} among them: "
                "initialise with one whole pass, model(images)"
            )
    except BaseException:
        if isinstance(model, FlowModel):
            model.is_initialized = False
        raise
    finally:
        for hook in hooks.values():
            hook.remove()


def _waiting(model: nn.Module) -> dict[nn.Module, str]:
    """The layers that learn from the first batch, with their names."""
    found = {
        module: name for name, module in model.named_modules() if hasattr(module, "initialize_")
    }
    for module in list(found):
        if isinstance(module, MaskedConv):  # reads its weights itself, and initialises them
            del found[module.read], found[module.mix]
    return found
