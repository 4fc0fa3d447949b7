"""A simulated serial port: what the machine says, to one listener and to a record."""

from __future__ import annotations

from uuid import UUID

from nospoon.errors import Conflict
from nospoon.providers.recorder import Recorder
from nospoon.runtime.joined_bytes import JoinedBytes


class SimulatedConsole:
    """The interactive stream. A simulated guest echoes what is typed, as a shell would."""

    def __init__(self, port: SerialPort) -> None:
        self._port = port
        self._incoming = JoinedBytes()

    def push(self, data: bytes) -> None:
        self._incoming.put(data)

    async def read(self) -> bytes:
        return await self._incoming.take()

    async def write(self, data: bytes) -> None:
        self._port.say(data)

    async def send_break(self) -> None:
        """A simulated guest says that it heard it."""
        self._port.say(b"[break]\r\n")

    async def close(self) -> None:
        self._port.listener = None
        self._incoming.end()


class SerialPort:
    """The first serial port of a machine; its output goes to its listener and its record."""

    def __init__(self, machine: UUID, recorder: Recorder, user: int | None = None) -> None:
        self._machine, self._recorder, self._user = machine, recorder, user
        self.listener: SimulatedConsole | None = None

    def say(self, data: bytes) -> None:
        self._recorder.take(self._machine, data, self._user)
        if self.listener is not None:
            self.listener.push(data)

    def open(self) -> SimulatedConsole:
        if self.listener is not None:
            raise Conflict("the console is in use", hint="One at a time.")
        self.listener = SimulatedConsole(self)
        return self.listener
