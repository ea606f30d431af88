"""Servers for tests: real ones on real sockets, in a thread of this process."""

import http.client
import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from PIL import Image

import macow
from children import wait_for
from macow.pretrained import find
from macow.score import Reference
from macow.web.data_urls import content_of
from macow.web.explorer import Explorer
from macow.web.server import listen, server
from macow.web.worker import Worker


@dataclass
class Served:
    """A running server, with what it is made of."""

    port: int
    explorer: Explorer
    worker: Worker

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}"

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, method, path, content=None, headers=None):
        """The status, the headers and the bytes of one answer."""
        connection = self.connect()
        try:
            connection.request(method, path, content, headers or {})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def lines(self, path, wish):
        """The lines that come for a wish."""
        content = wish if isinstance(wish, bytes) else json.dumps(wish)
        status, _, body = self.ask("POST", path, content)
        assert status == 200, body
        return [json.loads(line) for line in body.splitlines()]

    def mistake(self, path, wish):
        """The status and the words for a wish that cannot be."""
        content = wish if isinstance(wish, bytes) else json.dumps(wish)
        status, _, body = self.ask("POST", path, content)
        return status, json.loads(body)["error"]


@contextmanager
def served(model=None, name="digits", runs=(), worker=None, **options):
    """A server of a model, the shipped digits if none is given."""
    reference = None if model else Reference.beside(find(name))
    explorer = Explorer(name, model or macow.load(name), reference, **options)
    worker = worker or Worker()
    listener = listen(0)
    running = server(explorer, runs, worker)
    thread = threading.Thread(target=running.run, args=([listener],))
    thread.start()
    try:
        wait_for(lambda: running.started)
        yield Served(listener.getsockname()[1], explorer, worker)
    finally:
        running.should_exit = True
        thread.join(30)
        listener.close()
        assert not thread.is_alive()


class Gate:
    """Holds up a sampler: each batch waits until it is let through."""

    def __init__(self, sampler):
        self.undo = sampler._undo
        self.passes = threading.Semaphore(0)
        self.batches = 0
        sampler._undo = self

    def __call__(self, z, cond=None):
        self.batches += 1
        assert self.passes.acquire(timeout=60)
        return self.undo(z, cond)

    def let(self, count):
        self.passes.release(count)


def pixels(url):
    """The picture of a data URL, as an array `[C, H, W]`."""
    array = np.asarray(Image.open(BytesIO(content_of(url))))
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def png(array):
    """An array `[H, W]` or `[H, W, 3]` as a file."""
    file = BytesIO()
    Image.fromarray(array).save(file, "png")
    return file.getvalue()
