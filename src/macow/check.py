"""Is a model sound: finite, initialised, invertible, and if not, which layer it comes from."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from macow.bijections.actnorm import ActNorm
from macow.bijections.base import Bijection
from macow.bijections.conv1x1 import Conv1x1
from macow.model import FlowModel
from macow.nets.precision import exact_float32
from macow.weights import require_finite_weights

EXTREME_LOG_SCALE = 7.0
"""A channel scaled by more than e^7 = 1,100 (or less than its inverse) is hardly meant."""
EXTREME_CONDITION = 1e4
"""A 1x1 convolution that loses more than four digits."""
EXTREME_WEIGHTS = (1e-30, 1e6)
"""Training leads to no weight that is smaller, but for 0, or larger: such bits have flipped."""
OVERFLOWING = 1e15
"""Values beyond it have squares that float32 cannot hold many of."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    level: Literal["ok", "warning", "error"]
    text: str


@torch.no_grad()
@exact_float32()
def check(model: FlowModel, images: Tensor) -> list[Finding]:
    """Looks at a model, with some images to run through it; the first error ends it."""
    if not model.is_initialized:
        return [Finding("error", "not initialised: it has never seen a batch of images")]
    try:
        require_finite_weights(model.named_parameters())
    except FloatingPointError as error:
        return [Finding("error", str(error))]
    findings = [Finding("ok", "initialised, all weights finite"), *_extremes(model)]
    errors: dict[str, float] = {}
    broken: list[str] = []
    hooks = [
        module.register_forward_hook(_look(name, broken))
        for name, module in model.named_modules()
        if name  # inner modules are done before outer ones, so the first found is the innermost
    ]
    hooks += [
        module.register_forward_hook(_invert(name, errors))
        for name, module in _places(model).items()
    ]
    try:
        log_prob = model(images, eps=_middle(model, images), labels=_labels(model, images))
    finally:
        for hook in hooks:
            hook.remove()
    if broken:
        text = f"{broken[0]} gives values that are not finite, or soon will not be"
        return [*findings, Finding("error", text)]
    if not log_prob.isfinite().all():
        return [*findings, Finding("error", "likelihoods are not finite")]
    return [*findings, *_inversion(model, images, errors)]


@torch.no_grad()
@exact_float32()
def reconstruction_error(model: FlowModel, images: Tensor) -> float:
    """`max |x - inverse(flow(x))|` in grey levels of the model: 0.5 would cost a byte."""
    x = model.continuous(images, 0.5)
    cond = model.condition(model.labels_in_turn(range(len(images))))
    error = (model.flow.inverse(model.flow(x, cond)[0], cond) - x).abs().max()
    return error.item() * 2 ** (model.n_bits - 1)


def own_samples(model: FlowModel, count: int, seed: int = 0) -> Tensor:
    """Images the model should know: drawn by itself, or grey ones if it cannot even draw."""
    try:
        generator = torch.Generator().manual_seed(seed)
        return model.sample(count, temperature=0.7, generator=generator)
    except (ValueError, ArithmeticError):
        return torch.full((count, *model.shape), 128, dtype=torch.uint8, device=model.device)


def verdict(findings: list[Finding]) -> str:
    """In words."""
    levels = {finding.level for finding in findings}
    if "error" in levels:
        return "not sound: its figures and samples cannot be trusted"
    return "usable, with care" if "warning" in levels else "sound"


def _extremes(model: FlowModel) -> list[Finding]:
    findings = [*_odd_weights(model)]
    for name, module in model.named_modules():
        if isinstance(module, ActNorm):
            worst = module.log_scale.abs().max().item()
            if worst > EXTREME_LOG_SCALE:
                findings.append(Finding("warning", f"{name} scales a channel by e^{worst:.1f}"))
        elif isinstance(module, Conv1x1):
            condition = torch.linalg.cond(module.weight.double()).item()
            if condition > EXTREME_CONDITION:
                text = f"{name} is nearly singular (condition {condition:.1e})"
                findings.append(Finding("warning", text))
    return findings or [Finding("ok", "no extreme weight, no nearly singular 1x1 convolution")]


def _odd_weights(model: FlowModel) -> Iterator[Finding]:
    """Weights that no training leads to, layer by layer."""
    low, high = EXTREME_WEIGHTS
    zero = [name for name, weight in model.named_parameters() if not weight.any()]
    if zero:
        text = f"{len(zero)} weights are all zero, {zero[0]} first: lost, or never trained"
        yield Finding("warning", text)
    for name, weight in model.named_parameters():
        sizes = weight.abs()
        if sizes.max() > high:
            yield Finding("error", f"{name} has a weight of {sizes.max():.1e}: it is damaged")
        elif (tiny := (sizes > 0) & (sizes < low)).any():
            found = sizes[tiny].max()
            yield Finding("warning", f"{name} has a weight of {found:.1e}: it may be damaged")


def _places(model: FlowModel) -> dict[str, nn.Module]:
    """The steps and priors of the flow, in the order images pass them."""
    named = model.flow.named_modules(prefix="flow")
    steps = {name: m for name, m in named if re.search(r"\.(step\d+|prior)$", name)}
    return steps or {"flow": model.flow}


def _look(name: str, broken: list[str]) -> Callable[..., None]:
    def hook(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        values = output if isinstance(output, tuple) else (output,)
        if not all((value.abs() < OVERFLOWING).all() for value in values):  # so it is for NaN
            broken.append(name)

    return hook


def _invert(name: str, errors: dict[str, float]) -> Callable[..., None]:
    def hook(module: nn.Module, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        assert isinstance(module, Bijection)
        if all(value.isfinite().all() for value in output):
            back = module.inverse(output[0], *inputs[1:])
            errors[name] = (back - inputs[0]).abs().max().item()

    return hook


def _inversion(model: FlowModel, images: Tensor, errors: dict[str, float]) -> list[Finding]:
    levels = reconstruction_error(model, images)
    worst = max(errors, key=lambda name: errors[name])
    text = f"round trip: {levels:.2g} grey levels; worst step {worst}, {errors[worst]:.1e}"
    if not levels < 0.5:  # so it is for NaN
        return [Finding("error", f"{text}: decoding loses bytes")]
    return [Finding("warning" if levels > 0.05 else "ok", text)]


def _labels(model: FlowModel, images: Tensor) -> Tensor | None:
    return model.labels_in_turn(range(len(images)))


def _middle(model: FlowModel, images: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return model.draw_noise(images, generator)
