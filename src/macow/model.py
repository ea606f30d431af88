"""The model: a dequantizer, a flow and a standard normal prior, with uint8 images at the edges."""

import math
import os
from collections.abc import Iterable, Sized
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from macow._version import __version__
from macow.bijections.base import Bijection
from macow.bijections.given import Given
from macow.bijections.multiscale import MultiScale
from macow.dequantize import (
    Dequantizer,
    UniformDequantizer,
    from_images,
    lean_noise,
    log_normal,
    to_images,
)
from macow.guarded import Guarded
from macow.inputs import require_floats, require_image_batch, require_noise, require_within
from macow.nets.label_map import LabelMap, condition
from macow.nets.precision import exact_float32
from macow.nets.weight_norm import WeightNorm
from macow.ops.serving import finite_or_plain
from macow.sampler import Sampler, drawn_until_finite, latents_drawn
from macow.weights import write_model

if TYPE_CHECKING:
    from macow.config import ModelConfig

FORMAT = 1
"""The format of exported folders; `macow.load` reads this one and all before it."""


class FlowModel(Guarded):
    """An exact likelihood of images, and a sampler of them.

    `images` are uint8 `[B, C, H, W]`; likelihoods are in nats, `[B]`; `z` has the images' shape.
    A conditional model also takes `labels [B]`, int64: places in `model.labels`, its labels' names.
    """

    def __init__(
        self,
        flow: Bijection,
        dequantizer: Dequantizer,
        shape: tuple[int, int, int],
        n_bits: int = 8,
        config: "ModelConfig | None" = None,
        label_map: LabelMap | None = None,
    ) -> None:
        super().__init__()
        if not 1 <= n_bits <= 8:
            raise ValueError(f"n_bits must be from 1 to 8, got {n_bits}")
        self.flow = flow
        self.dequantizer = dequantizer
        self.shape = shape
        self.n_bits = n_bits
        self.config = config
        self.label_map = label_map

    # Likelihoods

    def forward(
        self,
        images: Tensor,
        num_samples: int = 1,
        eps: Tensor | None = None,
        generator: Generator | None = None,
        more_eps: Tensor | None = None,
        labels: Tensor | None = None,
        slope: Tensor | None = None,
    ) -> Tensor:
        """`log_prob` without a look at values: what training, DDP and compilation wrap.

        `more_eps [k, B, C, H, W]` are draws that do not go through the flow: their log q and the
        first one's are averaged, a cheaper way to a calmer bound. With a `slope` noise leans.
        """
        assert more_eps is None or slope is None, "a draw that is not seen whole cannot lean"
        self.require_images(images)
        if num_samples < 1:
            raise ValueError(f"num_samples must be at least 1, got {num_samples}")
        if eps is not None:
            require_noise(eps, images, num_samples, self.dtype)
            eps = eps.view(num_samples, *images.shape)
        log_probs = []
        for i in range(num_samples):
            noise = eps[i] if eps is not None else self.draw_noise(images, generator)
            log_p, log_q = self.log_terms(images, noise, labels, slope)
            if more_eps is not None:
                others = [self.dequantizer(images, one)[1] for one in more_eps]
                log_q = torch.stack([log_q, *others]).mean(dim=0)
            log_probs.append(log_p - log_q)
        return torch.logsumexp(torch.stack(log_probs), dim=0) - math.log(num_samples)

    def draw_noise(self, images: Tensor, generator: Generator | None = None) -> Tensor:
        """Fresh `eps` for images, in the model's type."""
        return self.dequantizer.draw(images, generator).to(self.dtype)

    def log_terms(
        self,
        images: Tensor,
        eps: Tensor,
        labels: Tensor | None = None,
        slope: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """For one draw of noise, `log p(image, u)` and `log q(u)`, nats `[B]`; a bound is p - q.

        With a `slope`, such as `lean` gives, the noise leans.
        """
        u, log_q = self.dequantizer(images, eps)
        if slope is not None:
            u, log_lean = lean_noise(u, slope)
            log_q = log_q + log_lean
        volume = self.num_dims * (self.n_bits - 1) * math.log(2)  # levels are 2^(1 - n_bits) apart
        return self._log_density(self.continuous(images, u), labels) - volume, log_q

    @exact_float32()
    def lean(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        """The slope of leaning noise, nats a level, `[B, C, H, W]`: along that of the density.

        For a density of slope g and curvature H within a level, `g / (1 - g'Hg / (12 g'g))` is the
        best multiple of g. H is seen in how the slope changes a little ahead.
        """
        if not isinstance(self.dequantizer, UniformDequantizer):
            raise ValueError("only uniform noise can lean, and this model has learnt its noise")
        self.require_images(images)
        self.check_labels(images, labels)
        self.require_undamaged()
        slope = self._slope(images, 0.5, labels)
        ahead = (slope / 20).tanh() / 2
        bent = self._slope(images, 0.5 + ahead, labels) - slope
        change, way = ((slope * t).flatten(1).sum(dim=1) for t in (bent, ahead))
        curvature = (change / way).clamp(max=0).view(-1, 1, 1, 1)
        return torch.nan_to_num(slope / (1 - curvature / 12), 0, 0, 0)  # any slope gives a bound

    @torch.inference_mode(mode=False)
    @torch.enable_grad()
    def _slope(self, images: Tensor, u: Tensor | float, labels: Tensor | None) -> Tensor:
        """`d log p / d u`."""
        x = self.continuous(images, u).requires_grad_()
        (slope,) = torch.autograd.grad(self._log_density(x, labels).sum(), x)
        return slope * 2 / 2**self.n_bits

    @exact_float32()
    def log_prob(
        self,
        images: Tensor,
        num_samples: int = 1,
        eps: Tensor | None = None,
        generator: Generator | None = None,
        labels: Tensor | None = None,
        *,
        lean: bool = False,
    ) -> Tensor:
        """`log P(image) [B]`, estimated from below by `num_samples` draws of the noise.

        `log p(x) - log q(u) - D (n_bits - 1) ln 2`; more than one sample are importance-weighted:
        `logmeanexp` over the samples. `eps [B, C, H, W]` (`[num_samples, B, C, H, W]` if several)
        replaces the draws: u itself for a uniform dequantizer, N(0, 1) for a variational one. A
        `generator` is a CPU generator. A conditional model gives `log P(image | label)`. Uniform
        noise may `lean` where the density rises: two gradients for a bound that is mostly tighter.
        """
        if eps is not None and isinstance(self.dequantizer, UniformDequantizer):
            require_within("eps", eps, 0, 1)
        elif eps is not None and not eps.isfinite().all():
            raise ValueError("eps must be finite, got NaN or infinity")
        self.check_labels(images, labels)
        self.require_undamaged()
        slope = self.lean(images, labels) if lean else None
        log_prob = self(images, num_samples, eps, generator, labels=labels, slope=slope)
        return self.require_finite(log_prob, "the likelihood")

    def bits_per_dim(
        self,
        images: Tensor,
        num_samples: int = 1,
        eps: Tensor | None = None,
        generator: Generator | None = None,
        labels: Tensor | None = None,
        *,
        lean: bool = False,
    ) -> Tensor:
        """`-log_prob / (D ln 2)`, `[B]`: bits for each value of an image."""
        log_prob = self.log_prob(images, num_samples, eps, generator, labels, lean=lean)
        return -log_prob / (self.num_dims * math.log(2))

    @exact_float32()
    def log_density(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        """`log p(x) [B]` of continuous `x` in [-1, 1)."""
        self._require_initialized()
        require_floats("x", x, self.shape, self.dtype)
        require_within("x", x, -1, 1)
        self.check_labels(x, labels)
        self.require_undamaged()
        return self.require_finite(self._log_density(x, labels), "the likelihood")

    def _log_density(self, x: Tensor, labels: Tensor | None) -> Tensor:
        z, log_det = self.flow(x, self.condition(labels))
        return log_normal(z) + log_det

    def continuous(self, images: Tensor, u: Tensor | float) -> Tensor:
        """Images and noise as `x = 2 (level + u) / 2^n_bits - 1` in [-1, 1)."""
        return from_images(images, u, self.n_bits, self.dtype)

    # Pictures and latents

    @torch.no_grad()
    @exact_float32()
    def sample(
        self,
        count: int,
        temperature: float = 1.0,
        generator: Generator | None = None,
        labels: Tensor | None = None,
    ) -> Tensor:
        """New images, uint8 `[count, C, H, W]`.

        Temperature multiplies the prior's standard deviation; labels, if not given, take turns.
        Latents are drawn on the CPU, image by image, so pictures depend neither on the device nor
        on how many there are; after them those are drawn again that led to no image.
        """
        self._require_initialized()
        draw = latents_drawn(self.shape, count, temperature, generator)
        labels = self.labels_in_turn(range(count)) if labels is None else labels
        self.check_labels(range(count), labels)
        with self._inverting():
            _, x, _ = drawn_until_finite(
                count,
                draw,
                self.condition(labels),
                lambda z, cond: self.flow.inverse(z.to(self.device, self.dtype), cond),
            )
        return to_images(self.require_finite(x, "decoding"), self.n_bits)

    def sampler(self) -> Sampler:
        """A snapshot that draws faster: for many images, or again and again."""
        self._require_initialized()
        like = next(self.parameters(), self.initialized.to(self.dtype))
        with self._inverting():
            return Sampler(self.flow, self.label_map, self.shape, self.n_bits, like)

    @torch.no_grad()
    @exact_float32()
    def encode(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        """The latents of images, with the noise in the middle of its range (`u = 1/2`)."""
        self.require_images(images)
        self.check_labels(images, labels)
        self.require_undamaged()
        z, _ = self.flow(self.continuous(images, 0.5), self.condition(labels))
        return self.require_finite(z, "encoding")

    @torch.no_grad()
    @exact_float32()
    def decode(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        """The images of latents: `decode(encode(images))` gives the first n_bits of each value."""
        self._require_initialized()
        require_floats("z", z, self.shape, self.dtype)
        if not torch.isfinite(z).all():
            raise ValueError("z must be finite, got NaN or infinity")
        self.check_labels(z, labels)
        with self._inverting():
            cond = self.condition(labels)
            x = finite_or_plain(lambda: self.flow.inverse(z, cond))
        return to_images(self.require_finite(x, "decoding"), self.n_bits)

    def latent_levels(self) -> Tensor:
        """Which level of the flow owns each latent: integers `[C, H, W]`."""
        flow = self.flow.inner if isinstance(self.flow, Given) else self.flow
        if not isinstance(flow, MultiScale):
            raise ValueError(f"only a multi-scale flow has levels, not a {type(flow).__name__}")
        return flow.latent_levels(self.shape)

    # Labels

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of its labels; none if it is unconditional."""
        return () if self.label_map is None else self.label_map.names

    def given(self, label: str) -> "FlowModel":
        """The model of images with this label; it shares the weights."""
        if self.label_map is None:
            raise ValueError(f"the model knows no labels, so not {label!r} either")
        flow = Given(self.flow, self.label_map, self.label_map.number(label))
        model = FlowModel(flow, self.dequantizer, self.shape, self.n_bits).to(self.device)
        model._take_over(self)
        return model

    def condition(self, labels: Tensor | None) -> Tensor | None:
        """What the flow is given of labels `[B]`; None if it is unconditional."""
        return condition(self.label_map, labels, self.shape[1:])

    def labels_in_turn(self, numbers: Iterable[int]) -> Tensor | None:
        """The labels of images number so and so when all take turns; None if unconditional."""
        return None if self.label_map is None else self.label_map.in_turn(numbers)

    # Files

    def save_pretrained(self, folder: str | os.PathLike[str], *, bits: int = 32) -> None:
        """Writes a folder that `macow.load` reads: `config.json` and `model.safetensors`.

        The networks' convolutions, most of the weights, may be kept in 16 or 8 `bits`; 32 leaves
        them as they are. A `reference.json` that stands there was of other weights, and goes.
        """
        if bits not in (32, 16, 8):
            raise ValueError(f"bits must be 32, 16 or 8, got {bits}")
        if self.config is None:
            raise ValueError(
                "this model was not built from a config, so its folder could not be read back"
            )
        config = {"format": FORMAT, "macow": __version__, "model": asdict(self.config)}
        weights = self.state_dict()
        for path, part in self.named_modules(remove_duplicate=False):
            if isinstance(part, WeightNorm):
                weights[f"{path}.direction"] = part.kept(bits, path)
        write_model(Path(folder), config, weights)

    # What it is, and what it accepts

    @property
    def num_dims(self) -> int:
        """How many values an image has: `D = C H W`."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type the model computes in."""
        return next((p.dtype for p in self.parameters()), torch.get_default_dtype())

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.initialized.device

    def require_images(self, images: Tensor) -> None:
        """Raises unless the model is initialised and these are images for it."""
        self._require_initialized()
        require_image_batch(images, self.shape)

    def check_labels(self, x: Sized, labels: Tensor | None) -> None:
        """Raises unless these can be the labels of a batch."""
        if self.label_map is not None and labels is not None:
            self.label_map.check(labels, len(x))
