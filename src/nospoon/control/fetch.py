"""Downloads: an http(s) URL to a file, whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import IO
from urllib.parse import unquote, urlsplit

from nospoon.errors import Obstacle, ProviderError, Unfetchable, UsageError

CHUNK = 1 << 20
FETCH_TIMEOUT = 60.0
"""Seconds in which a server must say something."""


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
        context = ssl.create_default_context()
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def separated(url: str, access: Access) -> tuple[str, Access]:
    """The URL without the account that it may hold (RFC 3986 §3.2.1), and the access with it."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # looked at here, where it is read
    except ValueError as error:
        raise UsageError(f"{url!r} is no URL: {error}") from error
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
    """How far a download is: `got` bytes of `total`, 0 when the server does not tell. Whoever sets
    `unwanted` stops it.
    """

    got: int = 0
    total: int = 0
    unwanted: bool = False


def download(url: str, access: Access, target: IO[bytes], transfer: Transfer) -> str:
    """Write what is at the URL to a file; returns its SHA-256. Messages tell no account.

    Raises `UsageError` for what is no http(s) URL, `ProviderError` when it cannot be had whole.
    """
    place, access = separated(url, access)
    if urlsplit(place).scheme not in {"http", "https"}:
        raise UsageError(f"expected an http or https URL, got {place!r}")
    digest = hashlib.sha256()
    with closing(_chunks(place, access, transfer)) as chunks:
        for chunk in chunks:
            digest.update(chunk)
            target.write(chunk)  # an error of the file is none of the server
    return digest.hexdigest()


def _chunks(place: str, access: Access, transfer: Transfer) -> Generator[bytes, None, None]:
    """What is there, piece by piece; `ProviderError` when that is not all of it."""
    try:
        with urllib.request.urlopen(  # noqa: S310  (checked above)
            access.request(place), timeout=FETCH_TIMEOUT, context=access.tls()
        ) as answer:
            wanted = answer.headers.get("Content-Length", "")
            transfer.total = int(wanted) if wanted.isdigit() else 0
            while not transfer.unwanted and (chunk := answer.read(CHUNK)):
                transfer.got += len(chunk)
                yield chunk
    except (urllib.error.URLError, http.client.HTTPException, ValueError, OSError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it holds the answer
        raise Unfetchable(f"cannot fetch {place}: {error}", url=place, why=_why(error)) from error
    if transfer.unwanted:
        raise ProviderError(f"{place} was not fetched: nobody wants it any more")
    if wanted.isdigit() and int(wanted) != transfer.got:  # read(n) tells nothing of a short answer
        message = (
            f"cannot fetch {place}: got {transfer.got} of {wanted} bytes, then the server hung up"
        )
        raise Unfetchable(message, url=place)


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
