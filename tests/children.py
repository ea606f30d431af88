"""Processes to be lost: forked from one that has imported everything and done nothing yet."""

import json
import os
import socket
import stat
import threading
import time
import traceback
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from tqdm import tqdm

from macow.bench.faults import Touches, forkserver
from macow.distribution import joined

FORKS = forkserver("small_runs", "children")


def run(function, *args, timeout=120, **kwargs):
    """The exit code of a function in a process of its own."""
    process = begin(function, *args, **kwargs)
    return end(process, timeout)


def begin(function, *args, said=None, **kwargs):
    """Starts a process; what it says goes into a file."""
    process = FORKS.Process(target=_main, args=(function, args, kwargs, said))
    process.start()
    return process


def end(process, timeout=120):
    process.join(timeout)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError("a child hangs")
    return process.exitcode


def _main(function, args, kwargs, said):
    if said is not None:
        with open(said, "wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
    torch.set_num_threads(1)
    tqdm.set_lock(threading.RLock())  # its own is shared by processes, and left over by killed ones
    os.fsync = lambda handle: None  # the machine stays up, so no test can tell; disks are slow
    try:
        function(*args, **kwargs)
    except Exception:
        traceback.print_exc()
        os._exit(1)


def touching(folder, log, at, function, *args, **options):
    """Runs a function with a fault at a touch of the folder's files; writes all touches down."""
    touches = Touches(folder, at, **options)
    touches.install()
    function(*args)
    Path(log).write_text(json.dumps(touches.log))


def together(count, function, *args, said=None, joins=False):
    """Starts a function in several processes that find each other as torchrun's do.

    It finds them joined, unless it joins them itself.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return [
        begin(
            _member, rank, count, port, joins, function, *args,
            said=None if said is None else f"{said}{rank}",
        )
        for rank in range(count)
    ]  # fmt: skip


def _member(rank, count, port, joins, function, *args):
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ["TORCHELASTIC_RUN_ID"] = "none"
    with nullcontext() if joins else joined("cpu"):
        function(*args)


def wait_for(condition, timeout=60):
    """Until something is so."""
    late = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < late, "waited in vain"
        time.sleep(0.01)


def require_open_checkout():
    """Skips where root would become a user who may not read this code, as below `mktemp -d`."""
    closed = [p for p in Path(__file__).resolve().parents if not p.stat().st_mode & stat.S_IXOTH]
    if os.getuid() == 0 and closed:
        pytest.skip(f"nobody but root may enter {closed[0]}")
