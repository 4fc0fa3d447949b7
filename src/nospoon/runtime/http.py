"""One HTTP request out (RFC 9112), on a connection of its own."""

from __future__ import annotations

import asyncio
import errno
import re
import ssl
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from traceback import clear_frames
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import httptools

from nospoon.errors import ProviderError
from nospoon.runtime.handshakes import SHAKING, Handshakes, Tls
from nospoon.runtime.reach import ANYWHERE, Reach, places_of
from nospoon.runtime.reasons import reason
from nospoon.runtime.received import Received
from nospoon.runtime.tls import client_context

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
PORTS = {"http": 80, "https": 443}
_PIECE = 2048
"""Bytes of an answer that are looked at in one go: chunks of one byte each take half a
millisecond.
"""
READ = 1024
"""Bytes of TLS that are read in one go."""
LONGEST_HANDSHAKE = 32 << 10
"""Bytes: three certificates have 6,000. Each is taken apart, whether it counts or not, in 0.2 ms,
and OpenSSL itself takes 100 KiB of them in one go.
"""
LONGEST_ANSWER, LONGEST_HEAD = 1 << 24, 1 << 16
"""Bytes; who answers with more is no partner of ours."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` without any transfer coding."""

    status: int
    body: bytes = b""


_ACCOUNT = re.compile("(?<=://)[^/?#]*@")
"""Of a URL (RFC 3986 §3.2.1)."""


def without_account(url: str) -> str:
    """As it may be shown: the account that it may have is for who wrote it alone."""
    return _ACCOUNT.sub("", url, count=1)


class _Unusable(ValueError):
    """A URL or an answer that is of no use, with the reason in our words."""


async def request(
    method: str,
    url: str,
    body: bytes = b"",
    *,
    headers: Sequence[tuple[str, str]] = (),
    verify: bool,
    patience: float,
    reach: Reach = ANYWHERE,
    most: int = LONGEST_ANSWER,
) -> Answer:
    """The whole answer, whose body has at most `most` bytes. Raises `ProviderError` when there is
    none within `patience` seconds, or its server is where `reach` does not.
    """
    shown = without_account(url)
    try:
        async with asyncio.timeout(patience):
            connection = await _connected(url, await _context(url, verify=verify), reach)
            asked = _head(method, url, len(body), headers) + body
            return await _exchange(connection, asked, most)
    except TimeoutError:
        raise ProviderError(f"{shown} did not answer within {patience:.0f} s") from None
    except _Unusable as error:
        raise ProviderError(f"{shown} does not answer: {error}") from error
    except (
        OSError,
        httptools.HttpParserError,
    ) as error:  # a wrong certificate is a ValueError, too
        raise ProviderError(f"{shown} does not answer: {reason(error)}") from error
    except ValueError as error:  # of what takes URLs apart
        raise ProviderError(f"{shown!r} is not a URL: its host or port is wrong") from error


async def _context(url: str, *, verify: bool) -> ssl.SSLContext | None:
    if urlsplit(url).scheme != "https":
        return None
    if not verify:
        return client_context(verify=False)
    return await asyncio.to_thread(client_context, verify=True)  # it may read the authorities


async def _connected(url: str, context: ssl.SSLContext | None, reach: Reach) -> Streams:
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname:
        raise _Unusable("it is not an http or https URL")
    return await connected(parts.hostname, parts.port or PORTS[parts.scheme], context, reach)


async def connected(host: str, port: int, context: ssl.SSLContext | None, reach: Reach) -> Streams:
    """To a server that others choose, by TLS where there is a context for it.

    Raises `Unfetchable` where it may not be connected to, `OSError` where it does not answer.
    """
    trouble: OSError | None = None
    for place in await places_of(host, port, reach):
        try:
            if context is None:
                return await asyncio.open_connection(place, port)
            return await _secured(place, port, context, host, reach.owner)
        except OSError as error:
            trouble = error
    raise trouble or OSError(f"{host} has no address")


class _Tls(Tls):
    """BMC clients choose servers, and those send what costs more than it has bytes, as changes of
    keys do (RFC 8446 §4.6.3), on many connections at once. A key of RSA may have an exponent as
    long as itself, by which each handshake takes ten milliseconds.
    """

    max_size = READ
    _shaken = 0
    """Bytes of the handshake that came."""

    def buffer_updated(self, nbytes: int) -> None:
        if self._state is SHAKING:
            self._shaken += nbytes
            if self._shaken > LONGEST_HANDSHAKE:
                why = f"its certificates are longer than {LONGEST_HANDSHAKE} bytes"
                self._on_handshake_complete(ConnectionAbortedError(errno.ECONNABORTED, why))
                return
        super().buffer_updated(nbytes)


_SHARED: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Handshakes, Received]] = (
    WeakKeyDictionary()
)
"""Of all connections to servers that one loop has: they take turns."""


def _shared() -> tuple[Handshakes, Received]:
    loop = asyncio.get_running_loop()
    if loop not in _SHARED:
        _SHARED[loop] = Handshakes(), Received()
    return _SHARED[loop]


class _Kept(asyncio.StreamReaderProtocol):
    """Knows its transport also when that is lost already."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport = transport  # type: ignore[assignment]  # asyncio's type is too wide


async def _secured(
    place: str, port: int, context: ssl.SSLContext, host: str, owner: Hashable
) -> Streams:
    """As `asyncio.open_connection` does it, but for what `_Tls` is about. `owner`: whose turn it
    is.
    """
    loop = asyncio.get_running_loop()
    reader, shaken = asyncio.StreamReader(loop=loop), loop.create_future()
    protocol = _Kept(reader, loop=loop)

    make = partial(
        _Tls, *_shared(), owner, loop, protocol, context, shaken,
        server_side=False, server_hostname=host,
    )  # fmt: skip
    raw, _ = await loop.create_connection(make, place, port)
    try:
        await shaken
    except BaseException as error:
        raw.abort()
        clear_frames(error.__traceback__)  # which are cycles, with all that TLS took
        raise
    finally:
        del make, shaken
    return reader, asyncio.StreamWriter(protocol.transport, protocol, reader, loop)


async def _exchange(connection: Streams, asked: bytes, most: int) -> Answer:
    reader, writer = connection
    try:
        writer.write(asked)
        await writer.drain()
        return await _Reading(most).answer(reader)
    finally:
        # to close would wait for who takes nothing more, and for 30 s for who ends no TLS
        writer.transport.abort()


class _Reading:
    """What httptools tells of an answer as it comes in."""

    def __init__(self, most: int = LONGEST_ANSWER) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._most, self._head = most, 0
        self._body: list[bytes] = []
        self._size, self._headed, self._until_end, self._whole = 0, False, True, False

    async def answer(self, reader: asyncio.StreamReader) -> Answer:
        while not self._whole and (data := await reader.read(_PIECE)):
            self._head += 0 if self._headed else len(data)
            # a header that comes in pieces is copied with each of them
            if self._head > LONGEST_HEAD + _PIECE:
                raise _Unusable(f"its headers are longer than {LONGEST_HEAD} bytes")
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade:  # no kind of HttpParserError
                raise _Unusable("it goes on with another protocol than HTTP") from None
            await asyncio.sleep(0)  # of many servers, each has a little of a turn of the loop
        if not self._whole and not (self._headed and self._until_end):
            raise _Unusable("it hung up before the end of its answer")
        return Answer(self._parser.get_status_code(), b"".join(self._body))

    def on_header(self, name: bytes, value: bytes) -> None:
        del value
        if name.lower() in {b"content-length", b"transfer-encoding"}:
            self._until_end = False

    def on_headers_complete(self) -> None:
        self._headed = True

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._most:
            raise _Unusable(f"its answer is longer than {self._most} bytes")
        self._body.append(data)

    def on_message_complete(self) -> None:
        self._whole = self._parser.get_status_code() >= 200  # 1xx is followed by the answer


def _head(method: str, url: str, size: int, headers: Sequence[tuple[str, str]]) -> bytes:
    """Headers that are given come last, and never twice."""
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    given = {name.lower() for name, _ in headers}
    ours = (
        ("Host", parts.netloc.rpartition("@")[2]),
        ("Content-Length", str(size)),
        ("Connection", "close"),
        ("Content-Type", "application/json"),
        ("User-Agent", "nospoon"),
    )
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in ours if name.lower() not in given]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
