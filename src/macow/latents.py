"""Walks through latent space: between images, and along what two sets of them differ in."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from macow.model import FlowModel


@torch.no_grad()
def round_trip_failures(model: FlowModel, images: Tensor, z: Tensor) -> list[int]:
    """Which images their latents do not lead back to, byte for byte at the model's bits."""
    cut = images >> (8 - model.n_bits) << (8 - model.n_bits)
    wrong = (model.decode(z) != cut).flatten(1).any(dim=1)
    return wrong.nonzero().flatten().tolist()


def line(start: Tensor, end: Tensor, frames: int) -> Tensor:
    """Points of the straight line between two latents `[C, H, W]`, `[frames, C, H, W]`."""
    return torch.lerp(start, end, _shares(start, frames))


def _shares(latent: Tensor, frames: int) -> Tensor:
    """How much of the way is done at each frame, `[frames, 1, 1, 1]`."""
    if frames < 2:
        raise ValueError(f"frames must be at least 2, got {frames}")
    return torch.linspace(0, 1, frames, device=latent.device, dtype=latent.dtype).view(-1, 1, 1, 1)


def arc(start: Tensor, end: Tensor, frames: int) -> Tensor:
    """Points of the arc between two latents `[C, H, W]`, as far from the origin as they are.

    Nearly all latents of images lie about `sqrt(C * H * W)` away from it, and the middle of a
    straight line lies so far inside that a flow makes of it what no image looks like. The points
    are some of that line, pushed out, at equal angles from one to the next.
    """
    shares = _shares(start, frames)
    first, last = start.norm().clamp_min(1e-12), end.norm().clamp_min(1e-12)
    cosine = ((start / first) * (end / last)).sum().clamp(-1, 1)
    angle = torch.acos(cosine).clamp(1e-3, math.pi - 1e-3)  # any where they are parallel
    done, left = first * torch.sin(shares * angle), last * torch.sin((1 - shares) * angle)
    points = torch.lerp(start, end, done / (done + left))
    lengths = points.flatten(1).norm(dim=1).clamp_min(1e-30).view(-1, 1, 1, 1)
    return points * (torch.lerp(first, last, shares) / lengths)


@torch.no_grad()
def decoded(model: FlowModel, points: Tensor) -> Tensor:
    """The images of latents `[frames, C, H, W]`, uint8, without those between that lead to none."""
    images = []
    for place, z in enumerate(points):
        try:
            images.append(model.decode(z[None]))
        except FloatingPointError:
            if place in (0, len(points) - 1):
                raise
    return torch.cat(images)


def interpolate(model: FlowModel, start: Tensor, end: Tensor, frames: int) -> Tensor:
    """Images on the arc between two latents `[C, H, W]`, uint8 `[frames, C, H, W]`.

    Fewer where the arc passes latents that lead to no image.
    """
    return decoded(model, arc(start, end, frames))


@torch.no_grad()
def mean_latent(model: FlowModel, batches: Iterable[Tensor]) -> Tensor:
    """The mean of the latents of images, given batch by batch, `[C, H, W]`."""
    total = torch.zeros(model.shape, dtype=torch.double, device=model.device)
    count = 0
    for batch in batches:
        total += model.encode(batch.to(model.device)).double().sum(dim=0)
        count += len(batch)
    if count == 0:
        raise ValueError("there are no images to take the mean latent of")
    return (total / count).to(model.dtype)


@torch.no_grad()
def apply_attribute(
    model: FlowModel, images: Tensor, attribute: Tensor, strengths: Sequence[float]
) -> Tensor:
    """Images moved along an attribute `[C, H, W]`: uint8 `[B, len(strengths), C, H, W]`."""
    z = model.encode(images)
    moved = [model.decode(z + strength * attribute) for strength in strengths]
    return torch.stack(moved, dim=1)
