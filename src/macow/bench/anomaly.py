"""How well a model's scores tell images of other kinds from those it was trained on."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from macow import data
from macow.data.images import Shape, fit
from macow.pretrained import load
from macow.score import Reference, Score, score

EACH = 1000
"""Images of every kind; of the model's own kind as many again are the reference."""
PHOTOGRAPHS, TURNED = "photographs", "upside down"


class Area(NamedTuple):
    """Under a ROC curve, with its standard error over the pictures of both kinds (DeLong, 1988).

    Where both kinds are of the same pictures, it is over these.
    """

    mean: float
    error: float


@dataclass(frozen=True)
class Detection:
    """One kind of images against test images of the model's own kind.

    Areas under the ROC curve: the chance that an image of that kind has a worse score than one of
    the model's own. A half is guessing, 1 tells all of them apart, 0 tells them the wrong way.
    """

    kind: str
    images: int
    pictures: int
    """Of which they are pieces."""
    bits_per_dim: float
    """Their mean."""
    likelihood: Area
    """By bits/dim."""
    typicality: Area
    corrected: Area


def measure(
    name: str, source: str, photos: Path, batch_size: int = 16, device: str = "cpu", seed: int = 0
) -> Iterator[Detection]:
    """A shipped model or a folder on its own kind's test images and on others.

    `photos` are photographs, some crops of which stand for natural images of another origin.
    """
    model = load(name, device)
    if model.labels:
        raise ValueError(f"{name} is conditional: its scores are of images with a label")
    rng = np.random.default_rng(seed)
    pictures = _opened(photos)

    def scores(images: np.ndarray, reference: Reference | None) -> list[Score]:
        parts = torch.split(torch.from_numpy(images).to(model.device), batch_size)
        return [s for part in parts for s in score(model, part, seed=seed, reference=reference)]

    test = data.load(source, "test", model.shape)
    if len(test) < 2 * EACH:
        raise ValueError(f"{source} has {len(test):,} test images, {2 * EACH:,} are needed")
    chosen = test.take(np.sort(rng.permutation(len(test))[: 2 * EACH]))
    reference = Reference.of(scores(chosen[::2], None))
    own = scores(chosen[1::2], reference)
    yield _detection("its own, the reference", scores(chosen[::2], reference), own, EACH)
    for kind, images in _others(model.shape, chosen[1::2], pictures, rng):
        different = min(EACH, len(pictures)) if kind == PHOTOGRAPHS else EACH
        found = scores(images, reference)
        yield _detection(kind, found, own, different, paired=kind == TURNED)


def _others(
    shape: Shape, own: np.ndarray, photos: list[Image.Image], rng: np.random.Generator
) -> Iterator[tuple[str, np.ndarray]]:
    yield PHOTOGRAPHS, _crops(photos, shape, rng)
    yield TURNED, own[:, :, ::-1].copy()
    digits = data.load("digits", "train").take(np.arange(EACH))[:, 0]
    enlarged = (Image.fromarray(digit).resize(shape[:0:-1]) for digit in digits)
    yield "digits", np.stack([fit(picture, shape) for picture in enlarged])
    colours = rng.integers(0, 256, (EACH, shape[0], 1, 1), dtype=np.uint8)
    yield "flat colours", np.broadcast_to(colours, (EACH, *shape)).copy()
    yield "noise", rng.integers(0, 256, (EACH, *shape), dtype=np.uint8)


def _opened(photos: Path) -> list[Image.Image]:
    files = sorted(file for file in photos.glob("*") if file.is_file())
    if not files:
        raise ValueError(f"{photos}: no photographs")
    return [Image.open(file).convert("RGB") for file in files]


def _crops(photos: list[Image.Image], shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """Squares of photographs, a quarter of the short side or more, made as small as the images."""
    found = []
    for number in range(EACH):
        photo = photos[number % len(photos)]
        side = int(min(photo.size) * rng.uniform(0.25, 1))
        left, top = (int(rng.integers(0, room - side + 1)) for room in photo.size)
        found.append(fit(photo.crop((left, top, left + side, top + side)), shape))
    return np.stack(found)


def _detection(
    kind: str, others: list[Score], own: list[Score], pictures: int, *, paired: bool = False
) -> Detection:
    """The others are, in turn, of so many pictures, if `paired` of the own ones, one by one."""

    def area(name: str, sign: int = 1) -> Area:
        worse, better = (
            np.array([sign * getattr(one, name) for one in some]) for some in (others, own)
        )
        chances, of_own = _above(worse, better), 1 - _above(better, worse)
        if paired:
            error = _error(chances + of_own)
        else:
            by_picture = [chances[i::pictures].mean() for i in range(pictures)]
            error = math.hypot(_error(by_picture), _error(of_own))
        return Area(float(chances.mean()), error)

    bits = fmean(one.bits_per_dim for one in others)
    areas = area("bits_per_dim"), area("typicality", -1), area("corrected")
    return Detection(kind, len(others), pictures, bits, *areas)


def _above(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Of each of some, the share of the others that are smaller; ties count half."""
    order = np.sort(others)
    below = np.searchsorted(order, some, "left") + np.searchsorted(order, some, "right")
    return below / (2 * len(order))


def _error(values: Sequence[float] | np.ndarray) -> float:
    """Of their mean."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
