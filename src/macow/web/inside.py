"""What a flow is made of, and what its masked convolutions see."""

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from macow.bijections.base import Bijection
from macow.bijections.given import Given
from macow.bijections.masked_conv import MaskedConv
from macow.bijections.multiscale import Factor, MultiScale, Registered, Squeezed
from macow.inputs import Shape
from macow.model import FlowModel

MOST_STACKED = 8
MOST_CHANNELS = 8
"""Of a pixel, whose dependence is looked at: the others see no further."""


def drawing(model: FlowModel) -> list[dict[str, Any]]:
    """The way of an image through the flow: squeezes and blocks, with sizes."""
    flow = model.flow.inner if isinstance(model.flow, Given) else model.flow
    names = {id(module): name for name, module in flow.named_modules()}
    start: Bijection = flow.tower if isinstance(flow, MultiScale) else flow
    return [*_walk(start, model.shape, names)]


def _walk(part: Bijection, shape: Shape, names: dict[int, str]) -> Iterator[dict[str, Any]]:
    channels, height, width = shape
    if isinstance(part, Squeezed):
        shape = (4 * channels, height // 2, width // 2)
        yield {"kind": "squeeze", "shape": shape}
        yield from _walk(part.inner, shape, names)
    elif isinstance(part, Factor):
        yield _block(part.block, shape, names, channels - part.keep)
        yield from _walk(part.rest, (part.keep, height, width), names)
    else:
        yield _block(part, shape, names, channels)


def _block(part: Bijection, shape: Shape, names: dict[int, str], leaving: int) -> dict[str, Any]:
    block = part.block if isinstance(part, Registered) else part
    steps = [child for name, child in block.named_children() if name.startswith("step")]
    return {
        "kind": "block",
        "name": names[id(block)] or type(block).__name__,
        "shape": shape,
        "steps": len(steps),
        "step": [name for name, _ in steps[0].named_children()] if steps else [],
        "parameters": sum(p.numel() for p in block.parameters()),
        "latents": (leaving, *shape[1:]),
    }


def masked_convs(model: FlowModel) -> dict[int, list[tuple[str, MaskedConv]]]:
    """The masked convolutions of each level, in the order images pass them."""
    found: dict[int, list[tuple[str, MaskedConv]]] = {}
    for name, module in model.flow.named_modules():
        if isinstance(module, MaskedConv):
            level = re.search(r"\blevel(\d+)\.", name)
            found.setdefault(int(level[1]) if level else 0, []).append((name, module))
    return found


def receptive_fields(
    model: FlowModel, level: int, label: str | None = None
) -> Iterator[dict[str, Any]]:
    """How much a pixel depends on those around it after one masked convolution, two, and so on.

    `|dy/dx|` by autograd, summed over channels, the pixel in the middle (paper, figure 1).
    """
    known = masked_convs(model)
    if level not in known:
        there = ", ".join(map(str, sorted(known))) or "none"
        raise ValueError(f"level {level} has no masked convolution; levels that have: {there}")
    stack = known[level][:MOST_STACKED]
    reach = _reach([conv for _, conv in stack])
    for count, (name, conv) in enumerate(stack, 1):
        field = _field(model, [conv for _, conv in stack[:count]], reach, label)
        shares = (field / field.max()).tolist()
        rounded = [[float(f"{share:.3g}") for share in row] for row in shares]  # 0 is 0, no other
        yield {"name": name, "order": conv.order, "field": rounded}


def _reach(stack: list[MaskedConv]) -> int:
    """How many pixels away the farthest one is that can count."""
    reaches = dict.fromkeys(("down", "up", "right", "left"), 0)
    for conv in stack:
        behind, beside = conv.read.weight().shape[2], conv.read.weight().shape[3] // 2
        across = ("right", "left") if conv.order in ("down", "up") else ("down", "up")
        reaches[conv.order] += behind
        for order in across:
            reaches[order] += beside
    return max(reaches.values())


@torch.enable_grad()
def _field(model: FlowModel, stack: list[MaskedConv], reach: int, label: str | None) -> Tensor:
    channels, side = stack[0].read.weight().shape[1], 2 * reach + 1
    looked_at = min(channels, MOST_CHANNELS)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, channels, side, side, generator=generator).to(model.device, model.dtype)
    x = x.expand(looked_at, -1, -1, -1).clone().requires_grad_()
    y, cond = x, _condition(model, label, looked_at, side)
    for conv in stack:
        y, _ = conv(y, cond)
    middle = y[:, :, reach, reach].diagonal().sum()  # of copy c, channel c
    (slope,) = torch.autograd.grad(middle, x)
    return slope.abs().sum(dim=(0, 1))


def _condition(model: FlowModel, label: str | None, count: int, side: int) -> Tensor | None:
    if label is None or model.label_map is None:
        return None
    labels = torch.full((count,), model.label_map.number(label), device=model.device)
    return model.label_map(labels, (side, side))
