"""Configurations that build. Every field is a scalar, a tuple, a `Literal` or a config or None."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from macow.bijections.base import Bijection, Chain
from macow.bijections.multiscale import Block, MultiScale
from macow.bijections.steps import (
    StepSpec,
    emerging_step,
    glow_step,
    macow_step,
    maf_step,
    realnvp_step,
)
from macow.dequantize import Dequantizer, UniformDequantizer, VariationalDequantizer
from macow.documents import brief
from macow.documents import from_dict as from_dict
from macow.model import FlowModel
from macow.nets.label_map import LabelMap
from macow.nets.resnet import Encoder

Kind = Literal["macow", "glow", "realnvp", "maf", "emerging"]
STEPS: dict[Kind, Callable[[StepSpec], Chain]] = {
    "macow": macow_step,
    "glow": glow_step,
    "realnvp": realnvp_step,
    "maf": maf_step,
    "emerging": emerging_step,
}
LARGEST = 1 << 16
"""Beyond it, a number of channels, pixels or units is a slip or an attack."""


@dataclass(frozen=True)
class FlowConfig:
    """A multi-scale flow: which steps, how many on each scale, what is factored out where."""

    steps: tuple[tuple[int, ...], ...]
    """Steps of each block of each level, bottom level first: `((4,), (12, 12), (12,))`."""
    hidden: tuple[int, ...]
    """Hidden channels of the couplings, level by level."""
    factors: tuple[int, ...] = ()
    """M of each level that factors out: after its block b go 1/(M - b) of the channels left."""
    kind: Kind = "macow"
    """Which steps the flow is made of."""
    bottom: bool = True
    """Whether the first level works on the unsqueezed image."""
    kernel: tuple[int, int] = (2, 3)
    """Height and width of the masked convolutions."""
    units: int = 2
    """T: units of four masked convolutions in a step."""
    affine: bool = True
    """Whether steps scale as well as shift."""
    affine_prior: bool = True
    """The same for the priors, which stand before factoring out."""

    def __post_init__(self) -> None:
        """Says what does not fit together."""
        if len(self.steps) < (2 if self.bottom else 1):
            raise ValueError(f"steps must name at least one squeezed level, got {self.steps}")
        if any(not blocks or min(blocks) < 1 for blocks in self.steps):
            raise ValueError(f"steps must be positive in every block, got {self.steps}")
        if self.bottom and len(self.steps[0]) != 1:
            raise ValueError(f"the bottom level must be one block, got steps {self.steps[0]}")
        if len(self.hidden) != len(self.steps) or min(self.hidden) < 1:
            raise ValueError(
                f"hidden must be {len(self.steps)} positive numbers, one a level, got {self.hidden}"
            )
        if len(self.factors) != len(self._factoring_levels()):
            raise ValueError(
                f"factors must be one number for each of the {len(self._factoring_levels())} "
                f"level(s) that factor out, got {self.factors}"
            )
        for level, factor in zip(self._factoring_levels(), self.factors, strict=True):
            if factor <= self._num_factored(level):
                raise ValueError(
                    f"factors must exceed the blocks they factor out of, got {factor} for steps "
                    f"{self.steps[level]}"
                )
        if self.kernel[0] < 1 or self.kernel[1] < 1 or self.kernel[1] % 2 == 0:
            raise ValueError(f"kernel must be (kh, kw) with kw odd, got {self.kernel}")
        if self.units < 1:
            raise ValueError(f"units must be at least 1, got {self.units}")
        if len(self.steps) > 16 or sum(map(sum, self.steps)) * self.units > LARGEST:
            raise ValueError(f"steps must be at most 16 levels and {LARGEST:,} units in all")
        if max(*self.hidden, *self.kernel) > LARGEST:
            raise ValueError(f"hidden and kernel must be at most {LARGEST:,}")
        if self.kind in ("maf", "realnvp") and not self.affine:
            raise ValueError(f"affine must be true for {self.kind}, which has no additive form")

    @property
    def num_squeezes(self) -> int:
        """How often height and width are halved."""
        return len(self.steps) - self.bottom

    def _num_factored(self, level: int) -> int:
        """After how many blocks of a level something is factored out: all but the very last."""
        if level == 0 and self.bottom:
            return 0
        return len(self.steps[level]) - (level == len(self.steps) - 1)

    def _factoring_levels(self) -> list[int]:
        return [level for level in range(len(self.steps)) if self._num_factored(level)]

    def build(
        self, channels: int, cond_channels: int = 0, *, flat_cond: bool = False
    ) -> MultiScale:
        """The flow on images of so many channels; a flat condition is the same at every pixel."""
        if cond_channels and self.kind in ("maf", "realnvp"):
            raise ValueError(f"a conditional flow cannot be of kind {self.kind}")
        factors = dict(zip(self._factoring_levels(), self.factors, strict=True))
        levels = []
        for level, steps in enumerate(self.steps):
            squeezed = not (level == 0 and self.bottom)
            if squeezed:
                channels = 4 * channels
                cond_channels *= 1 if flat_cond else 4
            blocks = []
            for block, num_steps in enumerate(steps):
                out = 0
                if block < self._num_factored(level):
                    out = channels // (factors[level] - block)
                    if out == 0:
                        raise ValueError(
                            f"factors must be at most the channels they divide ({channels}), "
                            f"got {factors[level]}"
                        )
                spec = StepSpec(
                    channels=channels,
                    hidden=self.hidden[level],
                    kernel=self.kernel,
                    units=self.units,
                    affine=self.affine,
                    cond_channels=cond_channels,
                    after_squeeze=squeezed and block == 0,
                )
                blocks.append(Block(self._build_block(spec, num_steps, out), channels - out))
                channels -= out
            levels.append(blocks)
        return MultiScale(levels, bottom=self.bottom, flat_cond=flat_cond)

    def _build_block(self, spec: StepSpec, num_steps: int, out: int) -> Chain:
        make = STEPS[self.kind]
        if spec.channels < 2:
            raise ValueError(
                "a coupling needs at least 2 channels: set bottom=False for grey images"
            )
        parts: dict[str, Bijection] = {
            f"step{i}": make(replace(spec, index=i)) for i in range(num_steps)
        }
        if out and self.kind != "realnvp":  # RealNVP factors out without a prior
            hidden = spec.hidden if self.kind == "macow" else min(8 * spec.channels, 512)
            prior = replace(spec, hidden=hidden, affine=self.affine_prior)
            parts["prior"] = glow_step(prior, num_transformed=out)
        return Chain(**parts)


@dataclass(frozen=True)
class VariationalConfig:
    """A variational dequantizer: a small conditional flow, and how many channels condition it."""

    flow: FlowConfig
    cond_channels: int = 4
    """Channels of what the encoder makes of an image."""

    def build(self, channels: int, n_bits: int) -> VariationalDequantizer:
        """The dequantizer of images of so many channels."""
        if self.cond_channels < 1:
            raise ValueError(f"cond_channels must be at least 1, got {self.cond_channels}")
        flow = self.flow.build(channels, self.cond_channels)
        encoder = Encoder(
            channels, self.cond_channels, len(self.flow.steps), bottom=self.flow.bottom
        )
        return VariationalDequantizer(flow, encoder, n_bits)


@dataclass(frozen=True)
class ModelConfig:
    """A model: the images it knows, its flow and its dequantizer (None: uniform)."""

    flow: FlowConfig
    channels: int = 3
    """1 for grey images, 3 for colour."""
    size: tuple[int, int] = (32, 32)
    """Height and width."""
    n_bits: int = 8
    """How many bits of each value the model sees."""
    variational: VariationalConfig | None = None
    """The flow of a variational dequantizer; null dequantizes with uniform noise."""
    labels: tuple[str, ...] = ()
    """Names of the labels a class-conditional model is given; none: unconditional."""
    label_channels: int = 4
    """Channels that tell a label to each coupling and masked convolution."""

    def __post_init__(self) -> None:
        """Says what does not fit together."""
        if not 1 <= self.channels <= LARGEST:
            raise ValueError(f"channels must be from 1 to {LARGEST:,}, got {self.channels}")
        if max(self.size) > LARGEST:
            raise ValueError(f"size must be at most {LARGEST:,}, got {self.size}")
        if not 1 <= self.n_bits <= 8:
            raise ValueError(f"n_bits must be from 1 to 8, got {self.n_bits}")
        if len(self.labels) == 1 or len({*self.labels, ""}) <= len(self.labels):
            raise ValueError(f"labels must be two or more different names, got {self.labels}")
        if self.label_channels < 1:
            raise ValueError(f"label_channels must be at least 1, got {self.label_channels}")
        flows = [self.flow] + ([self.variational.flow] if self.variational else [])
        divisor = 2 ** max(flow.num_squeezes for flow in flows)
        if min(self.size) < 1 or any(side % divisor for side in self.size):
            raise ValueError(
                f"size must be divisible by {divisor} to be squeezed "
                f"{max(flow.num_squeezes for flow in flows)} times, got {self.size}"
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of an image, `(C, H, W)`."""
        return self.channels, *self.size

    def build(self) -> FlowModel:
        """A model with fresh weights, to be initialised on images."""
        dequantizer: Dequantizer = UniformDequantizer()
        if self.variational is not None:
            dequantizer = self.variational.build(self.channels, self.n_bits)
        if not self.labels:
            return FlowModel(
                self.flow.build(self.channels), dequantizer, self.shape, self.n_bits, self
            )
        flow = self.flow.build(self.channels, self.label_channels, flat_cond=True)
        label_map = LabelMap(self.labels, self.label_channels)
        return FlowModel(flow, dequantizer, self.shape, self.n_bits, self, label_map)

    def outline(self, num_weights: int, where: str | os.PathLike[str]) -> dict[str, Tensor]:
        """Its weights without their values, so that so many found ones can be compared with them.

        Nothing of the configured size is made: a file can claim any size.
        """
        flows = [self.flow] + ([self.variational.flow] if self.variational else [])
        if sum(sum(map(sum, flow.steps)) * flow.units for flow in flows) > num_weights:
            raise ValueError(f"{where} configures more layers than its {num_weights} weights")
        try:
            with torch.device("meta"):
                return self.build().state_dict()
        except (RuntimeError, TypeError, OverflowError, ValueError) as error:
            raise ValueError(f"{where} configures an impossible model: {brief(error)}") from None


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained; the defaults are the paper's, but for the number of updates."""

    steps: int = 10_000
    """Updates in all."""
    batch_size: int = 64
    """Images of an update."""
    batch_steps: int = 1
    """Into how many passes an update's images are split, to save memory."""
    lr: float = 1e-3
    """Peak learning rate."""
    warmup: int = 500
    """Updates over which it rises."""
    schedule: Literal["exponential", "cosine"] = "exponential"
    """How it falls then: by `decay` an update, or along a cosine over all steps."""
    decay: float = 0.999997
    """Factor an update of the exponential schedule."""
    min_lr: float = 0.01
    """Where the fall ends, as a part of the peak."""
    optimizer: Literal["adam", "muon"] = "adam"
    """Adam for all weights, or Muon for those of the networks' convolutions."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's."""
    eps: float = 1e-8
    """Adam's."""
    clip: float = 0.0
    """Largest norm of a gradient; 0 lets all pass."""
    ema: float = 0.0
    """Decay of the running average of the weights; 0 keeps none."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of products in couplings, encoder and, on a GPU, masked convolutions; all else is float32."""
    compile: bool = False
    """Whether torch compiles each step of the flow, on a CPU."""
    noise_samples: int = 1
    """Draws of the dequantizer's noise whose log q is averaged; the first goes through the flow."""
    mirror: bool = False
    """Whether half of the images are mirrored."""
    shift: int = 0
    """Pixels that images are shifted by at most, reflected at the border."""
    shift_until: float = 1.0
    """After which share of all updates images are no longer shifted."""
    init_images: int = 2048
    """Images of data-dependent initialisation."""
    log_every: int = 50
    """Updates between lines of the training loss."""
    eval_every: int = 1000
    """Updates between evaluations on test images."""
    eval_images: int = 0
    """Test images of an evaluation while training; 0 takes all."""
    save_every: int = 1000
    """Updates between checkpoints."""
    keep: int = 2
    """Checkpoints kept beside the best one, at least 2."""
    sample_temperatures: tuple[float, ...] = (0.7, 0.85, 1.0)
    """A row of samples for each, at every evaluation."""
    max_skipped: int = 20
    """Updates in a row that may be skipped for non-finite values before training gives up."""

    def __post_init__(self) -> None:
        """Says what does not fit together."""
        for name in (
            "batch_size", "batch_steps", "lr", "decay", "log_every", "eval_every", "save_every",
            "noise_samples", "init_images", "max_skipped",
        ):  # fmt: skip
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        for name in ("steps", "warmup", "clip", "shift", "eval_images", "min_lr", "eps"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        if self.keep < 2:
            raise ValueError(f"keep must be at least 2, lest one be damaged, got {self.keep}")
        if not 0 <= self.shift_until <= 1:
            raise ValueError(f"shift_until must be from 0 to 1, got {self.shift_until}")
        if not 0 <= self.ema < 1:
            raise ValueError(f"ema must be at least 0 and below 1, got {self.ema}")
        if not all(0 <= t < math.inf for t in self.sample_temperatures):
            raise ValueError(f"sample_temperatures must be >= 0, got {self.sample_temperatures}")
        if self.batch_size % self.batch_steps:
            raise ValueError(
                f"batch_size {self.batch_size} must be divisible by batch_steps {self.batch_steps}"
            )


@dataclass(frozen=True)
class RunConfig:
    """A model, how it is trained, and the temperature its samples are shown at."""

    model: ModelConfig
    train: TrainConfig = TrainConfig()
    temperature: float = 1.0

    def __post_init__(self) -> None:
        """Says what does not fit together."""
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature must be at least 0, got {self.temperature}")
