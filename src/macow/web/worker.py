"""One thread that computes for all requests, one after the other, and no more than a few wait."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

OPEN_AT_ONCE = 8
"""Requests that compute, wait or are being answered; one more is told to come back."""
ENDING = "the server ends"

Answer = dict[str, Any]
Work = Callable[[], Iterator[Answer]]


class Busy(Exception):
    """As many requests are open as may be."""


class Problem(NamedTuple):
    """Why a request ends without its answer, and the HTTP status that says so."""

    status: int
    text: str


class Job:
    """The place of one request; used from the event loop, but for `deliver` and `closed`."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self.items: asyncio.Queue[Answer | Problem | None] = asyncio.Queue()
        """What was computed so far; None comes last."""
        self.work: Work | None = None
        self.closed = False

    def start(self, work: Work) -> None:
        """Puts the work in line."""
        self.work = work
        self._worker.put(self)

    def close(self) -> None:
        """Gives the place free; what is not computed yet will not be."""
        if not self.closed:
            self.closed = True
            self._worker.leave(self)

    def deliver(self, item: Answer | Problem | None) -> None:
        """From the worker's thread."""
        with suppress(RuntimeError):  # the loop is closed: the server has ended
            self._loop.call_soon_threadsafe(self.items.put_nowait, item)


class Worker:
    """Owns the model: nothing else computes with it."""

    def __init__(self, most: int = OPEN_AT_ONCE) -> None:
        self.most = most
        self.open_jobs = 0
        self._line: deque[Job] = deque()
        self._computed: Job | None = None
        self._changed = threading.Condition()
        self._stopped = False
        # Not waited for at the end of Python: a slow batch must not keep Ctrl-C from ending it.
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)

    def begin(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends between two batches, and every open answer now."""
        with self._changed:
            if self._stopped:
                return
            self._stopped = True
            for job in filter(None, [self._computed, *self._line]):
                job.deliver(Problem(503, ENDING))
                job.deliver(None)
            self._line.clear()
            self._changed.notify()

    def join(self, seconds: float) -> None:
        """Waits for that, not for ever."""
        self._thread.join(seconds)

    def open(self) -> Job:
        """A place, before anything is read for it: what a client sends must have room, too."""
        if self.open_jobs >= self.most:
            raise Busy
        self.open_jobs += 1
        return Job(self)

    def put(self, job: Job) -> None:
        """At the end of the line."""
        with self._changed:
            if self._stopped:
                job.deliver(Problem(503, ENDING))
            else:
                self._line.append(job)
                self._changed.notify()

    def leave(self, job: Job) -> None:
        """Out of the line, if it still stands there, and with all it holds."""
        with self._changed:
            if job in self._line:
                self._line.remove(job)
        self.open_jobs -= 1

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                self._compute(job)
            except Exception as error:
                job.deliver(_problem(error))
            job.deliver(None)

    def _next(self) -> Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._line)
            self._computed = None if self._stopped else self._line.popleft()
            return self._computed

    def _compute(self, job: Job) -> None:
        assert job.work is not None, "only what was started stands in line"
        for item in job.work():
            job.deliver(item)
            if job.closed or self._stopped:
                return


def _problem(error: Exception) -> Problem:
    """What a user did is told; what we did is told on the console."""
    if isinstance(error, ValueError):
        return Problem(400, str(error))
    if isinstance(error, ArithmeticError):
        return Problem(500, str(error))
    if isinstance(error, MemoryError) or "out of memory" in str(error):
        return Problem(500, "out of memory: try fewer pictures")
    logging.getLogger("macow.web").error("a request failed", exc_info=error)
    return Problem(500, "something went wrong here: the console of `macow serve` says what")
