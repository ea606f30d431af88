"""The door of the server: who may ask, how much, and what a browser may do with the page."""

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OWN_NAMES = ("127.0.0.1", "localhost", "::1")
PATIENCE = 30.0
"""Seconds that a client may take to send its request, or to read a piece of the answer."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class TooMuch(Exception):
    """A body that is too large, or takes too long."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Deaf(Exception):
    """A client that does not read its answer."""


class Guard:
    """Answers requests to its own name, from its own page or from no page at all."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuses, or passes on with a limit on patience and the headers."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            try:
                async with asyncio.timeout(PATIENCE):
                    await send(message)
            except TimeoutError:
                raise Deaf from None

        reason = refusal(Headers(scope=scope), scope["path"])
        app = self.app if reason is None else JSONResponse({"error": reason}, 403)
        try:
            await app(scope, receive, answer)
        except* Deaf:
            pass  # there is nobody to tell


def refusal(headers: Mapping[str, str], path: str) -> str | None:
    """Why a request is not answered, if so.

    A page elsewhere may have its name lead to this machine, or send requests here: the first comes
    with a foreign Host, the second with a foreign Origin or Sec-Fetch-Site.
    """
    host, origin = headers.get("host", ""), headers.get("origin")
    if _name(host) not in OWN_NAMES:
        return f"this server answers as 127.0.0.1 or localhost only, not as {host[:100]!r}"
    if origin is not None and origin != f"http://{host}":
        return "this server answers its own page only"
    followed = path == "/" and headers.get("sec-fetch-mode") == "navigate"
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not followed:
        return "this server answers its own page only"
    return None


def _name(host: str) -> str | None:
    try:
        parts = urlsplit(f"//{host}")
        return parts.hostname if parts.netloc == host and parts.username is None else None
    except ValueError:
        return None


async def body(request: Request, most: int) -> bytes:
    """What a request carries, if it is not too much and comes in time."""
    said = request.headers.get("content-length", "0")
    content = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            if not said.isdecimal() or int(said) > most:
                raise TooMuch(413, f"more than {most:,} bytes")
            size = 0
            async for chunk in request.stream():
                size += len(chunk)
                if size <= most:
                    content += chunk
                elif size > 2 * most:
                    break  # who sends on must bear a reset; others are heard out and told why
            if size > most:
                raise TooMuch(413, f"more than {most:,} bytes")
    except TimeoutError:
        raise TooMuch(408, f"not all of it came within {PATIENCE:.0f} s") from None
    return bytes(content)


async def until_gone(request: Request) -> None:
    """Ends when the client went away; for requests whose body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
