"""The model: a dequantizer, a flow and a standard normal prior, with uint8 images at the edges."""

import json
import math
import os
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Generator, Tensor, nn

from macow._version import __version__
from macow.bijections.base import Bijection
from macow.bijections.multiscale import MultiScale
from macow.dequantize import Dequantizer, UniformDequantizer, log_normal, quantize
from macow.nets.precision import exact_float32

if TYPE_CHECKING:
    from macow.config import ModelConfig

FORMAT = 1
"""The format of exported folders; `macow.load` reads this one and all before it."""


class FlowModel(nn.Module):
    """An exact likelihood of images, and a sampler of them.

    `images` are uint8 `[B, C, H, W]`; likelihoods are in nats, `[B]`; `z` has the images' shape.
    """

    initialized: Tensor

    def __init__(
        self,
        flow: Bijection,
        dequantizer: Dequantizer,
        shape: tuple[int, int, int],
        n_bits: int = 8,
        config: "ModelConfig | None" = None,
    ) -> None:
        super().__init__()
        if not 1 <= n_bits <= 8:
            raise ValueError(f"n_bits must be from 1 to 8, got {n_bits}")
        self.flow = flow
        self.dequantizer = dequantizer
        self.shape = shape
        self.n_bits = n_bits
        self.config = config
        self.register_buffer("initialized", torch.tensor(data=False))
        self._is_initialized = False  # the buffer's value, known without asking the device
        self._was_damaged = False
        self.register_load_state_dict_post_hook(_look_at_weights)  # type: ignore[no-untyped-call]

    # Likelihoods

    def forward(
        self,
        images: Tensor,
        num_samples: int = 1,
        eps: Tensor | None = None,
        generator: Generator | None = None,
        more_eps: Tensor | None = None,
    ) -> Tensor:
        """`log_prob` without a look at values: what training, DDP and compilation wrap.

        `more_eps [k, B, C, H, W]` are draws that do not go through the flow: their log q and the
        first one's are averaged, a cheaper way to a calmer bound.
        """
        self.require_images(images)
        if num_samples < 1:
            raise ValueError(f"num_samples must be at least 1, got {num_samples}")
        if eps is not None:
            self._check_eps(images, num_samples, eps)
            eps = eps.view(num_samples, *images.shape)
        log_probs = []
        for i in range(num_samples):
            noise = eps[i] if eps is not None else self.draw_noise(images, generator)
            log_p, log_q = self.log_terms(images, noise)
            if more_eps is not None:
                others = [self.dequantizer(images, one)[1] for one in more_eps]
                log_q = torch.stack([log_q, *others]).mean(dim=0)
            log_probs.append(log_p - log_q)
        return torch.logsumexp(torch.stack(log_probs), dim=0) - math.log(num_samples)

    def draw_noise(self, images: Tensor, generator: Generator | None = None) -> Tensor:
        """Fresh `eps` for images, in the model's type."""
        return self.dequantizer.draw(images, generator).to(self.dtype)

    def log_terms(self, images: Tensor, eps: Tensor) -> tuple[Tensor, Tensor]:
        """For one draw of noise, `log p(image, u)` and `log q(u)`, nats `[B]`; a bound is p - q."""
        u, log_q = self.dequantizer(images, eps)
        volume = self.num_dims * (self.n_bits - 1) * math.log(2)  # levels are 2^(1 - n_bits) apart
        return self._log_density(self.continuous(images, u)) - volume, log_q

    @exact_float32()
    def log_prob(
        self,
        images: Tensor,
        num_samples: int = 1,
        eps: Tensor | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        """`log P(image) [B]`, estimated from below by `num_samples` draws of the noise.

        `log p(x) - log q(u) - D (n_bits - 1) ln 2`; more than one sample are importance-weighted:
        `logmeanexp` over the samples. `eps [B, C, H, W]` (`[num_samples, B, C, H, W]` if several)
        replaces the draws: u itself for a uniform dequantizer, N(0, 1) for a variational one. A
        `generator` is a CPU generator.
        """
        if eps is not None and isinstance(self.dequantizer, UniformDequantizer):
            _check_within("eps", eps, 0, 1)
        elif eps is not None and not eps.isfinite().all():
            raise ValueError("eps must be finite, got NaN or infinity")
        self._require_undamaged()
        return self.require_finite(self(images, num_samples, eps, generator), "the likelihood")

    def bits_per_dim(
        self,
        images: Tensor,
        num_samples: int = 1,
        eps: Tensor | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        """`-log_prob / (D ln 2)`, `[B]`: bits for each value of an image."""
        log_prob = self.log_prob(images, num_samples, eps, generator)
        return -log_prob / (self.num_dims * math.log(2))

    @exact_float32()
    def log_density(self, x: Tensor) -> Tensor:
        """`log p(x) [B]` of continuous `x` in [-1, 1)."""
        self._require_initialized()
        self._check_float("x", x)
        _check_within("x", x, -1, 1)
        self._require_undamaged()
        return self.require_finite(self._log_density(x), "the likelihood")

    def _log_density(self, x: Tensor) -> Tensor:
        z, log_det = self.flow(x)
        return log_normal(z) + log_det

    def continuous(self, images: Tensor, u: Tensor | float) -> Tensor:
        """Images and noise as `x = 2 (level + u) / 2^n_bits - 1` in [-1, 1)."""
        levels = quantize(images, self.n_bits).to(self.dtype)
        edge = 2 * (levels + 1) / 2**self.n_bits - 1
        x = 2 * (levels + u) / 2**self.n_bits - 1
        return torch.minimum(x, torch.nextafter(edge, -edge.new_ones(())))  # rounding may reach it

    # Pictures and latents

    @torch.no_grad()
    def sample(
        self, count: int, temperature: float = 1.0, generator: Generator | None = None
    ) -> Tensor:
        """New images, uint8 `[count, C, H, W]`.

        Temperature multiplies the prior's standard deviation.
        Latents are drawn on the CPU, image by image, so that pictures depend neither on the device
        nor on how many are drawn at once.
        """
        if count < 1:
            raise ValueError(f"count must be at least 1, got {count}")
        if not 0 <= temperature < math.inf:
            raise ValueError(f"temperature must be a number >= 0, got {temperature}")
        z = [torch.randn(self.shape, generator=generator, device="cpu") for _ in range(count)]
        return self.decode(temperature * torch.stack(z).to(self.device, self.dtype))

    @torch.no_grad()
    @exact_float32()
    def encode(self, images: Tensor) -> Tensor:
        """The latents of images, with the noise in the middle of its range (`u = 1/2`)."""
        self.require_images(images)
        self._require_undamaged()
        return self.require_finite(self.flow(self.continuous(images, 0.5))[0], "encoding")

    @torch.no_grad()
    @exact_float32()
    def decode(self, z: Tensor) -> Tensor:
        """The images of latents: `decode(encode(images))` gives the first n_bits of each value."""
        self._require_initialized()
        self._check_float("z", z)
        if not torch.isfinite(z).all():
            raise ValueError("z must be finite, got NaN or infinity")
        self._require_undamaged()
        try:
            x = self.require_finite(self.flow.inverse(z), "decoding")
        except torch.linalg.LinAlgError as error:
            self._require_finite_weights()
            raise FloatingPointError(f"the model cannot be inverted: {error}") from None
        levels = ((x + 1) / 2 * 2**self.n_bits).floor().clamp(0, 2**self.n_bits - 1)
        return levels.to(torch.uint8) << (8 - self.n_bits)

    def latent_levels(self) -> Tensor:
        """Which level of the flow owns each latent: integers `[C, H, W]`."""
        if not isinstance(self.flow, MultiScale):
            raise ValueError(
                f"only a multi-scale flow has levels, not a {type(self.flow).__name__}"
            )
        return self.flow.latent_levels(self.shape)

    # Files

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes a folder that `macow.load` reads: `config.json` and `model.safetensors`."""
        if self.config is None:
            raise ValueError(
                "this model was not built from a config, so its folder could not be read back"
            )
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        config = {"format": FORMAT, "macow": __version__, "model": asdict(self.config)}
        weights = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        try:
            save_file(weights, folder / "model.safetensors.part", metadata=checksums(weights))
        except SafetensorError as error:
            raise OSError(f"{folder / 'model.safetensors'} cannot be written: {error}") from None
        (folder / "config.json.part").write_text(json.dumps(config, indent=2) + "\n")
        for name in ("model.safetensors", "config.json"):
            os.replace(folder / f"{name}.part", folder / name)

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

    @property
    def is_initialized(self) -> bool:
        """Whether the first batch has been seen, or weights were loaded."""
        if not self._is_initialized:  # asking the buffer waits for the device: only until it is so
            self._is_initialized = bool(self.initialized)
        return self._is_initialized

    @is_initialized.setter
    def is_initialized(self, value: bool) -> None:
        self.initialized.fill_(value)
        self._is_initialized = value

    def require_images(self, images: Tensor) -> None:
        """Raises unless the model is initialised and these are images for it."""
        self._require_initialized()
        self._check_images(images)

    def require_finite(self, values: Tensor, what: str) -> Tensor:
        """Gives back likelihoods, latents or images `[B, ...]` if they are all numbers."""
        wrong = ~values.detach().reshape(len(values), -1).isfinite()
        if wrong.any():
            self._require_finite_weights()
            count = int(wrong.any(dim=1).sum())
            raise FloatingPointError(
                f"{what} of {count} of {len(values)} images gave NaN or infinity: they lie beyond "
                "what the model can compute, or it is damaged (`macow check` says)"
            )
        return values

    def _require_finite_weights(self) -> None:
        bad = [name for name, weight in self.named_parameters() if not weight.isfinite().all()]
        if bad:
            raise FloatingPointError(f"{len(bad)} weights are not finite, {bad[0]} first")

    def _require_undamaged(self) -> None:
        """Infinite weights can vanish on the way and give images that look like images."""
        if self._was_damaged:
            self._require_finite_weights()

    def _require_initialized(self) -> None:
        if not self.is_initialized:
            raise RuntimeError(
                "the model is not initialised: run `with macow.initializing(model): model(images)` "
                "on a batch of training images, or load weights"
            )

    def _check_images(self, images: Tensor) -> None:
        if not isinstance(images, Tensor) or images.dtype != torch.uint8:
            found = images.dtype if isinstance(images, Tensor) else type(images).__name__
            raise ValueError(f"images must be a uint8 tensor from 0 to 255, got {found}")
        self._check_shape("images", images)

    def _check_float(self, name: str, x: Tensor) -> None:
        if x.dtype != self.dtype:
            raise ValueError(f"{name} must be {self.dtype} like the model, got {x.dtype}")
        self._check_shape(name, x)

    def _check_shape(self, name: str, x: Tensor) -> None:
        wanted = "x".join(map(str, self.shape))
        if x.dim() != 4 or tuple(x.shape[1:]) != self.shape:
            raise ValueError(
                f"{name} must be [B, C, H, W] with {wanted} values each, got shape {list(x.shape)}"
            )
        if x.shape[0] == 0:
            raise ValueError(f"{name} must hold at least one image of {wanted}, got an empty batch")

    def _check_eps(self, images: Tensor, num_samples: int, eps: Tensor) -> None:
        shape = images.shape if num_samples == 1 else (num_samples, *images.shape)
        if eps.shape != shape or eps.dtype != self.dtype:
            raise ValueError(
                f"eps must be {self.dtype} of shape {list(shape)} for {num_samples} sample(s), "
                f"got {eps.dtype} of shape {list(eps.shape)}"
            )


def checksums(weights: dict[str, Tensor]) -> dict[str, str]:
    """What a file of weights says of each of them, so that one flipped bit is found and named."""
    return {
        f"crc32 {name}": f"{zlib.crc32(weight.cpu().flatten().view(torch.uint8).numpy().data):08x}"
        for name, weight in weights.items()
    }


def _look_at_weights(model: nn.Module, _: object) -> None:
    assert isinstance(model, FlowModel)
    model._is_initialized = bool(model.initialized)
    model._was_damaged = not all(weight.isfinite().all() for weight in model.parameters())


def _check_within(name: str, x: Tensor, low: float, high: float) -> None:
    if not ((x >= low) & (x < high)).all():  # so it is for NaN
        found = "NaN" if x.isnan().any() else f"values from {x.min():.6g} to {x.max():.6g}"
        raise ValueError(f"{name} must lie in [{low}, {high}), got {found}")
