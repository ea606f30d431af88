"""Work whose results are not needed soon, on a second stream beside what comes next.

The gradients of weights are such: the layers before wait for that of the input alone. Small kernels
leave most of a GPU idle, so two streams of them are faster than one.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor

from macow.ops.compiling import is_compiling

AT_ONCE = 3
"""So many pieces of work may be under way: what they read takes memory."""
_sides: dict[torch.cuda.Stream, "_Side"] = {}
"""By the stream that they are beside; gradients share it, though other threads compute them."""
T = TypeVar("T")


@contextmanager
def beside(device: torch.device) -> Iterator[None]:
    """Within it what is put aside need not be done before a `join`; at its end all of it is."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device):
        main = torch.cuda.current_stream()
        side = _sides[main] = _Side(main, _stream(device))
        try:
            yield
        finally:
            del _sides[main]
            side.join()


def aside(run: Callable[[], T], *read: Tensor | None) -> T:
    """What `run` computes of some tensors; whoever uses it calls `join` first."""
    side = _side()
    return run() if side is None or is_compiling() else side.start(run, read)


def join() -> None:
    """From here on what was put aside is done."""
    side = _side()
    if side is not None:
        side.join()


class Apart(torch.autograd.Function):
    """`unbind`, whose gradients may have been put aside."""

    @staticmethod
    def forward(ctx: Any, stack: Tensor) -> tuple[Tensor, ...]:
        """Views of its rows."""
        return stack.unbind()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Those of the rows, stacked when they are there."""
        join()
        return torch.stack(gradients)


def apart(stack: Tensor) -> tuple[Tensor, ...]:
    """The rows of a stack."""
    return Apart.apply(stack)  # type: ignore[no-untyped-call]


class _Side:
    def __init__(self, main: torch.cuda.Stream, stream: torch.cuda.Stream) -> None:
        self._main, self._stream = main, stream
        self._under_way: deque[tuple[torch.cuda.Event, tuple[Tensor | None, ...]]] = deque()

    def start(self, run: Callable[[], T], read: tuple[Tensor | None, ...]) -> T:
        self._stream.wait_stream(self._main)
        try:
            with torch.cuda.stream(self._stream):
                return run()
        finally:
            self._under_way.append((self._stream.record_event(), read))
            while len(self._under_way) > AT_ONCE:
                done, _ = self._under_way.popleft()  # whose memory may be used again
                self._main.wait_event(done)

    def join(self) -> None:
        if self._under_way:  # else a stream that is captured would wait for one that is not
            self._main.wait_stream(self._stream)
            self._under_way.clear()


def _side() -> _Side | None:
    return _sides.get(torch.cuda.current_stream()) if _sides else None


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
