"""What stands before every route: who may call at all, and how large and deep a body may be.

Bodies are read here, bounded, before FastAPI decodes them: Python's decoder lets nothing else run
meanwhile. Uploads are streams, which their route bounds itself.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nospoon.api.errors import encode, status_of
from nospoon.api.membership import AGAIN, Watch
from nospoon.api.peer import Members
from nospoon.errors import Busy, NospoonError, TooLarge, UsageError
from nospoon.model.principal import Principal
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.slices import Slices

MAX_BODY = 24 << 20
"""Bytes of a body: a cluster file of `MAX_TEXT` characters, with JSON's escapes."""
MAX_BESIDES = 1 << 20
"""Bytes of a body without its `text`: what is decoded into values."""
BIG_ROUTES = re.compile(
    r"/v1/(plan|fetch|clusters|hosts/check|orphans|orphans/reap|recover|recover/deployment"
    r"|clusters/[^/]+/verify|files/missing|requests|requests/check)\Z"
)
"""Their bodies have the text of a cluster or request, or names of many nodes or files."""
UPLOADS = re.compile(r"/v1/files/[^/]+\Z")
"""A file is put there, of which nothing is decoded."""
MAX_SMALL = 16 << 10
"""Bytes of a body of any other route."""
MAX_HELD = 64 << 20
"""Bytes of bodies of one member that are read or worked on at a time."""
MOST_REQUESTS = 512
"""Requests of one member under way. Some go on when their connections, of which 256 are kept, are
closed, and wait as long as the store does not answer.
"""
RETRY_AFTER = 2
"""Seconds (RFC 9110 §10.2.3), where they are more."""
MAX_ESCAPES = 1 << 20
"""Backslashes of a body, of which line ends need one each: Python's decoder takes 30 ns for each,
in which nothing else runs.
"""
PIECE = 1 << 20
"""Bytes that are looked at in one go."""
SMALL = 64 << 10
"""Bytes of a body that is decoded without a look before."""
REFUSED = 4403
"""Close code of a websocket (RFC 6455 §7.4.2: 4000 to 4999 are the application's)."""


class Held:
    """Requests that are under way, and bytes of their bodies, by user."""

    def __init__(self) -> None:
        self._of = defaultdict[int, int](int)
        self._requests: Counter[int] = Counter()

    @contextmanager
    def one(self, caller: Principal) -> Iterator[None]:
        """For the time of a request. Raises `Busy` for too many of a user."""
        if not caller.admin and self._requests[caller.uid] >= MOST_REQUESTS:
            raise Busy(
                f"{MOST_REQUESTS} requests of yours are under way, as many as may be",
                hint="Wait until one of them has been answered. Does the store's database answer?",
            )
        self._requests[caller.uid] += 1
        try:
            yield
        finally:
            self._requests[caller.uid] -= 1
            if not self._requests[caller.uid]:
                del self._requests[caller.uid]

    @contextmanager
    def by(self, caller: Principal) -> Iterator[Callable[[int], None]]:
        """For the time of a request: called with so many bytes more, which raises `Busy`."""
        mine = 0

        def take(size: int) -> None:
            nonlocal mine
            if not caller.admin and self._of[caller.uid] + size > MAX_HELD:
                raise Busy(
                    f"your requests that are under way have {MAX_HELD} bytes, as many as may be",
                    hint="Wait until one of them has been answered.",
                )
            mine += size
            self._of[caller.uid] += size

        try:
            yield take
        finally:
            self._of[caller.uid] -= mine
            if not self._of[caller.uid]:
                del self._of[caller.uid]


@dataclass(frozen=True, slots=True)
class Gate:
    """An ASGI application before another one. `members`: who may call."""

    inner: ASGIApp
    members: Members
    log: RateLimitedLog
    held: Held = field(default_factory=Held)
    slices: Slices = field(default_factory=Slices)
    again: float = AGAIN
    """Seconds after which it is looked whether who is being answered is still a member."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.inner(scope, receive, send)
            return
        with ExitStack() as stack:
            try:
                caller = await self.members.caller(scope)
                if "\0" in scope["path"] or b"%00" in scope["query_string"]:
                    # which PostgreSQL takes for a fault of its own
                    raise UsageError("expected a URL without the character U+0000")
                if scope["type"] == "http":
                    stack.enter_context(self.held.one(caller))
                if scope["type"] == "http" and not _is_upload(scope):
                    take = stack.enter_context(self.held.by(caller))
                    receive = _given(await _bounded(scope, receive, take), receive)
            except NospoonError as error:
                self._log(scope, error)
                await (_refuse if scope["type"] == "http" else _close)(error, send)
                return
            work = self.slices.begin(caller.uid)
            if not work.share():  # of many at a time, some begin in each turn of the loop
                await work.rest()
            watch = stack.enter_context(Watch(self.members, caller, send, again=self.again))
            try:
                await self.inner(scope, receive, watch.send)
            except asyncio.CancelledError:
                if not watch.take_over():
                    raise
                why = self.members.refusal(caller)
                self._log(scope, why)
                if scope["type"] == "http":
                    raise  # the connection ends: half of an answer has been sent
                if not watch.has_ended:
                    await _close(why, send)

    def _log(self, scope: Scope, error: NospoonError) -> None:
        of = str((scope.get("client") or ("",))[0])
        self.log.info("refused", of=of, path=scope["path"], error=str(error))


def _is_upload(scope: Scope) -> bool:
    return scope["method"] == "PUT" and UPLOADS.match(scope["path"]) is not None


async def _bounded(scope: Scope, receive: Receive, take: Callable[[int], None]) -> bytes:
    """The body; `take` gets each part's size. Raises `TooLarge`, and what `take` raises."""
    length = dict(scope["headers"]).get(b"content-length", b"0")
    most = MAX_BODY if BIG_ROUTES.match(scope["path"]) else MAX_SMALL
    if len(length) > len(str(most)) or (length.isdigit() and int(length) > most):
        raise TooLarge(f"expected a body of at most {most} bytes, got {length[:20].decode()}")
    parts, size = [], 0
    while True:
        message = await receive()
        take(len(message.get("body", b"")))
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise TooLarge(f"expected a body of at most {most} bytes")
        if not message.get("more_body", False):
            break
    body = b"".join(parts)
    if size > SMALL:
        await asyncio.to_thread(_check_values, body)
    return body


def _check_values(body: bytes) -> None:
    """A cluster's text may be long; whatever else there is would become values."""
    escapes = sum(body.count(b"\\", at, at + PIECE) for at in range(0, len(body), PIECE))
    if escapes > MAX_ESCAPES:
        raise TooLarge(f"expected at most {MAX_ESCAPES} line ends and quotes, got {escapes}")
    try:
        found = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        besides = len(body)
    else:
        text = bytes(found.get("text", b""))
        besides = len(body) - (len(text) if text.startswith(b'"') else 0)
    if besides > MAX_BESIDES:
        raise TooLarge(
            f"expected at most {MAX_BESIDES} bytes of JSON beside the cluster file, got {besides}"
        )


def _given(body: bytes, receive: Receive) -> Receive:
    """The body that was read, and then whatever comes after it, such as the caller's leaving."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> MutableMapping[str, object]:
        return waiting.pop() if waiting else await receive()

    return again


async def _refuse(error: NospoonError, send: Send) -> None:
    body = json.dumps(encode(error)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if isinstance(error, Busy):
        headers.append((b"retry-after", b"%d" % RETRY_AFTER))
    start = {"type": "http.response.start", "status": status_of(error), "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})


async def _close(error: NospoonError, send: Send) -> None:
    await send({"type": "websocket.close", "code": REFUSED, "reason": str(error)[:120]})
