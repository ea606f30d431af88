"""Small models for tests."""

import torch

from macow.bench.images import natural_images
from macow.config import FlowConfig, ModelConfig, VariationalConfig
from macow.initialize import initializing
from macow.latents import arc
from macow.model import FlowModel

TINY = FlowConfig(steps=((1,), (1, 1), (1,)), factors=(4,), hidden=(6, 8, 8))
VARIATIONAL = VariationalConfig(FlowConfig(steps=((1,), (1,)), hidden=(6, 8)), cond_channels=2)


def tiny_config(*, variational: bool = False, n_bits: int = 8, size=(8, 12)) -> ModelConfig:
    dequantizer = VARIATIONAL if variational else None
    return ModelConfig(TINY, size=size, n_bits=n_bits, variational=dequantizer)


def tiny_model(**options) -> FlowModel:
    """An initialised model whose every transform does something."""
    return stirred(tiny_config(**options).build())


def stirred(model: FlowModel) -> FlowModel:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("gain"):
                parameter.copy_(0.1 * torch.rand_like(parameter) + 0.1)
    with initializing(model):
        model(images(16, model))
    return model


def images(count: int, model: FlowModel, seed: int = 0) -> torch.Tensor:
    return natural_images(count, model.shape, torch.Generator().manual_seed(seed))


def walk_with_gaps(model: FlowModel) -> list[bool]:
    """Which points of a walk of `digits` lead to an image: 12 from sample 2 to 9, temperature 2."""
    _, (start, end) = model.sampler().numbered_with_latents([2, 9], 2, 0)
    return model.flow.inverse(arc(start, end, 12)).isfinite().flatten(1).all(dim=1).tolist()
