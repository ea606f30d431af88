"""Drawing images: a snapshot of a model that does nothing twice, and samples by seed and number."""

import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from macow.bijections.base import Bijection
from macow.bijections.maf import MaskedAutoregressive
from macow.capture import capture
from macow.dequantize import to_images
from macow.inputs import require_floats
from macow.nets.label_map import LabelMap, condition
from macow.nets.precision import exact_float32
from macow.ops.serving import finite_or_plain, in_plain_torch, missing
from macow.seeds import generator_for
from macow.snapshot import Undo, snapshot
from macow.weights import require_finite

Draw = Callable[[Sequence[int], int], Tensor]
"""`(places, attempt) -> latents` of the images at these places of a batch."""
ATTEMPTS = 8
"""How often latents are drawn for an image before it is a failure."""


class Sampler:
    """A model as it was when `model.sampler()` was called, ready to draw.

    Weight norms are folded and 1x1 convolutions inverted; on a GPU the pass is fused kernels,
    captured in a CUDA graph for the largest batch it has seen. Always float32 or wider, whatever
    autocast says. Later changes of the model do not reach it.
    """

    def __init__(
        self,
        flow: Bijection,
        label_map: LabelMap | None,
        shape: tuple[int, int, int],
        n_bits: int,
        like: Tensor,
    ) -> None:
        """`like` has the type and the device of the weights."""
        self.shape = shape
        self.n_bits = n_bits
        self.dtype, self.device = like.dtype, like.device
        self._undo = snapshot(flow)
        self._label_map = deepcopy(label_map)
        self._graph: _Graph | None = None
        # A map inverted value by value is too long a pass to be captured.
        self._too_long = any(isinstance(m, MaskedAutoregressive) for m in flow.modules())
        lacking = missing(self.device) if self.dtype == torch.float32 else f"{self.dtype}"
        self.backend = "kernels" if lacking is None else f"plain torch ({lacking})"
        """What it computes with, and why not with kernels."""
        self.drawn_again = 0
        """How many draws, so far, led to no image and were repeated."""

    @torch.no_grad()
    def sample(
        self,
        count: int,
        temperature: float = 1.0,
        generator: Generator | None = None,
        labels: Tensor | None = None,
    ) -> Tensor:
        """As `model.sample`: new images, uint8 `[count, C, H, W]`."""
        draw = latents_drawn(self.shape, count, temperature, generator)
        labels = self.labels_in_turn(range(count)) if labels is None else labels
        return self._whole(self._attempted(count, draw, labels)[0])

    @torch.no_grad()
    def numbered(self, numbers: Sequence[int], temperature: float = 1.0, seed: int = 0) -> Tensor:
        """Samples number so and so, uint8 `[n, C, H, W]`; labels take turns."""
        return self.numbered_with_latents(numbers, temperature, seed)[0]

    @torch.no_grad()
    def numbered_with_latents(
        self, numbers: Sequence[int], temperature: float = 1.0, seed: int = 0
    ) -> tuple[Tensor, Tensor]:
        """The same, and the latents that they are the images of."""
        x, z = self.attempted(numbers, temperature, seed)
        return self._whole(x), z

    @torch.no_grad()
    def attempted(
        self,
        numbers: Sequence[int],
        temperature: float = 1.0,
        seed: int = 0,
        labels: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The same as continuous images, not finite where no attempt has led to one."""

        def draw(places: Sequence[int], attempt: int) -> Tensor:
            return temperature * latents(self.shape, seed, [numbers[i] for i in places], attempt)

        labels = self.labels_in_turn(numbers) if labels is None else labels
        return self._attempted(len(numbers), draw, labels)

    @torch.no_grad()
    def decode(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        """As `model.decode`: the images of latents."""
        require_floats("z", z, self.shape, self.dtype)
        if not z.isfinite().all():
            raise ValueError("z must be finite, got NaN or infinity")
        return self._whole(self.invert(z, self._condition(labels, len(z))))

    @torch.no_grad()
    @exact_float32()
    def invert(self, z: Tensor, cond: Tensor | None = None) -> Tensor:
        """`flow.inverse(z, cond)`, the continuous image."""
        if z.device != self.device:
            raise ValueError(f"z must be on {self.device} like the model, got {z.device}")
        return finite_or_plain(lambda: self._invert(z, cond))

    def labels_in_turn(self, numbers: Iterable[int]) -> Tensor | None:
        """The labels of images number so and so when all take turns; None if unconditional."""
        return None if self._label_map is None else self._label_map.in_turn(numbers)

    @exact_float32()
    def _attempted(self, count: int, draw: Draw, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        cond = self._condition(labels, count)
        z, x, lost = drawn_until_finite(
            count, draw, cond, lambda z, cond: self._invert(z.to(self.device, self.dtype), cond)
        )
        self.drawn_again += lost
        return x, z

    def _whole(self, x: Tensor) -> Tensor:
        return to_images(require_finite(x, "decoding"), self.n_bits)

    def _invert(self, z: Tensor, cond: Tensor | None) -> Tensor:
        with torch.autocast(self.device.type, enabled=False):
            if self.device.type != "cuda":
                return self._undo(z, cond)
            with torch.cuda.device(self.device):
                return self._on_gpu(z, cond)

    def _on_gpu(self, z: Tensor, cond: Tensor | None) -> Tensor:
        """By the captured pass; a smaller batch, such as the last one, is filled up."""
        graph = self._graph
        if self._too_long or in_plain_torch():
            return self._undo(z, cond)
        if graph is None or len(graph.z) < len(z) or (graph.cond is None) != (cond is None):
            self._graph = None  # first: it holds memory
            self._graph = graph = _capture(self._undo, z, cond)
        elif len(z) < len(graph.z) // 2:
            return self._undo(z, cond)
        return graph.replay(z, cond)

    def _condition(self, labels: Tensor | None, count: int) -> Tensor | None:
        if self._label_map is not None and labels is not None:
            self._label_map.check(labels, count)
            labels = labels.to(self.device)
        return condition(self._label_map, labels, self.shape[1:])


class _Graph(NamedTuple):
    """A captured pass, with the memory it reads and writes."""

    graph: torch.cuda.CUDAGraph
    z: Tensor
    cond: Tensor | None
    x: Tensor

    def replay(self, z: Tensor, cond: Tensor | None) -> Tensor:
        """The pass for other latents."""
        count = len(z)
        self.z[:count] = z
        if self.cond is not None and cond is not None:
            self.cond[:count] = cond
        self.graph.replay()
        return self.x[:count].clone()


def _capture(undo: Undo, z: Tensor, cond: Tensor | None) -> _Graph:
    z, cond = z.clone(), None if cond is None else cond.clone()
    graph, x = capture(lambda: undo(z, cond), lambda: undo(z, cond), z.device)
    return _Graph(graph, z, cond, x)


def drawn_until_finite(
    count: int, draw: Draw, cond: Tensor | None, invert: Undo
) -> tuple[Tensor, Tensor, int]:
    """So many latents, their continuous images, and how many draws led to none and were repeated.

    Training looks at the latents of images and never back from others: a pass through rows of
    pixels can grow without bound where no image has led.
    """
    z = draw(range(count), 0)
    x, lost = invert(z, cond), 0
    for attempt in range(1, ATTEMPTS):
        places = (~x.isfinite().flatten(1).all(dim=1)).nonzero().flatten().tolist()
        if not places:
            break
        z[places] = draw(places, attempt)
        x[places] = invert(z[places], None if cond is None else cond[places])
        lost += len(places)
    return z, x, lost


def latents_drawn(
    shape: tuple[int, int, int], count: int, temperature: float, generator: Generator | None
) -> Draw:
    """From N(0, temperature^2), on the CPU, image by image."""
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature must be a number >= 0, got {temperature}")

    def draw(places: Sequence[int], _: int) -> Tensor:
        z = [torch.randn(shape, generator=generator, device="cpu") for _ in places]
        return temperature * torch.stack(z)

    return draw


def latents(
    shape: tuple[int, int, int], seed: int, numbers: Iterable[int], attempt: int = 0
) -> Tensor:
    """The standard normal latents of samples number so and so, `[n, C, H, W]`, on the CPU."""
    more = (attempt,) if attempt else ()
    return torch.stack(
        [
            torch.randn(shape, generator=generator_for(seed, "sample", n, *more), device="cpu")
            for n in numbers
        ]
    )
