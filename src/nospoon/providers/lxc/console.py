"""The console of a container, by lxc-console(1).

What it says is in its log as well, which the container's monitor writes.
"""

from __future__ import annotations

from nospoon.errors import Gone
from nospoon.runtime.process import Piped

CHUNK = 1 << 16
PREFIX = b"\x01"
"""Ctrl-A, after which lxc-console takes a key for itself; twice, it is typed once."""


class LxcConsole:
    """A `ConsoleStream`: what is written is typed."""

    def __init__(self, piped: Piped) -> None:
        self._piped = piped

    async def read(self) -> bytes:
        """The next bytes; b"" when the container stopped or the stream was closed."""
        return await self._piped.read(CHUNK)

    async def write(self, data: bytes) -> None:
        """Type. Raises `Gone` when the stream has ended."""
        try:
            await self._piped.write(data.replace(PREFIX, PREFIX * 2))
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Gone("the console has ended: the container stopped") from error

    async def send_break(self) -> None:
        """Raises `Gone`: it is not a serial port."""
        raise Gone("the console of a container has no break")

    async def close(self) -> None:
        await self._piped.close()
