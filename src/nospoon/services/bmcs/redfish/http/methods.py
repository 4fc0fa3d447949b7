"""Redfish's HTTP: methods that no parser knows are not implemented (DSP0266 §6.2): 501, no bad
request; an answer is one write.
"""

from __future__ import annotations

import asyncio
import re
from http import HTTPMethod, HTTPStatus

import msgspec

from nospoon.runtime.coalescing_transport import CoalescingTransport
from nospoon.runtime.limited_http import INVALID, LimitedHttp
from nospoon.runtime.received import PIECE
from nospoon.services.bmcs.redfish.messages import errors

# A match begins at the first character of a token only, and gives none of it back: strangers send
# what this looks through, and no other thread runs meanwhile.
_REQUEST_LINE = re.compile(
    rb"(?<![A-Z0-9!#$%&'*+.^_`|~-])([A-Z][A-Z0-9!#$%&'*+.^_`|~-]*+) \S++ HTTP/1\.[01]\r?\n"
)
_KNOWN = frozenset(method.value.encode() for method in HTTPMethod)
_HEAD = (
    "HTTP/1.1 {status}\r\nOData-Version: 4.0\r\nCache-Control: no-cache, no-store\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Content-Type: application/json;charset=utf-8\r\nContent-Length: {length}\r\n"
    "Connection: close\r\n\r\n"
)


def _answer(error: errors.RedfishError) -> bytes:
    """As every error is told (DSP0266 §8.6)."""
    body, status = msgspec.json.encode(error.body()), HTTPStatus(error.status)
    line = f"{status.value} {status.phrase}"
    return _HEAD.format(status=line, length=len(body)).encode("ascii") + body


class RedfishHttp(LimitedHttp):
    """The protocol of all listeners, which would call a well-formed request with such a method
    malformed, and tell that as text.

    It need not begin what was received: the body of the request before it may stand there.
    """

    _received_now = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(CoalescingTransport(transport))

    def _feed(self, data: bytes) -> None:
        self._received_now = data + self._unread[:PIECE]
        super()._feed(data)
        self._received_now = b""

    def refusal(self, status: int, why: str) -> bytes:
        unknown = None
        if status == HTTPStatus.BAD_REQUEST and why == INVALID:
            unknown = unknown_method(self._received_now)
        if unknown is None:
            return _answer(errors.general(status, why))
        return _answer(errors.not_implemented(unknown))


def unknown_method(received: bytes) -> str | None:
    """The first method of a request line that no parser knows."""
    lines = (line[1] for line in _REQUEST_LINE.finditer(received))
    return next((method.decode("ascii") for method in lines if method not in _KNOWN), None)
