"""How long something takes."""

import time
from collections.abc import Callable

import torch


def seconds(run: Callable[[], object], device: str) -> float:
    """Of one call, with all that a GPU has still to do."""
    _wait(device)
    start = time.perf_counter()
    run()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
