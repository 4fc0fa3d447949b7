"""A queue of bytes that joins what is put into it."""

from __future__ import annotations

import asyncio

PIECE = 1 << 16
"""Bytes that are taken at a time."""


class JoinedBytes:
    """Bytes for one reader, who takes all that waits in a few pieces, however small the parts were
    that came: what is done for each piece is costly, and who sends chooses the parts.
    """

    def __init__(self) -> None:
        self._waiting, self._ended, self._ready = bytearray(), False, asyncio.Event()

    @property
    def size(self) -> int:
        """Bytes that wait."""
        return len(self._waiting)

    def put(self, data: bytes) -> None:
        if data:
            self._waiting += data
            self._ready.set()

    def clear(self) -> None:
        """Nothing waits any more."""
        self._waiting.clear()

    def end(self) -> None:
        """The reader gets what waits, and then the end."""
        self._ended = True
        self._ready.set()

    async def take(self) -> bytes:
        """The next bytes, at most `PIECE`; b"": the end, ever after."""
        await self._ready.wait()
        taken = bytes(self._waiting[:PIECE])
        del self._waiting[:PIECE]
        if not self._waiting and not self._ended:
            self._ready.clear()
        return taken
