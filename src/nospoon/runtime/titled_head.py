"""A transport that writes names of headers with capitals, as `Content-Length`.

They mean the same in any case (RFC 9110 §5.1), but not to every boot loader.
"""

from __future__ import annotations

import asyncio


class TitledHead(asyncio.Transport):
    """For one answer, whose head is its first write, after any interim answer (1xx)."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport, self._head = transport, True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._head and not bytes(data[:10]).startswith(b"HTTP/1.1 1"):
            self._head = False
            data = _titled(bytes(data))
        self._transport.write(data)

    def close(self) -> None:
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


def _titled(head: bytes) -> bytes:
    lines = head.split(b"\r\n")
    for number, line in enumerate(lines[1:], 1):
        name, colon, value = line.partition(b":")
        lines[number] = name.title() + colon + value
    return b"\r\n".join(lines)
