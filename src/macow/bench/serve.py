"""What a page waits for, and what the server of `macow serve` makes of a crowd."""

import http.client
import io
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from macow import data
from macow.pictures import picture

PICTURES = 64
CLIENTS = 50
PATIENCE = 60.0
Wish = tuple[str, bytes]


@dataclass
class Served:
    """What some clients got for their requests, one after the other without a pause."""

    clients: int
    outcomes: Counter[str] = field(default_factory=Counter)
    """`answered`, `busy` or `error`."""
    waited: list[float] = field(default_factory=list)
    """Seconds until the last byte of an answer."""
    turned_away: list[float] = field(default_factory=list)
    """Seconds until "busy"."""
    memory: tuple[int, int] = (0, 0)
    """Bytes the server holds before and after."""

    def median(self) -> float:
        """Of the seconds until an answer."""
        return median(self.waited)


def measure(repeats: int = 7, device: str = "cpu") -> tuple[Served, Served]:
    """One client that moves the slider, and fifty that want everything at once."""
    with _server(device) as (port, process):
        slider = [_samples(PICTURES, 0.5 + 0.01 * (i % 50)) for i in range(repeats)]
        _crowd(port, [slider])  # the first answers take longer
        alone = _crowd(port, [slider])
        _crowd(port, [_mixed(repeats)] * CLIENTS)
        before = _memory(process.pid)
        crowd = _crowd(port, [_mixed(repeats)] * CLIENTS)
        crowd.memory = (before, _memory(process.pid))
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
    return alone, crowd


@contextmanager
def _server(device: str) -> Iterator[tuple[int, "subprocess.Popen[str]"]]:
    command = [sys.executable, "-m", "macow", "serve", "digits", "--port", "0", "--device", device]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            yield int(said.partition(";")[0].rpartition(":")[2]), process
        finally:
            process.terminate()


def _crowd(port: int, wishes: Sequence[Sequence[Wish]]) -> Served:
    """A client for each list of wishes, all at once."""
    found = Served(len(wishes))
    lock, together = threading.Lock(), threading.Barrier(len(wishes))

    def client(mine: Sequence[Wish]) -> None:
        together.wait()
        for path, content in mine:
            began = time.perf_counter()
            outcome = _ask(port, path, content)
            seconds = time.perf_counter() - began
            with lock:
                found.outcomes[outcome] += 1
                if outcome == "answered":
                    found.waited.append(seconds)
                elif outcome == "busy":
                    found.turned_away.append(seconds)

    threads = [threading.Thread(target=client, args=(mine,)) for mine in wishes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _ask(port: int, path: str, content: bytes) -> str:
    """`answered` if all of the answer came, without a word of an error."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("POST", path, content)
        answer = connection.getresponse()
        lines = [json.loads(line) for line in answer.read().splitlines()]
        if answer.status == 503 and lines[0]["error"].startswith("busy"):
            return "busy"
        whole = answer.status == 200 and lines and not any("error" in line for line in lines)
        return "answered" if whole else "error"
    except (OSError, http.client.HTTPException, ValueError):
        return "error"
    finally:
        connection.close()


def _samples(count: int, temperature: float) -> Wish:
    wish = {"count": count, "temperature": temperature}
    return "/api/samples", json.dumps(wish).encode()


def _mixed(repeats: int) -> list[Wish]:
    """Every kind of request in turn."""
    file = io.BytesIO()
    picture(data.load("digits", "test").take(np.arange(1))[0]).save(file, "png")
    kinds = [
        _samples(PICTURES, 0.8),
        ("/api/score", file.getvalue()),
        ("/api/between", b"{}"),
        ("/api/levels", b"{}"),
        ("/api/fields", b"{}"),
        ("/api/image", file.getvalue()),
    ]
    return [kinds[i % len(kinds)] for i in range(repeats)]


def _memory(pid: int) -> int:
    """The bytes of memory a process holds; 0 where the system does not tell."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
