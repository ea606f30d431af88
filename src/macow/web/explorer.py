"""What a page is shown of a model; each method yields answers, a batch at a time."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from io import BytesIO

import numpy as np
import torch
from torch import Tensor

from macow.check import reconstruction_error
from macow.data.files import image_file
from macow.data.images import fit
from macow.dequantize import quantize, to_images
from macow.latents import arc
from macow.model import FlowModel
from macow.pictures import film, grid
from macow.sampler import drawn_until_finite, latents
from macow.score import Reference, bits_map, score
from macow.web.data_urls import content_of, data_url, png
from macow.web.inside import drawing, masked_convs, receptive_fields
from macow.web.wishes import MOST_FRAMES, Between, End, Fields, Levels, Samples
from macow.web.worker import Answer

MOST_COUNT = 256
MOST_VALUES = 1 << 24
"""Of all pictures of one answer: what a browser still takes."""
MOST_PIXELS = 1 << 25
"""Of an upload, before it is fitted to the model."""
FIRST_BATCH, BATCH_SECONDS = 4, 0.5
"""Batches grow until they take so long: a request can be cancelled between two."""
FRESH = 1 << 20
"""Levels are resampled from samples of this number and beyond, which nobody looks at otherwise."""

BEYOND = "beyond what the model can compute: try another temperature, or `macow check`"


class Explorer:
    """One model, its sampler and its reference."""

    def __init__(
        self,
        name: str,
        model: FlowModel,
        reference: Reference | None,
        *,
        temperature: float = 1.0,
        seed: int = 0,
        batch_size: int = 64,
    ) -> None:
        """`temperature` and `seed` are what the page begins with."""
        self.name = name
        self.model = model
        self.sampler = model.sampler()
        self.reference = reference
        self.defaults = Samples(temperature=temperature, seed=seed)
        self.batch_size = batch_size
        self.most_count = max(1, min(MOST_COUNT, MOST_VALUES // model.num_dims))
        self.most_frames = max(2, min(MOST_FRAMES, MOST_VALUES // 4 // model.num_dims))

    def about(self) -> Answer:
        """What the page has to know before it asks for anything."""
        histogram = None
        if self.reference is not None:
            edges, shares = self.reference.histogram()
            histogram = {"images": self.reference.images, "edges": edges, "shares": shares}
        return {
            "name": self.name,
            "shape": self.model.shape,
            "n_bits": self.model.n_bits,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "labels": self.model.labels,
            "reference": histogram,
            "temperature": self.defaults.temperature,
            "seed": self.defaults.seed,
            "most_count": self.most_count,
            "most_frames": self.most_frames,
            "most_pixels": MOST_PIXELS,
            "drawing": drawing(self.model),
            "masked_levels": sorted(masked_convs(self.model)),
        }

    def samples(self, wish: Samples) -> Iterator[Answer]:
        """The pictures as they come, at the end all of them as one."""
        if wish.count > self.most_count:
            raise ValueError(f"count must be at most {self.most_count}, got {wish.count}")

        def draw(numbers: range, labels: Tensor | None) -> Tensor:
            return self.sampler.attempted(numbers, wish.temperature, wish.seed, labels)[0]

        drawn: list[np.ndarray | None] = []
        before = self.sampler.drawn_again
        for batch in self._batches(wish.count, wish.label, draw):
            if all(image is None for image in batch):
                raise FloatingPointError(BEYOND)
            yield {"first": len(drawn), "of": wish.count, "images": _urls(batch)}
            drawn += batch
        blank = np.zeros(self.model.shape, np.uint8)
        columns = len(self.model.labels) if self.model.labels and wish.label is None else None
        sheet = BytesIO()
        images = np.stack([blank if image is None else image for image in drawn])
        grid(images, columns).save(sheet, "png")
        again = self.sampler.drawn_again - before
        yield {"grid": data_url("image/png", sheet.getvalue()), "repeated": again}

    def image(self, content: bytes) -> Iterator[Answer]:
        """A file as the model sees it."""
        yield {"image": png(self._cut(self._read(content))[0].cpu().numpy())}

    def score(self, content: bytes, label: str | None) -> Iterator[Answer]:
        """What an image costs, where, and whether it comes back."""
        model, images = self._given(label), self._read(content)
        (found,) = score(model, images, seed=self.defaults.seed, reference=self.reference)
        if not math.isfinite(found.bits_per_dim):
            raise ArithmeticError("its likelihood is not finite: `macow check` looks at the model")
        cut, back = self._cut(images), model.decode(model.encode(images))
        bits = bits_map(model, images, seed=self.defaults.seed)[0].double().cpu().numpy()
        yield {
            **asdict(found),
            "image": png(cut[0].cpu().numpy()),
            "map": bits.round(4).tolist(),
            "reconstruction": png(back[0].cpu().numpy()),
            "round_trip_error": reconstruction_error(model, images),
            "values_lost": int((back != cut).sum()),
        }

    def between(self, wish: Between) -> Iterator[Answer]:
        """The pictures of the arc as they come, at the end the film."""
        if wish.frames > self.most_frames:
            raise ValueError(f"frames must be at most {self.most_frames}, got {wish.frames}")
        label = self._needed(wish.label)
        start, end = self._latent(wish.start, label), self._latent(wish.end, label)
        drawn: list[np.ndarray | None] = []
        for batch in self._decoded(arc(start, end, wish.frames), label):
            yield {"first": len(drawn), "of": wish.frames, "images": _urls(batch)}
            drawn += batch
        if drawn[0] is None or drawn[-1] is None:
            raise FloatingPointError(BEYOND)
        file = BytesIO()
        film(np.stack([image for image in drawn if image is not None]), file)
        yield {"film": data_url("image/webp", file.getvalue())}

    def levels(self, wish: Levels) -> Iterator[Answer]:
        """For each level, the picture with that level's latents drawn anew."""
        owners, label = self.model.latent_levels().to(self.model.device), self._needed(wish.label)
        z = self._latent(wish.start, label)
        ((original,),) = map(_all, self._decoded(z[None], label))
        levels = sorted(set(owners.flatten().tolist()))
        yield {"original": png(original), "of": len(levels)}
        for level in levels:
            drawn = np.stack([*self._resampled(z, owners == level, wish, label)])
            change = np.abs(drawn.astype(int) - original.astype(int)).mean()
            yield {
                "level": level,
                "latents": int((owners == level).sum()),
                "change": float(change),
                "images": [*map(png, drawn)],
            }

    def _resampled(
        self, z: Tensor, of_level: Tensor, wish: Levels, label: str | None
    ) -> Iterator[np.ndarray]:
        """The pictures of latents of which one level is drawn anew, until each leads to one."""

        def draw(numbers: range, labels: Tensor | None) -> Tensor:
            def mixed(places: Sequence[int], attempt: int) -> Tensor:
                which = [FRESH + numbers[i] for i in places]
                fresh = latents(self.model.shape, wish.seed, which, attempt)
                return torch.where(of_level, wish.temperature * fresh.to(z), z)

            cond = self.model.condition(labels)
            return drawn_until_finite(len(numbers), mixed, cond, self.sampler.invert)[1]

        for batch in self._batches(wish.count, label, draw):
            yield from _all(batch)

    def fields(self, wish: Fields) -> Iterator[Answer]:
        """What a pixel depends on after one masked convolution of a level, two, and so on."""
        yield from receptive_fields(self.model, wish.level, self._needed(wish.label))

    def _decoded(self, z: Tensor, label: str | None) -> Iterator[list[np.ndarray | None]]:
        """The pictures of latents, batch by batch."""

        def invert(numbers: range, labels: Tensor | None) -> Tensor:
            some = z[numbers.start : numbers.stop].to(self.sampler.device, self.sampler.dtype)
            return self.sampler.invert(some, self.model.condition(labels))

        return self._batches(len(z), label, invert)

    @torch.no_grad()
    def _batches(
        self, count: int, label: str | None, compute: Callable[[range, Tensor | None], Tensor]
    ) -> Iterator[list[np.ndarray | None]]:
        """Pictures, computed by number and label; None for one beyond what the model can invert."""
        labels = self._labels(range(count), label)
        start, size = 0, min(FIRST_BATCH, self.batch_size)
        while start < count:
            began, part = time.monotonic(), range(start, min(start + size, count))
            x = compute(part, None if labels is None else labels[start : part.stop])
            good = x.isfinite().flatten(1).all(dim=1).tolist()
            images = to_images(x.nan_to_num(), self.model.n_bits).cpu().numpy()
            yield [image if is_good else None for image, is_good in zip(images, good, strict=True)]
            start = part.stop
            if time.monotonic() - began < BATCH_SECONDS:
                size = min(2 * size, self.batch_size)

    def _labels(self, numbers: range, label: str | None) -> Tensor | None:
        """The same for all, or in turn."""
        if label is None:
            return self.sampler.labels_in_turn(numbers)
        return torch.full((len(numbers),), self._number(label), device=self.model.device)

    def _latent(self, end: End, label: str | None) -> Tensor:
        if end.image is None:
            number = range(end.sample, end.sample + 1)
            labels = self._labels(number, label)
            _, z = self.sampler.attempted(number, end.temperature, end.seed, labels)
            return z[0].to(self.model.device, self.model.dtype)
        return self._given(label).encode(self._read(content_of(end.image)))[0]

    def _read(self, content: bytes) -> Tensor:
        with image_file(content, MOST_PIXELS) as image:
            pixels = fit(image, self.model.shape)
        return torch.from_numpy(pixels[None].copy()).to(self.model.device)

    def _cut(self, images: Tensor) -> Tensor:
        return quantize(images, self.model.n_bits) << (8 - self.model.n_bits)

    def _needed(self, label: str | None) -> str | None:
        """A label where images all have the same; none for a model that knows none."""
        if label is not None:
            self._number(label)
        elif self.model.labels:
            raise ValueError(f"choose a label, one of {', '.join(self.model.labels)}")
        return label

    def _given(self, label: str | None) -> FlowModel:
        return self.model if self._needed(label) is None else self.model.given(str(label))

    def _number(self, label: str) -> int:
        if self.model.label_map is None:
            raise ValueError(f"the model knows no labels, so not {label!r} either")
        return self.model.label_map.number(label)


def _urls(batch: list[np.ndarray | None]) -> list[str | None]:
    return [None if image is None else png(image) for image in batch]


def _all(batch: list[np.ndarray | None]) -> list[np.ndarray]:
    whole = [image for image in batch if image is not None]
    if len(whole) < len(batch):
        raise FloatingPointError(BEYOND)
    return whole
