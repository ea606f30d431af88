"""Kernels are launched here, or compiled all at once before they are."""

import os
from collections.abc import Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_compilers: dict[torch.cuda.Stream, "_Compiler"] = {}
"""By stream, which gradients share with what they are of, though other threads launch them."""


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Runs a kernel on the current stream."""
    if is_compiling():
        _compilers[torch.cuda.current_stream()].add(kernel, grid, arguments, options)
    else:
        kernel[grid](*arguments, **options)


def is_compiling() -> bool:
    """Whether kernels on the current stream are compiled only."""
    return bool(_compilers) and torch.cuda.current_stream() in _compilers


@contextmanager
def compiling(stream: torch.cuda.Stream) -> Iterator[None]:
    """Within it kernels on a stream are not run but compiled, as many at once as there are cores.

    What they would write is left as it is, so what is computed means nothing. A model has a hundred
    kernels of a second each: one after the other they are a long wait.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compiler = _compilers[stream] = _Compiler(pool, stream.device)
        try:
            yield
        finally:
            del _compilers[stream]
        compiler.wait()


class _Compiler:
    """Compiles each kernel once for each kind of arguments."""

    def __init__(self, pool: ThreadPoolExecutor, device: torch.device) -> None:
        self._pool, self._device = pool, device
        self._found: dict[Hashable, Future[Any]] = {}

    def add(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> None:
        # A type stands for a tensor, whose memory must not wait for a compiler.
        given = [a.dtype if isinstance(a, Tensor) else a for a in arguments]
        key = (kernel, *map(_kind, kernel.params, given), *options.items())
        if key not in self._found:
            self._found[key] = self._pool.submit(self._compile, kernel, grid, given, options)

    def wait(self) -> None:
        """Until all are there; raises what one of them did."""
        for compiled in self._found.values():
            compiled.result()

    def _compile(
        self, kernel: Any, grid: tuple[int, ...], given: list[Any], options: dict[str, Any]
    ) -> Any:
        with torch.cuda.device(self._device):
            return kernel.warmup(*given, grid=grid, **options)


def _kind(parameter: Any, argument: Any) -> Hashable:
    """What a compiler makes of an argument: of a number, whether it is 1 or divides by 16."""
    if isinstance(argument, torch.dtype):
        return argument
    return not parameter.do_not_specialize and (argument == 1, argument % 16 == 0)
