"""What a service may send that a member names: an adapter of requests that bounds every answer.

requests would read a body whole, guess its encoding, unpack it and follow redirects anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from keystoneauth1.session import TCPKeepAliveAdapter
from typing_extensions import override

from nospoon.providers import cloud_lines
from nospoon.providers.answers import BETWEEN, LONG, SENDS, value_of
from nospoon.providers.cloud_calls import LARGE, wait_for_place, within
from nospoon.runtime.reach import ANYWHERE, Reach
from nospoon.runtime.reasons import OurWords

MAX_ANSWER = 16 << 20
"""Bytes of an answer; 1,000 nodes of Ironic in full are some 10 million."""
MAX_VALUES = 1_000_000
"""Values of an answer, by the commas and brackets in it: JSON's smallest take 100 bytes each."""
MAX_KEPT, MAX_KEPT_VALUES = 1 << 20, 1 << 15
"""The same of an answer that keystoneauth keeps: catalogs have some 20 values for each endpoint."""
MAX_SECONDS = 120.0
"""From a request to the end of its answer."""
REDIRECTS = frozenset({301, 302, 303, 305, 307, 308})
"""Those that keystoneauth follows; Keystone lists its versions with 300."""
CHUNK = 1 << 16
Clock = Callable[[], float]


class Refused(OurWords, requests.exceptions.RequestException):
    """An answer that is not taken."""


class BoundedAdapter(TCPKeepAliveAdapter):
    """Answers are whole, bounded and UTF-8 when it returns them. `marked`: only requests with the
    header `LONG` have long ones.
    """

    def __init__(
        self, reach: Reach = ANYWHERE, *, marked: bool = False, now: Clock = time.monotonic
    ) -> None:
        self._reach, self._marked, self._now = reach, marked, now
        super().__init__()

    @override
    def init_poolmanager(self, *args: object, **how: object) -> None:
        super().init_poolmanager(*args, **how)
        cloud_lines.bound(self.poolmanager, self._reach)

    @override
    def send(
        self, request: requests.PreparedRequest, stream: bool = False, *args: object, **how: object
    ) -> requests.Response:
        """Raises `RequestException`."""
        seconds = MAX_SECONDS + float(request.headers.pop(SENDS, "0"))
        with within(seconds):
            return self._sent(request, self._now() + seconds, *args, **how)

    def _sent(
        self, request: requests.PreparedRequest, deadline: float, *args: Any, **how: Any
    ) -> requests.Response:
        is_long = request.headers.pop(LONG, None) is not None or not self._marked
        request.headers["Accept-Encoding"] = "identity"
        answer = super().send(request, True, *args, **how)  # noqa: FBT003  (theirs)
        try:
            _refuse_redirect(answer, str(request.url))
            body = self._body(answer, deadline, is_long=is_long)
        except (urllib3.exceptions.HTTPError, TimeoutError) as error:
            answer.close()
            raise requests.exceptions.ChunkedEncodingError(error) from error
        except Refused:
            answer.close()
            raise
        answer.raw.release_conn()
        answer._content, answer._content_consumed = body, True  # noqa: SLF001  (as iter_content would)
        answer.encoding = "utf-8"  # RFC 8259 §8.1
        answer.json = lambda **_: value_of(body)  # type: ignore[method-assign]  # for keystoneauth
        return answer

    def _body(self, answer: requests.Response, deadline: float, *, is_long: bool) -> bytes:
        packed = answer.headers.get("Content-Encoding", "identity")
        if packed.lower() != "identity":
            raise Refused(f"expected an answer that is not packed, got Content-Encoding {packed!r}")
        parts, size, values = [], 0, 0
        most, most_values = (MAX_ANSWER, MAX_VALUES) if is_long else (MAX_KEPT, MAX_KEPT_VALUES)
        while part := answer.raw.read1(CHUNK, decode_content=False):
            parts.append(part)
            size += len(part)
            values += sum(part.count(each) for each in BETWEEN)
            if size > most:
                raise Refused(f"expected an answer of at most {most} bytes")
            if size > LARGE:
                wait_for_place()
            if values > most_values:
                raise Refused(f"expected an answer of at most {most_values} values")
            if self._now() > deadline:
                raise Refused(f"expected an answer within {MAX_SECONDS:g} s")
        return b"".join(parts)


def _refuse_redirect(answer: requests.Response, url: str) -> None:
    """One origin (RFC 6454 §4) is what was named; where else it leads, no one checked."""
    place = answer.headers.get("Location", "") if answer.status_code in REDIRECTS else ""
    if place and _origin(there := urljoin(url, place)) != _origin(url):
        raise Refused(
            f"expected no redirect to another server, got one to {there[:200]!r}; name that server"
        )


def _origin(url: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError as error:
        raise Refused(f"expected a URL to be redirected to, got {url[:200]!r}") from error
    return parts.scheme, parts.hostname or "", port
