"""The weights: where they start, the rate they change at, their running average."""

import math
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import torch
from torch import Tensor

from macow.config import TrainConfig
from macow.data.images import Images
from macow.initialize import initializing
from macow.model import FlowModel
from macow.nets.weight_norm import WeightNormConv2d, WeightNormUpsample2d
from macow.seeds import generator_for
from macow.train.batches import Batches, shifted_updates
from macow.train.console import Console
from macow.train.muon import MuonAndAdam


def learning_rate(config: TrainConfig, step: int) -> float:
    """Linear warm-up, then an exponential or a cosine fall to `min_lr` of the peak."""
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    since = step - config.warmup
    if config.schedule == "exponential":
        return config.lr * max(config.decay**since, config.min_lr)
    progress = min(1.0, since / max(1, config.steps - config.warmup))
    fall = 0.5 * (1 + math.cos(math.pi * progress))
    return config.lr * (config.min_lr + (1 - config.min_lr) * fall)


def optimizer_of(model: FlowModel, config: TrainConfig) -> torch.optim.Adam:
    """On a GPU fused, with its rate there, so that a step can be captured."""
    on_gpu = model.device.type == "cuda"
    rate = torch.tensor(config.lr, device=model.device) if on_gpu else config.lr
    options: dict[str, Any] = {
        "lr": rate,
        "betas": config.betas,
        "eps": config.eps,
        "fused": on_gpu,
        "capturable": on_gpu,
    }
    parameters = [p for p in model.parameters() if p.requires_grad]
    if config.optimizer == "adam":
        return torch.optim.Adam(parameters, **options)
    kinds = (WeightNormConv2d, WeightNormUpsample2d)
    matrices = [m.direction for m in model.modules() if isinstance(m, kinds)]
    others = [p for p in parameters if p not in set(matrices)]
    return MuonAndAdam(matrices, others, **options)


class Average:
    """Averaging for `torch.optim.swa_utils` that starts fast: decay (1 + n) / (10 + n)."""

    def __init__(self, decay: float) -> None:
        self.decay = decay

    def __call__(
        self, averages: Sequence[Tensor], current: Sequence[Tensor], num_averaged: Tensor | int
    ) -> None:
        """Moves all averages a little towards the current weights, in one call."""
        torch._foreach_lerp_(list(averages), list(current), 1 - self.kept(int(num_averaged)))

    def kept(self, seen: int) -> float:
        """How much of an average stays that has seen so many."""
        return min(self.decay, (1 + seen) / (10 + seen))


def first_weights(
    model: FlowModel,
    start: FlowModel | None,
    train: Images,
    config: TrainConfig,
    seed: int,
    console: Console,
) -> None:
    """Fresh weights, set by a first batch; of weights to start from only what they lack."""
    if start is not None and take_weights(model, start):
        return
    count = min(config.init_images, len(train))
    console.say(f"initialising on {count:,} images")
    batches = Batches(
        train,
        count,
        seed=seed,
        device=model.device,
        mirror=config.mirror,
        shift=config.shift,
        shifted=shifted_updates(config),
        ahead=1,
        names=model.labels,
    )
    with closing(batches):
        images, labels = batches.at(0), batches.labels_at(0)
    noise = generator_for(seed, "initial noise", device=model.device)
    eps = model.draw_noise(images, noise)
    with initializing(model if start is None else model.dequantizer):
        if start is None:
            model(images, eps=eps, labels=labels)
        else:
            model.dequantizer(images, eps)


def take_weights(model: FlowModel, start: FlowModel) -> bool:
    """Takes all weights that fit: those of the flow must; says whether the dequantizer's did."""
    ours, theirs = model.state_dict(), start.state_dict()
    fitting = {
        name: tensor
        for name, tensor in theirs.items()
        if name in ours and ours[name].shape == tensor.shape
    }
    if missing := sorted(n for n in ours if n.startswith("flow.") and n not in fitting):
        raise ValueError(
            f"the weights to start from do not fit this configuration's flow: {missing[0]} and "
            f"{len(missing) - 1} more are missing or of another shape"
        )
    if model.labels != start.labels:
        theirs_are = ", ".join(start.labels) or "none"
        raise ValueError(f"the weights to start from know other labels: {theirs_are}")
    if not start.is_initialized:
        raise ValueError("the weights to start from were never initialised")
    model.load_state_dict({**ours, **fitting})
    return ours.keys() == fitting.keys()
