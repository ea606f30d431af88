"""Drawing images: a snapshot of a model that does nothing twice, and samples by seed and number."""

import math
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from macow.bijections.base import Bijection
from macow.dequantize import to_images
from macow.inputs import require_floats
from macow.nets.label_map import LabelMap
from macow.nets.precision import exact_float32
from macow.ops.serving import missing
from macow.seeds import generator_for
from macow.snapshot import Undo, snapshot
from macow.weights import require_finite


class Sampler:
    """A model as it was when `model.sampler()` was called, ready to draw.

    Weight norms are folded and 1x1 convolutions inverted; on a GPU the pass is fused kernels,
    captured in a CUDA graph for each size of batch it has seen. Always float32 or wider, whatever
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
        self._graphs: dict[int, _Graph] = {}
        lacking = missing(self.device) if self.dtype == torch.float32 else f"{self.dtype}"
        self.backend = "kernels" if lacking is None else f"plain torch ({lacking})"
        """What it computes with, and why not with kernels."""

    @torch.no_grad()
    def sample(
        self,
        count: int,
        temperature: float = 1.0,
        generator: Generator | None = None,
        labels: Tensor | None = None,
    ) -> Tensor:
        """As `model.sample`: new images, uint8 `[count, C, H, W]`."""
        z = draw_latents(self.shape, count, temperature, generator)
        labels = self.labels_in_turn(range(count)) if labels is None else labels
        return self.decode(z.to(self.device, self.dtype), labels)

    @torch.no_grad()
    def decode(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        """As `model.decode`: the images of latents."""
        require_floats("z", z, self.shape, self.dtype)
        if not z.isfinite().all():
            raise ValueError("z must be finite, got NaN or infinity")
        x = self.invert(z, self._condition(labels, len(z)))
        return to_images(require_finite(x, "decoding"), self.n_bits)

    @torch.no_grad()
    @exact_float32()
    def invert(self, z: Tensor, cond: Tensor | None = None) -> Tensor:
        """`flow.inverse(z, cond)`, the continuous image."""
        with torch.autocast(self.device.type, enabled=False):
            if self.device.type != "cuda":
                return self._undo(z, cond)
            if len(z) not in self._graphs:
                self._graphs = {len(z): _capture(self._undo, z, cond)}  # one: they hold memory
            return self._graphs[len(z)].replay(z, cond)

    def labels_in_turn(self, numbers: Iterable[int]) -> Tensor | None:
        """The labels of images number so and so when all take turns; None if unconditional."""
        return None if self._label_map is None else self._label_map.in_turn(numbers)

    def _condition(self, labels: Tensor | None, count: int) -> Tensor | None:
        if (self._label_map is None) != (labels is None):
            what = "knows no labels" if labels is not None else "is conditional: which label?"
            raise ValueError(f"the model {what}")
        if self._label_map is None or labels is None:
            return None
        self._label_map.check(labels, count)
        return self._label_map(labels.to(self.device), self.shape[1:]).contiguous()


class _Graph(NamedTuple):
    """A captured pass, with the memory it reads and writes."""

    graph: torch.cuda.CUDAGraph
    z: Tensor
    cond: Tensor | None
    x: Tensor

    def replay(self, z: Tensor, cond: Tensor | None) -> Tensor:
        """The pass for other latents."""
        self.z.copy_(z)
        if self.cond is not None and cond is not None:
            self.cond.copy_(cond)
        self.graph.replay()
        return self.x.clone()


def _capture(undo: Undo, z: Tensor, cond: Tensor | None) -> _Graph:
    z, cond = z.clone(), None if cond is None else cond.clone()
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        undo(z, cond)  # compiles and loads what the pass needs, which cannot be captured
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x = undo(z, cond)
    return _Graph(graph, z, cond, x)


def draw_latents(
    shape: tuple[int, int, int], count: int, temperature: float, generator: Generator | None
) -> Tensor:
    """`[count, C, H, W]` of N(0, temperature^2), on the CPU, image by image."""
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature must be a number >= 0, got {temperature}")
    z = [torch.randn(shape, generator=generator, device="cpu") for _ in range(count)]
    return temperature * torch.stack(z)


def latents(shape: tuple[int, int, int], seed: int, numbers: Iterable[int]) -> Tensor:
    """The standard normal latents of samples number so and so, `[n, C, H, W]`, on the CPU."""
    return torch.stack(
        [
            torch.randn(shape, generator=generator_for(seed, "sample", n), device="cpu")
            for n in numbers
        ]
    )


def draw(
    sampler: Sampler, numbers: Sequence[int], *, temperature: float = 1.0, seed: int = 0
) -> Tensor:
    """Samples number so and so, uint8 `[n, C, H, W]` on the CPU; labels take turns."""
    z = latents(sampler.shape, seed, numbers).to(sampler.device, sampler.dtype)
    return sampler.decode(temperature * z, sampler.labels_in_turn(numbers)).cpu()
