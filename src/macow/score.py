"""Scores of single images: their bits, what these are made of, and how unusual they are."""

import io
import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from macow import files
from macow.data.images import Images
from macow.dequantize import log_normal, quantize
from macow.documents import from_dict, read_json
from macow.evaluate import known_labels
from macow.model import FlowModel
from macow.nets.precision import exact_float32
from macow.seeds import generator_for

QUANTILES = 201
FRAME = 25
"""Bytes of a WebP file that are the same for every image of a size."""


@dataclass(frozen=True)
class Score:
    """What a model makes of an image."""

    bits_per_dim: float
    log_prior: float
    """`log p(z)`, nats: how likely its latents are."""
    log_det: float
    """Nats: how much the flow had to stretch it."""
    codec_bits_per_dim: float
    """What a lossless codec (WebP) takes for the same image."""
    corrected: float
    """`bits_per_dim - codec_bits_per_dim`: surprise that complexity does not explain."""
    percentile: float | None = None
    """How many of a hundred reference images cost fewer bits."""
    typicality: float | None = None
    """1 where the middle of the reference lies, 0 beyond either of its ends."""


@dataclass(frozen=True)
class Reference:
    """Quantiles over images the model was not trained on: percentiles without the data."""

    images: int
    bits_per_dim: tuple[float, ...]
    log_prior: tuple[float, ...]

    @classmethod
    def of(cls, scores: Sequence[Score]) -> "Reference":
        """From the scores of some images."""
        levels = np.linspace(0, 1, QUANTILES)
        columns = ([s.bits_per_dim for s in scores], [s.log_prior for s in scores])
        bits, prior = (tuple(np.quantile(c, levels).tolist()) for c in columns)
        return cls(len(scores), bits, prior)

    @classmethod
    def read(cls, path: Path) -> "Reference":
        """From `reference.json`."""
        reference = from_dict(cls, read_json(path), f"{path} is not a reference: it")
        tables = (reference.bits_per_dim, reference.log_prior)
        if len(tables[0]) != len(tables[1]) or not tables[0] or reference.images < 1:
            raise ValueError(f"{path} is not a reference: its tables do not fit together")
        if any(list(table) != sorted(table) for table in tables):
            raise ValueError(f"{path} is not a reference: its quantiles must rise")
        return reference

    @classmethod
    def beside(cls, folder: Path) -> "Reference | None":
        """That of a model's folder, if it has one."""
        path = folder / "reference.json"
        return cls.read(path) if path.exists() else None

    def write(self, folder: Path) -> None:
        """As `reference.json` of a model's folder."""
        files.write(folder / "reference.json", json.dumps(asdict(self)) + "\n")

    def percentile(self, bits_per_dim: float) -> float:
        """How many of a hundred reference images cost fewer bits."""
        levels = np.linspace(0, 100, len(self.bits_per_dim))
        return float(np.interp(bits_per_dim, self.bits_per_dim, levels))

    def histogram(self, bins: int = 36) -> tuple[list[float], list[float]]:
        """The edges of bins between its ends, and the share of the images in each."""
        edges = np.linspace(self.bits_per_dim[0], self.bits_per_dim[-1], bins + 1)
        below = np.interp(edges, self.bits_per_dim, np.linspace(0, 1, len(self.bits_per_dim)))
        below[0] = 0  # several may share the lowest score
        return edges.tolist(), np.diff(below).tolist()


@torch.no_grad()
@exact_float32()
def score(
    model: FlowModel,
    images: Tensor,
    *,
    seed: int = 0,
    reference: Reference | None = None,
    labels: Tensor | None = None,
) -> list[Score]:
    """Scores uint8 images `[B, C, H, W]`; the noise of an image belongs to (seed, its pixels)."""
    model.require_images(images)
    model.require_undamaged()
    model.check_labels(images, labels)
    u, log_q = model.dequantizer(images, _noise(model, images, seed))
    z, log_det = model.flow(model.continuous(images, u), model.condition(labels))
    log_prior = log_normal(z)
    volume = model.num_dims * (model.n_bits - 1) * math.log(2)
    per_dim = model.num_dims * math.log(2)
    bits = -(log_prior + log_det - log_q - volume) / per_dim
    scores = []
    for i, image in enumerate(images.cpu().numpy()):
        found, codec = bits[i].item(), codec_bits(image, model.n_bits) / model.num_dims
        below = None if reference is None else reference.percentile(found)
        typical = None if below is None else 1 - abs(below - 50) / 50
        scores.append(
            Score(
                found, log_prior[i].item(), log_det[i].item(), codec, found - codec, below, typical
            )
        )
    return scores


@torch.no_grad()
@exact_float32()
def bits_map(
    model: FlowModel, images: Tensor, *, seed: int = 0, labels: Tensor | None = None
) -> Tensor:
    """Where the bits of images go, `[B, H, W]`: summed and divided by D, their scores.

    A latent counts where it lies, a log-det where it comes from; the noise's log q is spread.
    """
    model.require_images(images)
    model.require_undamaged()
    model.check_labels(images, labels)
    channels, height, width = model.shape
    u, log_q = model.dequantizer(images, _noise(model, images, seed))
    x = model.continuous(images, u)
    z, log_det = model.flow.forward_with_map(x, model.condition(labels))
    log_prior = -0.5 * (z.square() + math.log(2 * math.pi)).sum(dim=1)
    spread = log_q[:, None, None] / (height * width)
    nats = spread - log_prior - log_det
    return model.require_finite(nats / math.log(2) + channels * (model.n_bits - 1), "the map")


def make_reference(
    model: FlowModel, images: Images, *, batch_size: int = 64, seed: int = 0, limit: int = 0
) -> Reference:
    """The reference of a model on a set of images, those with a finite likelihood."""
    count = min(len(images), limit or len(images))
    labels = known_labels(model, images)
    scores: list[Score] = []
    for start in range(0, count, batch_size):
        indices = np.arange(start, min(start + batch_size, count))
        batch = torch.from_numpy(images.take(indices)).to(model.device)
        given = None if labels is None else labels[indices]
        scores += score(model, batch, seed=seed, labels=given)
    known = [s for s in scores if math.isfinite(s.bits_per_dim)]
    if not known:
        raise FloatingPointError(f"the likelihoods of all {count} reference images are not finite")
    return Reference.of(known)


def codec_bits(image: np.ndarray, n_bits: int) -> int:
    """The size of the image's first `n_bits`, `[C, H, W]`, as lossless WebP without its frame."""
    levels = np.asarray(quantize(torch.from_numpy(image), n_bits)).transpose(1, 2, 0)
    picture = Image.fromarray(levels[:, :, 0] if levels.shape[2] == 1 else levels)
    file = io.BytesIO()
    picture.save(file, "webp", lossless=True)
    return 8 * (len(file.getvalue()) - FRAME)


def _noise(model: FlowModel, images: Tensor, seed: int) -> Tensor:
    noise = [
        model.draw_noise(image[None], generator_for(seed, "score", _checksum(image)))
        for image in images
    ]
    return torch.cat(noise)


def _checksum(image: Tensor) -> int:
    return zlib.crc32(image.cpu().numpy().tobytes())
