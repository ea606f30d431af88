"""What runs on a GPU, captured once as a CUDA graph."""

from collections.abc import Callable

import torch
from torch import Tensor


def capture(
    run: Callable[[], Tensor], warm_up: Callable[[], object], device: torch.device
) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """`run` as a graph, and where it writes its result; what it reads must stay where it is.

    `warm_up` comes before: it compiles and loads what cannot be captured.
    """
    with torch.cuda.device(device):
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            warm_up()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        mode = "thread_local"  # other threads may go on reading
        with torch.cuda.graph(graph, stream=stream, capture_error_mode=mode):
            result = run()
    return graph, result
