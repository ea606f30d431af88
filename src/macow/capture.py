"""What runs on a GPU, captured once as a CUDA graph."""

from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor

from macow.ops.compiling import compiling


def capture(
    run: Callable[[], Tensor], warm_up: Callable[[], object], device: torch.device
) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """`run` as a graph, and where it writes its result; what it reads must stay where it is.

    `warm_up` comes before, twice: to compile what it launches, when its numbers mean nothing and no
    complaint about them counts, and to load what cannot be captured.
    """
    with torch.cuda.device(device):
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            with compiling(stream), suppress(Exception):
                warm_up()
            warm_up()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        mode = "thread_local"  # other threads may go on reading
        with torch.cuda.graph(graph, stream=stream, capture_error_mode=mode):
            result = run()
    return graph, result


def on_its_way(tensor: Tensor) -> Callable[[], list[float]]:
    """Starts to fetch numbers from a GPU; what is given back waits for them, and for nothing else.

    What is launched in between does not keep them.
    """
    if not tensor.is_cuda:
        return tensor.tolist
    with torch.cuda.device(tensor.device):
        here = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        here.copy_(tensor, non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record()

    def read() -> list[float]:
        arrived.synchronize()
        return here.tolist()

    return read
