"""Downloads: an http(s) URL to a file, whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import socket
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import IO
from urllib.parse import unquote, urlsplit

from nospoon.errors import Obstacle, ProviderError, Unfetchable, UsageError
from nospoon.runtime.costly import Line
from nospoon.runtime.reach import ANYWHERE, Reach, dial
from nospoon.runtime.reasons import reason
from nospoon.runtime.tls import client_context

CHUNK = 1 << 20
FETCH_TIMEOUT = 60.0
"""Seconds in which a server must say something."""
MOST_REDIRECTS = 5
"""That one download follows; each is checked as the first URL was."""


@dataclass(frozen=True, slots=True)
class Access:
    """How a URL is fetched: HTTP basic authentication (RFC 7617) when there is a user name.

    `verify`: the server's certificate must hold (RFC 9110 §4.3.4).
    """

    username: str = ""
    password: str = field(default="", repr=False)
    verify: bool = True

    def request(self, url: str) -> urllib.request.Request:
        request = urllib.request.Request(url)  # noqa: S310  (callers check the scheme)
        if self.username:
            pair = b64encode(f"{self.username}:{self.password}".encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {pair}")
        return request

    def tls(self) -> ssl.SSLContext:
        return client_context(verify=self.verify)


def separated(url: str, access: Access) -> tuple[str, Access]:
    """The URL without the account that it may hold (RFC 3986 §3.2.1), and the access with it."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # looked at here, where it is read
    except ValueError as error:
        raise UsageError(f"{url!r} is not a URL: its host or port is wrong") from error
    if parts.username is None:
        return url, access
    place = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    name, word = unquote(parts.username), unquote(parts.password or "")
    return place, access if access.username else Access(name, word, verify=access.verify)


def url_of(source: str) -> str:
    """The URL, or path, of a file that a cluster file names, perhaps with a checksum."""
    return source.partition(" ")[0] if source.startswith(("http://", "https://")) else source


def told(source: str) -> str:
    """The same as it may be told to everybody: without an account."""
    url = url_of(source)
    return separated(url, Access())[0] if url.startswith(("http://", "https://")) else url


@dataclass(slots=True)
class Transfer:
    """How far a download is: `got` bytes of `total`, 0 when the server does not tell.

    Whoever calls `stop`, from any thread, ends it at once, also while its server is silent.
    """

    got: int = 0
    total: int = 0
    unwanted: bool = False
    why: str = ""
    _line: socket.socket | None = None

    def stop(self, why: str = "it is no longer needed") -> None:
        """`why` is told of it; a second word changes nothing."""
        if not self.unwanted:
            self.why, self.unwanted = why, True
        if self._line is not None:
            with suppress(OSError):  # it is closed already
                self._line.shutdown(socket.SHUT_RDWR)

    def hold(self, line: socket.socket) -> None:
        """Its connection; a duplicate is kept, for TLS takes the descriptor away."""
        self.let_go()
        self._line = line.dup()
        if self.unwanted:
            self.stop()

    def let_go(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


@dataclass(frozen=True, slots=True)
class Terms:
    """On which something is fetched. `reach`: which addresses may be connected to.

    `largest`: bytes, 0 for no limit. `expect` is told of bytes that are announced, `take` of those
    that came; both may refuse them with `OutOfSpace`. `keep` is called with its
    digest when it has come.
    """

    reach: Reach = ANYWHERE
    largest: int = 0
    expect: Callable[[int], None] = lambda _: None
    take: Callable[[int], None] = lambda _: None
    keep: Callable[[str], None] = lambda _: None


FREE = Terms()


def download(
    url: str, access: Access, target: IO[bytes], transfer: Transfer, terms: Terms = FREE
) -> str:
    """Write what is at the URL to a file; returns its SHA-256. Messages tell no account.

    Raises `UsageError` for what is no http(s) URL, `ProviderError` when it is not available whole.
    """
    place, access = separated(url, access)
    if urlsplit(place).scheme not in {"http", "https"}:
        raise UsageError(f"expected an http or https URL, got {place!r}")
    digest = hashlib.sha256()
    with closing(_chunks(place, access, transfer, terms)) as chunks:
        for chunk in chunks:
            terms.take(len(chunk))
            digest.update(chunk)
            target.write(chunk)  # an error of the file is none of the server
    return digest.hexdigest()


def _chunks(
    place: str, access: Access, transfer: Transfer, terms: Terms
) -> Generator[bytes, None, None]:
    """What is there, piece by piece; `ProviderError` when that is not all of it."""
    opener = _opener(access, transfer, terms.reach)
    try:
        if transfer.unwanted:
            raise OSError(transfer.why)
        with opener.open(access.request(place), timeout=FETCH_TIMEOUT) as answer:
            wanted = answer.headers.get("Content-Length", "")
            transfer.total = int(wanted) if wanted.isdigit() else 0
            _refuse_large(place, transfer.total, terms)
            terms.expect(transfer.total)
            while not transfer.unwanted and (chunk := answer.read1(CHUNK)):
                transfer.got += len(chunk)
                _refuse_large(place, transfer.got, terms)
                yield chunk
    except (urllib.error.URLError, http.client.HTTPException, ValueError, OSError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it holds the answer
        if not transfer.unwanted:
            why = _why(error)
            raise Unfetchable(
                f"cannot fetch {place}: {reason(error)}", url=place, why=why
            ) from error
    except Unfetchable as error:
        message = f"cannot fetch {place}: {error.message}"
        raise Unfetchable(message, url=place, why=error.why, hint=error.hint) from error
    finally:
        transfer.let_go()
        for handler in vars(opener)["handlers"]:
            handler.parent = None  # they know each other: a cycle that only a collection finds
    if transfer.unwanted:
        raise ProviderError(f"{place} was not fetched: {transfer.why}")
    if wanted.isdigit() and int(wanted) != transfer.got:  # read(n) tells nothing of a short answer
        message = (
            f"cannot fetch {place}: got {transfer.got} of {wanted} bytes, then the server hung up"
        )
        raise Unfetchable(message, url=place)


def _refuse_large(place: str, amount: int, terms: Terms) -> None:
    if terms.largest and amount > terms.largest:
        raise Unfetchable(
            f"it has more than {terms.largest} bytes, the most that a BMC fetches",
            url=place,
            hint="NOSPOON_MEDIA_SIZE sets the limit",
        )


def _opener(access: Access, transfer: Transfer, reach: Reach) -> urllib.request.OpenerDirector:
    """Speaks HTTP and nothing else: a redirect to ftp: or file: finds no one who takes it.

    A proxy of the daemon's environment would connect to addresses that no one here judged.
    """

    def connect(
        place: tuple[str, int], timeout: float = FETCH_TIMEOUT, source: object = None
    ) -> socket.socket:
        del source
        line = dial(*place, reach, timeout)
        transfer.hold(line)
        return line

    director = urllib.request.OpenerDirector()
    for handler in (
        *([urllib.request.ProxyHandler()] if reach.anywhere else []),
        urllib.request.UnknownHandler(),
        _Http(connect),
        _Https(connect, access.tls()),
        urllib.request.HTTPDefaultErrorHandler(),
        _Redirects(),
        urllib.request.HTTPErrorProcessor(),
    ):
        director.add_handler(handler)
    return director


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = MOST_REDIRECTS

    def http_error_302(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
    ) -> object:
        """urllib reads what such an answer has besides into memory, however much it is."""
        fp.close()
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


Connect = Callable[..., socket.socket]
"""As `socket.create_connection`."""


def _answer(line: socket.socket, method: str | None = None) -> http.client.HTTPResponse:
    return http.client.HTTPResponse(Line(line), method=method)  # type: ignore[arg-type]


def _plain(
    host: str, *, connect: Connect, timeout: float | None = None
) -> http.client.HTTPConnection:
    """Host and, with TLS, SNI and the name in the certificate stay those of the URL: only what
    opens the socket is ours (`http.client.HTTPConnection.connect`).
    """
    made = http.client.HTTPConnection(host, timeout=timeout)
    made.response_class = _answer  # type: ignore[assignment]  # it is called only
    made._create_connection = connect  # type: ignore[attr-defined]  # noqa: SLF001
    return made


def _secure(
    host: str, *, connect: Connect, context: ssl.SSLContext, timeout: float | None = None
) -> http.client.HTTPSConnection:
    made = http.client.HTTPSConnection(host, timeout=timeout, context=context)
    made.response_class = _answer  # type: ignore[assignment]  # it is called only
    made._create_connection = connect  # type: ignore[attr-defined]  # noqa: SLF001
    return made


class _Http(urllib.request.AbstractHTTPHandler):
    def __init__(self, connect: Connect) -> None:
        super().__init__()
        self._connect = connect

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_plain, connect=self._connect), request)

    http_request = urllib.request.AbstractHTTPHandler.do_request_


class _Https(urllib.request.AbstractHTTPHandler):
    def __init__(self, connect: Connect, context: ssl.SSLContext) -> None:
        super().__init__()
        self._connect, self._context = connect, context

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        made = partial(_secure, connect=self._connect, context=self._context)
        return self.do_open(made, request)

    https_request = urllib.request.AbstractHTTPHandler.do_request_


_STATUSES = {
    401: Obstacle.UNAUTHORIZED,
    403: Obstacle.UNAUTHORIZED,
    404: Obstacle.MISSING,
    407: Obstacle.UNAUTHORIZED,
    410: Obstacle.MISSING,
}


def _why(error: Exception) -> Obstacle:
    """A server that answered was reached; errors of its connection come as an `OSError`."""
    if isinstance(error, urllib.error.HTTPError):
        return _STATUSES.get(error.code, Obstacle.BROKEN)
    return Obstacle.UNREACHABLE if isinstance(error, OSError) else Obstacle.BROKEN
