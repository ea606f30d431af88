"""Many processes as one: who this one is, and the few things they tell each other.

Started by `torchrun`, processes find each other by its environment; alone, everything here is free.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

Item = TypeVar("Item")
LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "gloo")
"""What torch says when a process is gone, where it has no class of error for it."""


@contextmanager
def joined(device: str | None = None) -> Iterator[str | None]:
    """Joins the processes torchrun started; gives this one's device."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield device
        return
    kind = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")).type
    if kind == "cuda":
        device = f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}"
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    lost = False
    try:
        yield device
    except RuntimeError as error:
        lost = isinstance(error, dist.DistError) or any(words in str(error) for words in LOST)
        if not lost:
            raise
        raise ConnectionError(
            "another process of this run has ended, or cannot be reached; "
            "the same command goes on from the newest checkpoint"
        ) from None
    finally:
        if not lost:  # torch would wait for who is gone
            dist.destroy_process_group()


def rank() -> int:
    """Which process this is; the first one speaks and writes."""
    return dist.get_rank() if dist.is_initialized() else 0


def count() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_launched() -> bool:
    """Whether torchrun started this process, and passes on the signals it gets."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_first() -> bool:
    """Whether this process speaks and writes."""
    return rank() == 0


def total(values: Tensor) -> Tensor:
    """The sum of a tensor over all processes."""
    if count() > 1:
        dist.all_reduce(values)
    return values


def largest(value: int, device: torch.device) -> int:
    """The largest of the processes' numbers."""
    if count() == 1:
        return value
    found = torch.tensor(value, device=device)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return int(found)


def gathered(mine: Any) -> list[Any]:
    """What every process has, first one first, known to all."""
    if count() == 1:
        return [mine]
    everyone: list[Any] = [None] * count()
    dist.all_gather_object(everyone, mine)
    return everyone


def wait() -> None:
    """Until all processes are here."""
    if count() > 1:
        dist.barrier()


def mine(items: Sequence[Item]) -> list[Item]:
    """Every so manieth of some items, starting with this process's own."""
    return list(items[rank() :: count()])


def in_order(parts: Sequence[Item]) -> list[Item]:
    """What the processes made of their own items, put back in the order of the items."""
    everyone = gathered(list(parts))
    longest = max(map(len, everyone))
    return [part[i] for i in range(longest) for part in everyone if i < len(part)]
