"""The console of a container, by a command that shows it and takes what is typed.

What it says is in its log as well, which another process on its host writes.
"""

from __future__ import annotations

from nospoon.errors import Gone
from nospoon.runtime.process import Piped

CHUNK = 1 << 16


class PipedConsole:
    """A `ConsoleStream`: what is written is typed. `prefix`: a key after which the command takes
    one for itself; twice, it is typed once.
    """

    def __init__(self, piped: Piped, *, prefix: bytes = b"") -> None:
        self._piped, self._prefix = piped, prefix

    async def read(self) -> bytes:
        """The next bytes; b"" when the container stopped or the stream was closed."""
        return await self._piped.read(CHUNK)

    async def write(self, data: bytes) -> None:
        """Type. Raises `Gone` when the stream has ended."""
        if self._prefix:
            data = data.replace(self._prefix, self._prefix * 2)
        try:
            await self._piped.write(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Gone("the console has ended: the container stopped") from error

    async def send_break(self) -> None:
        """Raises `Gone`: it is not a serial port."""
        raise Gone("the console of a container has no break")

    async def close(self) -> None:
        await self._piped.close()
