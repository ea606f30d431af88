"""Cases for kernels, run here by Triton's interpreter and on a GPU as they are."""

from dataclasses import dataclass

import torch

from macow.ops.glow import GlowWeights
from macow.ops.glow import reference as glow_reference
from macow.ops.masked_conv import MaskedConvWeights
from macow.ops.masked_conv import reference as scan_reference

SMALL_SCANS = {
    "two-rows-ahead": (3, 9, (2, 3), (5, 6)),
    "many-channels": (12, 12, (2, 3), (3, 5)),
    "three-rows": (4, 8, (3, 3), (4, 3)),
    "one-row": (3, 5, (1, 1), (3, 4)),
    "five-columns": (3, 12, (2, 5), (3, 7)),
    "streamed": (72, 72, (2, 3), (3, 2)),
    "streamed-2x5": (40, 72, (2, 5), (2, 3)),
    "one-pixel": (3, 6, (2, 3), (1, 1)),
}
"""Channels, hidden units, kernel, size: ragged on purpose."""
PRESET_SCANS = {
    f"{channels}-at-{side}-2x{kw}": (channels, hidden, (2, kw), (side, side))
    for channels, hidden, kw, side in [
        (3, 12, 3, 32), (12, 48, 3, 16), (9, 36, 3, 16), (24, 96, 3, 8), (18, 72, 3, 8),
        (48, 192, 3, 4), (3, 12, 5, 64), (12, 48, 5, 32), (9, 36, 5, 32), (24, 96, 5, 16),
        (18, 72, 5, 16), (36, 144, 5, 8), (96, 384, 5, 4), (72, 288, 5, 8), (192, 384, 5, 4),
        (384, 512, 5, 4), (3, 12, 5, 256), (12, 48, 5, 128),
    ]
}  # fmt: skip
"""Those of the presets; 192 and 384 channels have the narrower networks of wide images."""


@dataclass(frozen=True)
class Scan:
    """A masked convolution to undo, in float64."""

    weights: MaskedConvWeights
    y: torch.Tensor
    context: torch.Tensor | None
    norm: tuple[torch.Tensor, torch.Tensor] | None

    @classmethod
    def of(cls, channels, hidden, kernel, size, *, affine, extras, batch=3, seed=0):
        g = torch.Generator().manual_seed(seed)

        def normal(*shape):
            return torch.randn(*shape, generator=g, dtype=torch.double)

        reading, mix = normal(hidden, channels, *kernel), normal((1 + affine) * channels, hidden)
        weights = MaskedConvWeights(
            reading / reading.flatten(1).norm(dim=1)[:, None, None, None],
            0.1 * normal(hidden),
            0.3 * mix / mix.norm(dim=1, keepdim=True),
            0.1 * normal((1 + affine) * channels),
        )
        norm = (1 + 0.1 * normal(channels), normal(channels)) if extras else None
        context = normal(batch, hidden, *size) if extras else None
        return cls(weights, normal(batch, channels, *size), context, norm)

    def to(self, *where):
        """The same of another type, on another device."""
        return Scan(
            MaskedConvWeights(*(w.to(*where) for w in self.weights)),
            self.y.to(*where),
            None if self.context is None else self.context.to(*where),
            None if self.norm is None else tuple(v.to(*where) for v in self.norm),
        )

    def reference(self, order):
        y = self.y
        if self.norm is not None:
            y = y * self.norm[0][:, None, None] + self.norm[1][:, None, None]
        return scan_reference.inverse(y, self.weights, order, self.context)


@dataclass(frozen=True)
class Glow:
    """A Glow step to undo, in float64; its matrix lies column by column, as inverses do."""

    weights: GlowWeights
    y: torch.Tensor
    cond: torch.Tensor | None

    @classmethod
    def of(
        cls, channels, transformed, hidden, size, *, affine, cond=0, mixed=True, batch=3, seed=0
    ):
        g = torch.Generator().manual_seed(seed)

        def normal(*shape):
            return torch.randn(*shape, generator=g, dtype=torch.double)

        given, out = channels - transformed + cond, (1 + affine) * transformed
        weights = GlowWeights(
            first=normal(hidden, given, 3, 3) / (9 * given) ** 0.5,
            first_bias=0.1 * normal(hidden),
            middle=normal(hidden, hidden, 1, 1) / hidden**0.5,
            middle_bias=0.1 * normal(hidden),
            last=0.3 * normal(out, hidden, 3, 3) / (9 * hidden) ** 0.5,
            last_bias=0.1 * normal(out),
            affine=affine,
            mixing=(
                torch.linalg.qr(normal(channels, channels))[0].mT.contiguous().mT,
                normal(channels),
            )
            if mixed
            else None,
        )
        condition = normal(batch, cond, *size) if cond else None
        return cls(weights, normal(batch, channels, *size), condition)

    def to(self, *where):
        """The same of another type, on another device."""
        *tensors, affine, mixing = self.weights
        weights = GlowWeights(
            *(w.to(*where) for w in tensors), affine, mixing and tuple(m.to(*where) for m in mixing)
        )
        cond = None if self.cond is None else self.cond.to(*where)
        return Glow(weights, self.y.to(*where), cond)

    def reference(self):
        return glow_reference.inverse(self.y, self.weights, self.cond)


def poisoned(monkeypatch):
    """From now on new tensors are full of NaN: what a kernel leaves unwritten shows."""

    def filled(make):
        return lambda *args, **options: make(*args, **options).fill_(torch.nan)

    monkeypatch.setattr(torch, "empty_like", filled(torch.empty_like))
    monkeypatch.setattr(torch.Tensor, "new_empty", filled(torch.Tensor.new_empty))


def assert_earns_its_tolerance(found, plain, exact):
    """A kernel may lose at most twice what plain float32 torch loses against float64."""
    allowed = 2 * (plain.double() - exact).norm() + 1e-7 * exact.norm()
    assert (found.double() - exact).norm() <= allowed
