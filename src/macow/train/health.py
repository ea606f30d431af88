"""Where trouble comes from."""

import torch
from torch import Tensor

from macow.model import FlowModel

NOWHERE = "the loss alone"


def culprit(
    model: FlowModel, images: Tensor, eps: Tensor, labels: Tensor | None = None, passes: int = 1
) -> str:
    """The layer where values first stop being finite, forward or else in the gradients."""
    found: list[str] = []

    def look(name: str, output: object) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        if not found and any(
            isinstance(value, Tensor) and not value.isfinite().all() for value in outputs
        ):
            found.append(name)

    hooks = [
        module.register_forward_hook(lambda _m, _i, output, name=name: look(name, output))
        for name, module in model.named_modules()
        if name  # inner modules are done before outer ones, so the first found is the innermost
    ]
    try:
        with torch.no_grad():
            for part in torch.arange(len(images)).chunk(passes):
                model(images[part], eps=eps[part], labels=None if labels is None else labels[part])
    finally:
        for hook in hooks:
            hook.remove()
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            return f"the weights of {name}"
    if found:
        return f"the output of {found[0]}"
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not parameter.grad.isfinite().all():
            return f"the gradient of {name}"
    return NOWHERE
