"""Methods that no HTTP parser knows are not implemented (DSP0266 §6.2): 501, no bad request."""

from __future__ import annotations

import re

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_REQUEST_LINE = re.compile(rb"[A-Z][A-Z0-9!#$%&'*+.^_`|~-]* \S+ HTTP/1\.[01]\r?\n")
_ANSWER = (
    b"HTTP/1.1 501 Not Implemented\r\nOData-Version: 4.0\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)


class RedfishHttp(HttpToolsProtocol):
    """uvicorn's protocol, which would call a well-formed request with such a method malformed."""

    _begins = b""

    def data_received(self, data: bytes) -> None:
        self._begins = data[:1024]
        super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        if _REQUEST_LINE.match(self._begins):
            self.transport.write(_ANSWER)
            self.transport.close()
            return
        super().send_400_response(msg)
