"""The addresses of the server: the page's files and a JSON API."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from macow.web.explorer import Explorer
from macow.web.guard import TooMuch, body, until_gone
from macow.web.runs import Run
from macow.web.wishes import Between, Fields, Levels, Samples, read
from macow.web.worker import OPEN_AT_ONCE, Answer, Busy, Job, Problem, Work, Worker

MOST_UPLOAD = 16 << 20
MOST_JSON = 8 << 20
PIECE = 1 << 16
PAGE = Path(__file__).parent / "page"
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
GONE = 499  # as nginx says it; nobody reads it


class Lines(StreamingResponse):
    """Answers as lines of JSON while they are computed; the job ends with the response."""

    def __init__(self, first: Answer, job: Job) -> None:
        self.job = job
        super().__init__(_lines(first, job), media_type="application/x-ndjson")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Also where the client leaves before the first line."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.job.close()


async def _lines(item: Answer | Problem | None, job: Job) -> AsyncIterator[bytes]:
    while item is not None:
        line = json.dumps({"error": item.text} if isinstance(item, Problem) else item).encode()
        for start in range(0, len(line), PIECE):  # a client that does not read holds one of them
            yield line[start : start + PIECE]
        yield b"\n"
        item = await job.items.get()


@dataclass(frozen=True)
class Api:
    """The handlers of all requests."""

    explorer: Explorer
    runs: Sequence[Run]
    worker: Worker

    def routes(self) -> list[Route]:
        """Every address; `docs/explorer.md` tells of them."""
        streams: dict[str, tuple[type[Any], Callable[[Any], Any]]] = {
            "/api/samples": (Samples, self.explorer.samples),
            "/api/between": (Between, self.explorer.between),
            "/api/levels": (Levels, self.explorer.levels),
            "/api/fields": (Fields, self.explorer.fields),
        }
        return [
            Route("/", _page_file(PAGE / "index.html")),
            *(Route(f"/{path.name}", _page_file(path)) for path in sorted(PAGE.iterdir())),
            Route("/api/model", self.model),
            *(
                Route(path, partial(self.streamed, kind, work), methods=["POST"])
                for path, (kind, work) in streams.items()
            ),
            Route("/api/image", self.image, methods=["POST"]),
            Route("/api/score", self.score, methods=["POST"]),
            Route("/api/runs", self.all_runs),
            Route("/api/runs/{run:int}/samples/{step:int}", self.run_samples),
        ]

    async def model(self, request: Request) -> Response:
        """What the model is."""
        limits = {"most_upload": MOST_UPLOAD}
        return JSONResponse({**self.explorer.about(), **limits, "runs": len(self.runs)})

    async def streamed(
        self, kind: type[Any], work: Callable[[Any], Any], request: Request
    ) -> Response:
        """Pictures and figures as they come."""

        async def prepared() -> Work:
            return partial(work, read(kind, await body(request, MOST_JSON)))

        return await self._answered(request, prepared)

    async def image(self, request: Request) -> Response:
        """An upload as the model sees it."""

        async def prepared() -> Work:
            return partial(self.explorer.image, await body(request, MOST_UPLOAD))

        return await self._answered(request, prepared)

    async def score(self, request: Request) -> Response:
        """What an upload costs."""

        async def prepared() -> Work:
            content, label = await body(request, MOST_UPLOAD), request.query_params.get("label")
            return partial(self.explorer.score, content, label)

        return await self._answered(request, prepared)

    async def all_runs(self, request: Request) -> Response:
        """The curves of all runs so far."""

        def about() -> list[Answer]:
            return [run.about() for run in self.runs]

        return JSONResponse({"runs": await run_in_threadpool(about)})

    async def run_samples(self, request: Request) -> Response:
        """What a run drew at a step."""
        number, step = request.path_params["run"], request.path_params["step"]
        if number >= len(self.runs):
            raise HTTPException(404, f"there is no run {number}")
        try:
            content = await run_in_threadpool(self.runs[number].samples, step)
        except (OSError, ValueError) as error:
            raise HTTPException(404, str(error)) from None
        return Response(content, media_type="image/png")

    async def _answered(
        self, request: Request, prepared: Callable[[], Awaitable[Work]]
    ) -> Response:
        """Takes a place, reads the request, waits for its turn; stops where the client leaves."""
        job = self.worker.open()
        try:
            job.start(await prepared())
            first = await _unless_gone(request, job)
        except BaseException:
            job.close()
            raise
        if isinstance(first, Problem):
            job.close()
            return JSONResponse({"error": first.text}, first.status)
        return Lines(first, job)


async def _unless_gone(request: Request, job: Job) -> Answer | Problem:
    item = asyncio.ensure_future(job.items.get())
    gone = asyncio.ensure_future(until_gone(request))
    try:
        await asyncio.wait((item, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        item.cancel()  # nothing happens to one that is done
    if not item.done():
        raise ClientDisconnect
    first = item.result()
    assert first is not None, "there is an answer or a problem before the end"
    return first


def _page_file(path: Path) -> Callable[[Request], Awaitable[Response]]:
    """Read once: no request's path ever reaches the disk."""
    content, kind = path.read_bytes(), KINDS[path.suffix]

    async def file(request: Request) -> Response:
        return Response(content, media_type=kind)

    return file


async def _busy(request: Request, error: Exception) -> Response:
    text = f"busy: {OPEN_AT_ONCE} requests are open already, try again in a moment"
    return JSONResponse({"error": text}, 503, {"Retry-After": "1"})


async def _too_much(request: Request, error: Exception) -> Response:
    assert isinstance(error, TooMuch)
    return JSONResponse({"error": str(error)}, error.status, {"Connection": "close"})


async def _mistake(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 400)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=GONE)


PROBLEMS = {
    Busy: _busy,
    TooMuch: _too_much,
    ValueError: _mistake,
    HTTPException: _http,
    ClientDisconnect: _gone,
}
"""How each kind of failure is answered."""
