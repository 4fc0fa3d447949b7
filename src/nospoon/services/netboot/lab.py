"""What machines of recipes ask, and where their installers report, beside network boot.

    GET  /lab/{secret}/ks                           kickstart or preseed
    GET, POST /lab/{secret}/install_start           the installer runs; text/plain, "ok"
    GET, POST /lab/{secret}/install_done            it is done
    GET, POST /lab/{secret}/install_fail?why=TEXT   it gave up
    GET  /lab/mac/{mac}/ipxe                        the script of a registered machine

A secret that is of no recipe at work is 404, and so is a MAC of no registered machine; 503 with
Retry-After: the machine's set is still starting, or the daemon. HEAD reports nothing. The script
has a secret: others on a network of this machine, by their MAC, and other users of it get 404, and
so does a second address while one installs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Protocol

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from nospoon.errors import NospoonError
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.socket_diag import Place

log = RateLimitedLog()
RETRY_SECONDS = 2
AT_ONCE = 4
"""Requests for one kickstart that are answered at a time."""
PIECE = 64 << 10
NOT_FOUND, NOT_ALLOWED, UNAVAILABLE = 404, 405, 503
_MAC = re.compile(r"[0-9a-f]{2}([:-][0-9a-f]{2}){5}")
EVENTS = ("install_start", "install_done", "install_fail")


class LabMachines(Protocol):
    """What the labs answer; `base`: this server's URL as the machine reaches it."""

    async def kickstart(self, secret: str, base: str) -> str | None: ...
    async def report(self, secret: str, event: str, why: str) -> bool: ...
    async def script(self, mac: str, base: str, *, peer: Place, here: Place) -> str | None: ...


class _Kickstart(PlainTextResponse):
    """Sent in pieces as its machine takes it: one with its URLs may have megabytes."""

    def __init__(self, text: str, counted: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__(text)
        self._counted = counted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        body = memoryview(self.body)
        start = {"type": "http.response.start", "status": self.status_code}
        with self._counted():
            await send({**start, "headers": self.raw_headers})
            for at in range(0, len(body), PIECE):
                piece = bytes(body[at : at + PIECE])
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


class _Kickstarts:
    """Answers with them, of which few are held at a time."""

    def __init__(self, lab: LabMachines) -> None:
        self._lab, self._sending = lab, Counter[str]()

    async def answer(self, request: Request) -> Response:
        secret = request.path_params["secret"]
        if self._sending[secret] >= AT_ONCE:
            return _later("it is being sent to others")
        with self._counted(secret):
            text = await self._lab.kickstart(secret, base_of(request))
        return unknown() if text is None else _Kickstart(text, partial(self._counted, secret))

    @contextmanager
    def _counted(self, secret: str) -> Iterator[None]:
        self._sending[secret] += 1
        try:
            yield
        finally:
            self._sending[secret] -= 1
            if not self._sending[secret]:
                del self._sending[secret]


def lab_routes(lab: LabMachines, ready: Callable[[], bool]) -> list[Route]:
    """To be put beside the routes of network boot."""

    async def report(request: Request) -> Response:
        if request.method == "HEAD":  # Starlette answers it where it answers GET
            return PlainTextResponse("", NOT_ALLOWED)
        event = request.path_params["event"]
        why = request.query_params.get("why", "")
        taken = await lab.report(request.path_params["secret"], event, why)
        return PlainTextResponse("ok\n") if taken else unknown()

    async def script(request: Request) -> Response:
        mac = request.path_params["mac"].lower()
        if not _MAC.fullmatch(mac):
            return unknown()
        if request.client is None:
            return unknown()
        peer, here = request.client, request.scope["server"]
        text = await lab.script(
            mac.replace("-", ":"), base_of(request), peer=(peer.host, peer.port), here=(*here[:2],)
        )
        if text == "":
            return _later("the recipe set is starting")
        return PlainTextResponse(text) if text is not None else unknown()

    return [
        Route("/lab/mac/{mac}/ipxe", when_ready(ready, script), methods=["GET"]),
        Route("/lab/{secret}/ks", when_ready(ready, _Kickstarts(lab).answer), methods=["GET"]),
        Route("/lab/{secret}/{event}", when_ready(ready, report), methods=["GET", "POST"]),
    ]


def when_ready(
    ready: Callable[[], bool], answer: Callable[[Request], Awaitable[Response]]
) -> Callable[..., object]:
    """503 until the daemon knows its machines, and where it cannot answer now."""

    async def guarded(request: Request) -> Response:
        if not ready():
            return _later("nospoon is starting")
        try:
            return await answer(request)
        except NospoonError as error:
            log.warning("a machine of a recipe is not answered", why=str(error))
            return _later("try again")

    return guarded


def base_of(request: Request) -> str:
    """The URL of this server as the machine that asks reaches it."""
    host, port = request.scope["server"]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def unknown() -> Response:
    """The answer to what is not known, or not to who asks."""
    return PlainTextResponse("# nothing of that name is known here\n", NOT_FOUND)


def _later(why: str) -> Response:
    headers = {"Retry-After": str(RETRY_SECONDS)}
    return PlainTextResponse(f"# {why}; try again\n", UNAVAILABLE, headers=headers)
