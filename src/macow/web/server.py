"""The server, on this machine only: it owns the worker, and ends when it is told to."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from macow.web.api import PROBLEMS, Api
from macow.web.explorer import Explorer
from macow.web.guard import Guard
from macow.web.runs import Run
from macow.web.worker import Worker

MOST_CONNECTIONS = 256
PATIENCE = 5
"""Seconds that the end of the server waits for answers and for the batch being computed."""


def application(explorer: Explorer, runs: Sequence[Run], worker: Worker) -> Guard:
    """All of it but the socket; the worker lives as long as the server."""

    @asynccontextmanager
    async def living(_: Starlette) -> AsyncIterator[None]:
        worker.begin()
        yield
        worker.stop()
        await asyncio.to_thread(worker.join, PATIENCE)

    routes = Api(explorer, runs, worker).routes()
    return Guard(Starlette(routes=routes, exception_handlers=PROBLEMS, lifespan=living))


def listen(port: int) -> socket.socket:
    """A socket on this machine's own address; port 0 takes any that is free."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise ValueError(f"port {port} cannot be used: {error}") from None
    listener.listen(128)
    return listener


class Server(uvicorn.Server):
    """Ends what is computed as well: uvicorn would wait for it, then complain."""

    def __init__(self, config: uvicorn.Config, worker: Worker) -> None:
        super().__init__(config)
        self.worker = worker

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A second Ctrl-C ends it at once: there is nothing to lose."""
        if self.should_exit:
            os._exit(128 + sig)
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """First the worker, so that open answers come to an end."""
        self.worker.stop()
        await super().shutdown(sockets)


def server(explorer: Explorer, runs: Sequence[Run], worker: Worker) -> Server:
    """Answers once it runs, until Ctrl-C."""
    config = uvicorn.Config(
        application(explorer, runs, worker),
        log_level="warning",
        access_log=False,
        ws="none",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=PATIENCE,
    )
    return Server(config, worker)
