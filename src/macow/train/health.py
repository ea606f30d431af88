"""Where trouble comes from, and how well the model still inverts."""

import torch
from torch import Tensor

from macow.model import FlowModel
from macow.nets.precision import exact_float32

NOWHERE = "the loss alone"


@torch.no_grad()
@exact_float32()
def reconstruction_error(model: FlowModel, images: Tensor) -> float:
    """`max |x - inverse(flow(x))|` in grey levels of the model: 0.5 would cost a byte."""
    x = model.continuous(images, 0.5)
    cond = model.condition(model.labels_in_turn(range(len(images))))
    error = (model.flow.inverse(model.flow(x, cond)[0], cond) - x).abs().max()
    return error.item() * 2 ** (model.n_bits - 1)


def culprit(model: FlowModel, images: Tensor, eps: Tensor, labels: Tensor | None = None) -> str:
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
            model(images, eps=eps, labels=labels)
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
