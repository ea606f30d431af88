"""One update of the weights: loss, gradients, clip, Adam, average."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim.swa_utils import AveragedModel

from macow import distribution
from macow.capture import capture, on_its_way
from macow.config import TrainConfig
from macow.model import FlowModel
from macow.ops.aside import beside
from macow.plan import Plans
from macow.train.flat import Flat
from macow.train.optimiser import Average
from macow.volume import Determinants


class Update:
    """Changes a model's weights by a batch.

    One process with one GPU captures the whole update and replays it: to launch its thousands of
    kernels one by one would take longer than they do.
    """

    def __init__(
        self,
        model: FlowModel,
        optimizer: torch.optim.Adam,
        average: AveragedModel | None,
        config: TrainConfig,
    ) -> None:
        self.model, self.optimizer, self.average, self.config = model, optimizer, average, config
        self.wrapped: nn.Module = model
        if distribution.count() > 1:
            self.wrapped = DistributedDataParallel(model)
            # A 1x1 convolution's gradient lies in memory as its weight does, whatever the strides
            # of its sides of length one; torch warns of these.
            warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
        on_gpu = model.device.type == "cuda"
        alone = distribution.count() == 1 and config.batch_steps == 1
        self._plans = Plans(model) if on_gpu else None
        self._determinants = Determinants(model) if on_gpu else None
        self._flat = Flat(model, optimizer, average) if on_gpu and alone else None
        self._captured = None if self._flat is None else _Captured(self._pass)
        self._seen = 0 if average is None else int(average.n_averaged)
        self._measure()

    def __call__(
        self, images: Tensor, draws: Sequence[Tensor], labels: Tensor | None, rate: float
    ) -> Callable[[], tuple[float, float]]:
        """Starts an update; what it gives back waits for mean bits/dim and the gradients' norm.

        If one of them is not finite, nothing has changed.
        """
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        found = None
        if self._captured is not None:
            given = [images, self._kept(), *([] if labels is None else [labels]), *draws]
            found = self._replayed(self._captured, given)
        if found is None:
            figures = self._step_by_step(images, draws, labels)
            self._measure()
            return lambda: figures
        read = on_its_way(found)
        self._measure()

        def finish() -> tuple[float, float]:
            bits, norm = read()
            if self.average is not None and math.isfinite(bits) and math.isfinite(norm):
                self._seen += 1
                self.average.n_averaged.fill_(self._seen)
            return bits, norm

        return finish

    def _measure(self) -> None:
        """Takes the determinants that the next update needs."""
        if self._determinants is not None:
            self._determinants.take()

    def _replayed(self, captured: _Captured, given: list[Tensor]) -> Tensor | None:
        """None if there is something in the model that no graph can hold."""
        try:
            return captured(given)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            cause: BaseException = error
            while cause.__context__ is not None:  # what ends a capture ends in several errors
                cause = cause.__context__
            if captured.ready or isinstance(cause, torch.OutOfMemoryError):
                raise
            reason = str(cause).partition("\n")[0]
            warnings.warn(f"updates are not captured, so they are slow: {reason}", stacklevel=2)
            self._captured = None
            return None

    def _step_by_step(
        self, images: Tensor, draws: Sequence[Tensor], labels: Tensor | None
    ) -> tuple[float, float]:
        self.optimizer.zero_grad(set_to_none=True)
        bits = images.new_zeros((), dtype=torch.float32)
        size = -(-len(images) // self.config.batch_steps)
        parts = [slice(start, start + size) for start in range(0, len(images), size)]
        for part in parts:
            # Gradients of processes are averaged, so each counts for its share of the batch.
            with self._synced(last=part is parts[-1]):
                bits += self._add_gradients(
                    images[part],
                    [draw[part] for draw in draws],
                    None if labels is None else labels[part],
                    len(images),
                )
        bits = distribution.total(bits) / distribution.count()
        norm = self._norm()
        figures = bits.item(), norm.item()
        if all(map(math.isfinite, figures)):
            clip = self.config.clip or math.inf
            clip_grads_with_norm_(self.model.parameters(), clip, norm)
            self.optimizer.step()
            if self.average is not None:
                self.average.update_parameters(self.model)
        return figures

    def _pass(self, given: list[Tensor], *, learn: bool) -> Tensor:
        """The same without a look at values, as a capture needs it: `[bits, norm]`."""
        assert self._flat is not None
        images, kept, *more = given
        labels = more.pop(0) if self.model.labels else None
        self.optimizer.zero_grad(set_to_none=True)
        bits = self._add_gradients(images, more, labels, len(images))
        gradients = self._flat.gradients()
        norm = torch.linalg.vector_norm(gradients)
        if learn:
            finite = bits.isfinite() & norm.isfinite()
            scale = ((norm + 1e-6) / (self.config.clip or math.inf)).clamp(min=1)
            self._flat.step(gradients, scale, ~finite)
            self._flat.average(torch.where(finite, kept, 1.0))
        return torch.stack([bits, norm])

    def _add_gradients(
        self, images: Tensor, draws: Sequence[Tensor], labels: Tensor | None, count: int
    ) -> Tensor:
        """Those of bits/dim, summed over images and divided by `count`: this loss is returned."""
        eps, *more = draws
        with self._planned():
            log_prob = self.wrapped(
                images, eps=eps, more_eps=torch.stack(more) if more else None, labels=labels
            )
            loss = -log_prob.sum() / (count * self.model.num_dims * math.log(2))
            with beside(loss.device):
                loss.backward()
        return loss.detach()

    def _planned(self) -> AbstractContextManager[None]:
        if self._plans is None:
            return nullcontext()
        return self._plans.in_use(getattr(torch, self.config.precision))

    def _norm(self) -> Tensor:
        return get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])

    def _kept(self) -> Tensor:
        """How much of the average this update leaves; the first one nothing."""
        kept = Average(self.config.ema).kept(self._seen) if self._seen else 0.0
        return torch.full((), kept, device=self.model.device)

    def _synced(self, *, last: bool) -> AbstractContextManager[None]:
        """Processes exchange gradients once an update, in its last pass."""
        if last or not isinstance(self.wrapped, DistributedDataParallel):
            return nullcontext()
        return self.wrapped.no_sync()


class _Captured:
    """A function of tensors of one shape, captured at its first call and replayed since."""

    def __init__(self, run: Callable[..., Tensor]) -> None:
        self._run = run
        self._graph: torch.cuda.CUDAGraph | None = None
        self._given: list[Tensor] = []
        self._result = torch.zeros(())

    @property
    def ready(self) -> bool:
        """Whether there is a graph."""
        return self._graph is not None

    def __call__(self, given: list[Tensor]) -> Tensor:
        device = given[0].device
        if self._graph is None:
            self._given = [tensor.clone() for tensor in given]
            self._graph, self._result = capture(
                lambda: self._run(self._given, learn=True),
                lambda: self._run(self._given, learn=False),
                device,
            )
        with torch.cuda.device(device):
            torch._foreach_copy_(self._given, given)
            self._graph.replay()
        return self._result.clone()
