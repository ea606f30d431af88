"""How many bits a set of images costs."""

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from macow import distribution
from macow.data.images import Images, label_numbers
from macow.model import FlowModel
from macow.nets.precision import exact_float32, network_precision
from macow.ops.serving import finite_or_plain
from macow.plan import Plans
from macow.seeds import generator_for

AT_ONCE = 8
"""Draws of an image's noise: each call takes its time, each draw its memory."""


@dataclass(frozen=True)
class LabelBits:
    """The bound of the images of one label."""

    images: int
    bits_per_dim: float
    bits_per_dim_error: float | None


@dataclass(frozen=True)
class Evaluation:
    """Means over the images, in bits per dimension, each with the standard error of the mean."""

    images: int
    num_samples: int
    lean: bool
    """Whether the noise leant where the density rises."""
    bits_per_dim: float
    """The bound, averaged over the draws of the noise (Monte Carlo)."""
    bits_per_dim_error: float | None
    importance_weighted: float
    """The tighter bound of all draws of an image together; equal to the other for one draw."""
    importance_weighted_error: float | None
    noise_entropy: float
    """`-log q` of the noise, 0 if it is uniform: what it gives back."""
    by_label: dict[str, LabelBits]
    """Of each label that the images carry; empty if they carry none."""


def known_labels(model: FlowModel, images: Images) -> Tensor | None:
    """The labels of images as a conditional model numbers them; None for any other model."""
    if not model.labels:
        return None
    return torch.from_numpy(label_numbers(images, model.labels)).long().to(model.device)


@torch.no_grad()
@exact_float32()
def evaluate(
    model: FlowModel,
    images: Images,
    *,
    num_samples: int = 1,
    lean: bool = False,
    batch_size: int = 64,
    seed: int = 0,
    limit: int = 0,
    progress: bool = False,
) -> Evaluation:
    """Scores images, `num_samples` draws of noise each; an image's noise is of (seed, image).

    To `lean` the noise needs the memory of a gradient, about that of training with such batches.
    On a GPU networks in low precision are computed by the kernels of training.
    """
    model.require_undamaged()
    count = min(len(images), limit or len(images))
    labels = known_labels(model, images)
    plans = Plans(model) if model.device.type == "cuda" else None
    precision = network_precision(model)
    bounds, log_qs = [], []
    bar = tqdm(
        total=count,
        desc="evaluating",
        unit=" images",
        disable=None if progress and distribution.is_first() else True,
    )
    for start in distribution.mine(range(0, count, batch_size)):
        indices = np.arange(start, min(start + batch_size, count))
        here = torch.from_numpy(images.take(indices))
        model.require_images(here)
        given = None if labels is None else labels[indices]
        slope = model.lean(here.to(model.device), given) if lean else None
        drawn = partial(_drawn, model, here, given, slope, seed, indices, num_samples)
        with nullcontext() if plans is None else plans.in_use(precision):
            log_p, log_q = finite_or_plain(drawn).unbind(1)
        bounds.append((log_p - log_q).cpu().double())
        log_qs.append(log_q.cpu().double())
        bar.update(distribution.count() * len(indices))
    bar.close()
    per_dim = model.num_dims * math.log(2)
    bound, log_q = (torch.cat(distribution.in_order(p), dim=1) for p in (bounds, log_qs))
    weighted = torch.logsumexp(bound, dim=0) - math.log(num_samples)
    bits = -bound.mean(dim=0) / per_dim
    mean, error = _mean_and_error(bits)
    weighted_mean, weighted_error = _mean_and_error(-weighted / per_dim)
    entropy = -log_q.mean().item() / per_dim
    return Evaluation(
        count,
        num_samples,
        lean,
        mean,
        error,
        weighted_mean,
        weighted_error,
        entropy + 0.0,
        _by_label(images, bits),
    )


def _by_label(images: Images, bits: Tensor) -> dict[str, LabelBits]:
    if images.labels is None:
        return {}
    found = {}
    for number, name in enumerate(images.label_names):
        of_label = bits[torch.from_numpy(images.labels[: len(bits)] == number)]
        if len(of_label):
            found[name] = LabelBits(len(of_label), *_mean_and_error(of_label))
    return found


def _drawn(
    model: FlowModel,
    images: Tensor,
    labels: Tensor | None,
    slope: Tensor | None,
    seed: int,
    indices: np.ndarray,
    count: int,
) -> Tensor:
    """`log p(image, u)` and `log q(u)` of some draws, `[count, 2, B]`."""
    batch = images.to(model.device)
    terms = [
        torch.stack(model.log_terms(batch, eps, labels, slope))
        for eps in _noise(model, images, seed, indices, count)
    ]
    return torch.stack(terms)


def _noise(
    model: FlowModel, batch: Tensor, seed: int, indices: np.ndarray, count: int
) -> Iterator[Tensor]:
    """Draw by draw, like the batch, which is on the CPU; several are drawn at once."""
    generators = [generator_for(seed, "evaluate", int(i), 0) for i in indices]
    for start in range(0, count, AT_ONCE):
        some = min(AT_ONCE, count - start)
        drawn = [
            model.draw_noise(image.expand(some, -1, -1, -1), generator)
            for image, generator in zip(batch, generators, strict=True)
        ]
        yield from torch.stack(drawn, dim=1).to(model.device)


def _mean_and_error(values: Tensor) -> tuple[float, float | None]:
    error = values.std().item() / math.sqrt(len(values)) if len(values) > 1 else None
    return values.mean().item(), error
