"""Redfish's HTTP: methods that no parser knows are not implemented (DSP0266 §6.2): 501, no bad
request; an answer is one write.
"""

from __future__ import annotations

import asyncio
import re
from http import HTTPMethod

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from nospoon.runtime.joined import Joined
from nospoon.services.bmcs.redfish import errors

_REQUEST_LINE = re.compile(rb"([A-Z][A-Z0-9!#$%&'*+.^_`|~-]*) \S+ HTTP/1\.[01]\r?\n")
_KNOWN = frozenset(method.value.encode() for method in HTTPMethod)
_HEAD = (
    "HTTP/1.1 501 Not Implemented\r\nOData-Version: 4.0\r\nCache-Control: no-cache\r\n"
    "Content-Type: application/json;charset=utf-8\r\nContent-Length: {length}\r\n"
    "Connection: close\r\n\r\n"
)


def _answer(method: str) -> bytes:
    """What every error is told as (DSP0266 §8.6)."""
    body = msgspec.json.encode(errors.not_implemented(method).body())
    return _HEAD.format(length=len(body)).encode("ascii") + body


class RedfishHttp(HttpToolsProtocol):
    """uvicorn's protocol, which would call a well-formed request with such a method malformed.

    It need not begin what was received: the body of the request before it may stand there.
    """

    _received = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(Joined(transport))

    def data_received(self, data: bytes) -> None:
        self._received = data
        super().data_received(data)
        self._received = b""

    def send_400_response(self, msg: str) -> None:
        for line in _REQUEST_LINE.finditer(self._received):
            if line[1] not in _KNOWN:
                self.transport.write(_answer(line[1].decode("ascii")))
                self.transport.close()
                return
        super().send_400_response(msg)
