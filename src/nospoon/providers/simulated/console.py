"""A simulated serial port: what the machine says, to one listener and to a record."""

from __future__ import annotations

import asyncio
from pathlib import Path

from nospoon.errors import Conflict


class SimulatedConsole:
    """The interactive stream. A simulated guest echoes what is typed, as a shell would."""

    def __init__(self, port: SerialPort) -> None:
        self._port = port
        self._incoming: asyncio.Queue[bytes] = asyncio.Queue()

    def push(self, data: bytes) -> None:
        self._incoming.put_nowait(data)

    async def read(self) -> bytes:
        return await self._incoming.get()

    async def write(self, data: bytes) -> None:
        self._port.say(data)

    async def send_break(self) -> None:
        """A simulated guest says that it heard it."""
        self._port.say(b"[break]\r\n")

    async def close(self) -> None:
        self._port.listener = None
        self.push(b"")


class SerialPort:
    """The first serial port of a machine. `record`: where its output is kept, None is nowhere."""

    def __init__(self, record: Path | None) -> None:
        self.record = record
        self.listener: SimulatedConsole | None = None

    def say(self, data: bytes) -> None:
        if self.record is not None:
            with self.record.open("ab") as file:
                file.write(data)
        if self.listener is not None:
            self.listener.push(data)

    def open(self) -> SimulatedConsole:
        if self.listener is not None:
            raise Conflict("the console is in use", hint="One at a time.")
        self.listener = SimulatedConsole(self)
        return self.listener
