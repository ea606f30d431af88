"""A model as a folder for others: weights, configuration, reference and card."""

import io
from pathlib import Path

import torch
from torch import Tensor, nn

from macow import files
from macow.model import FlowModel
from macow.nets.precision import exact_float32
from macow.score import Reference

CARD = """---
library_name: macow
tags: [normalizing-flow, exact-likelihood, image-generation]
---

# {name}

An exact-likelihood model of images: a masked convolutional flow (MaCow, Ma et al., 2019).

- Images: {channels} x {height} x {width}, {n_bits} bits.
- Model: {parameters:,} parameters, {dequantizer} dequantization.{labels}
- {figures}
- Use: `macow.load("{name}")`, or `macow sample {name}`.
- Limits: it knows the kind of images it was trained on. Other images can score *better* than
  those: read low bits together with the percentile and the score corrected for complexity.
"""


def export(
    model: FlowModel, folder: Path, reference: Reference | None = None, *, bits: int = 32
) -> None:
    """Writes `config.json`, `model.safetensors`, `README.md` and, where known, `reference.json`."""
    if (folder / "config.yaml").exists():
        raise ValueError(f"{folder} is a run, which an export would spoil: choose another folder")
    model.save_pretrained(folder, bits=bits)
    reference = reference or Reference.beside(folder)  # the same model's stays where it was
    figures = "No reference images: percentiles need `--reference SOURCE`."
    if reference is not None:
        reference.write(folder)
        middle = reference.bits_per_dim[len(reference.bits_per_dim) // 2]
        figures = f"Median of {reference.images:,} reference images: {middle:.3f} bits/dim."
    channels, height, width = model.shape
    variational = model.config is not None and model.config.variational
    card = CARD.format(
        name=folder.resolve().name,
        channels=channels,
        height=height,
        width=width,
        n_bits=model.n_bits,
        parameters=sum(p.numel() for p in model.parameters()),
        dequantizer="variational" if variational else "uniform",
        figures=figures,
        labels=f"\n- Labels: {', '.join(model.labels)}." if model.labels else "",
    )
    files.write(folder / "README.md", card)


class _Likelihood(nn.Module):
    """`(images, eps, labels) -> log_prob`, the forward pass that is exported."""

    def __init__(self, model: FlowModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, eps: Tensor, labels: Tensor | None = None) -> Tensor:
        return self.model(images, eps=eps, labels=labels)


@torch.no_grad()
@exact_float32()
def export_program(model: FlowModel, path: Path) -> None:
    """Writes the likelihood as a `torch.export` program `.pt2`, verified against the model."""
    generator = torch.Generator().manual_seed(0)

    def inputs(count: int) -> tuple[Tensor, ...]:
        shape = (count, *model.shape)
        images = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        images = images.to(model.device)
        eps, labels = model.draw_noise(images, generator), model.labels_in_turn(range(count))
        return (images, eps) if labels is None else (images, eps, labels)

    likelihood, example = _Likelihood(model), inputs(2)
    batch = torch.export.Dim("batch", min=1)
    shapes = tuple({0: batch} for _ in example)
    program = io.BytesIO()
    torch.export.save(torch.export.export(likelihood, example, dynamic_shapes=shapes), program)
    fresh = inputs(3)
    program.seek(0)
    found, expected = torch.export.load(program).module()(*fresh), likelihood(*fresh)
    if not torch.allclose(found, expected, rtol=1e-4):
        raise ArithmeticError(f"{path}: the exported program gives other likelihoods")
    files.write(path, program.getvalue())
