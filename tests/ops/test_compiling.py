"""Kernels that are compiled before they are launched, each once, many at a time."""

import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from macow.ops import compiling
from macow.ops.compiling import is_compiling, launch


class Kernel:
    """Counts; a real one is compiled by `warmup` and launched by `kernel[grid](...)`."""

    params = (SimpleNamespace(do_not_specialize=False), SimpleNamespace(do_not_specialize=True))

    def __init__(self):
        self.compiled, self.launched, self.problem = [], [], None
        self.both = None

    def __getitem__(self, grid):
        return lambda *arguments, **options: self.launched.append((grid, arguments, options))

    def warmup(self, *arguments, grid, **options):
        if self.both is not None:
            self.both.wait(timeout=10)
        if self.problem is not None:
            raise self.problem
        self.compiled.append((arguments, options))


class Stream:
    device = "cuda:0"


@pytest.fixture
def stream(monkeypatch):
    now = Stream()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: now)

    @contextmanager
    def device(_):
        yield

    monkeypatch.setattr(torch.cuda, "device", device)
    return now


def test_a_kind_of_arguments_is_compiled_once(stream):
    kernel, x = Kernel(), torch.zeros(3)
    with compiling.compiling(stream):
        assert is_compiling()
        for number in (5, 7, 16):  # a number that is not specialised is all the same
            launch(kernel, (2,), x, number, BLOCK=8)
        launch(kernel, (2,), x.double(), 5, BLOCK=8)
        launch(kernel, (2,), x, 5, BLOCK=16)
    assert kernel.launched == []
    assert sorted((str(a[0]), o["BLOCK"]) for a, o in kernel.compiled) == [
        ("torch.float32", 8),
        ("torch.float32", 16),
        ("torch.float64", 8),
    ]
    launch(kernel, (2,), x, 5, BLOCK=8)
    assert len(kernel.launched) == 1


def test_compilers_work_side_by_side(stream, monkeypatch):
    monkeypatch.setattr(compiling.os, "cpu_count", lambda: 2)
    kernel = Kernel()
    kernel.both = threading.Barrier(2)  # one alone would wait in vain
    with compiling.compiling(stream):
        launch(kernel, (1,), torch.zeros(1), 1)
        launch(kernel, (1,), torch.zeros(1).double(), 1)
    assert len(kernel.compiled) == 2


def test_what_does_not_compile_is_said(stream):
    kernel = Kernel()
    kernel.problem = RuntimeError("out of resources")
    with pytest.raises(RuntimeError, match="out of resources"), compiling.compiling(stream):
        launch(kernel, (1,), torch.zeros(1), 1)
    assert not is_compiling()


def test_other_streams_are_not_affected(stream, monkeypatch):
    kernel = Kernel()
    with compiling.compiling(stream):
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: "another")
        launch(kernel, (1,), torch.zeros(1), 1)
    assert len(kernel.launched) == 1
