"""Serial over LAN: sessions attached to consoles. A task exists while one is, and no longer."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from nospoon.errors import Gone, NospoonError
from nospoon.protocols.ipmi.endpoint import Typed
from nospoon.protocols.ipmi.sol import Retries, Sol
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.udp import Peer, UdpSocket
from nospoon.services.bmcs.ports import ConsoleLine, Consoles

if TYPE_CHECKING:
    from nospoon.services.bmcs.served import Served

log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class Line:
    """An activation and the console that it is attached to."""

    served: Served
    opened: UdpSocket
    sol: Sol
    attached: ConsoleLine
    typed: deque[Typed] = field(default_factory=deque)
    writer: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None

    @property
    def is_active(self) -> bool:
        return self.served.endpoint.sol is self.sol

    def send(self, payloads: Iterable[bytes]) -> None:
        """To where the session was heard last."""
        for payload in payloads:
            sent = self.served.endpoint.serial(payload, random=secrets.token_bytes)
            if sent is not None and isinstance(sent.to, Peer):
                self.opened.send(sent.data, sent.to)


class SolLines:
    """The activations of all BMCs."""

    def __init__(self, consoles: Consoles, tasks: Tasks) -> None:
        self._consoles, self._tasks = consoles, tasks
        self._lines: dict[Sol, Line] = {}

    def activate(
        self, opened: UdpSocket, served: Served, session: int, answer: Callable[[bool], None]
    ) -> None:
        """Attach a session; `answer` is told whether that worked."""
        settings = served.aggregate.runtime.settings.sol
        retries = Retries(settings.retries, settings.retry_interval / 100)
        sol = served.endpoint.sol = Sol(session, retries=retries)
        self._tasks.start(
            self._run(opened, served, sol, answer), name=f"SOL of {served.config.node}"
        )

    async def _run(
        self, opened: UdpSocket, served: Served, sol: Sol, answer: Callable[[bool], None]
    ) -> None:
        try:
            attached = await self._consoles.attach(served.bmc.uuid)
        except NospoonError as error:
            log.warning("no console for SOL", node=served.config.node, why=str(error))
            if served.endpoint.sol is sol:
                served.endpoint.sol = None
            answer(False)  # noqa: FBT003  (the callback's one argument)
            return
        if served.endpoint.sol is not sol:  # its session ended meanwhile, or somebody ended it
            await attached.close()
            answer(False)  # noqa: FBT003  (the callback's one argument)
            return
        line = self._lines[sol] = Line(served, opened, sol, attached)
        try:
            answer(True)  # noqa: FBT003  (the callback's one argument)
            await self._pump(line)
        finally:
            await self._close(line)

    async def _pump(self, line: Line) -> None:
        self._set_timer(line)
        async for data in line.attached.output():
            if not line.is_active:
                return
            line.send(line.sol.say(data, self._now))
            self._set_timer(line)

    async def _close(self, line: Line) -> None:
        """A console that ended by itself ends the activation, too."""
        del self._lines[line.sol]
        if line.timer is not None:
            line.timer.cancel()
        if line.is_active:
            line.send([line.sol.end()])
            line.served.endpoint.sol = None
        await line.attached.close()

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _set_timer(self, line: Line) -> None:
        """For what was not acknowledged, and for the end of the session."""
        if line.timer is not None:
            line.timer.cancel()
        times = (line.sol.deadline, line.served.endpoint.deadline)
        at = min((each for each in times if each is not None), default=None)
        if at is not None:
            line.timer = asyncio.get_running_loop().call_at(at, self._expired, line)

    def _expired(self, line: Line) -> None:
        line.timer = None
        line.served.endpoint.expire(self._now)
        self.check(line.served, line.sol)
        if line.is_active:
            line.send(line.sol.expire(self._now))
            self._set_timer(line)

    def heard(self, served: Served) -> None:
        """A packet of the console came: what waits for when has changed."""
        line = self._lines.get(served.endpoint.sol) if served.endpoint.sol is not None else None
        if line is not None:
            self._set_timer(line)

    def typed(self, served: Served, typed: Typed) -> None:
        """Type at the console, in order; what nobody hears is lost, as on a wire."""
        line = self._lines.get(served.endpoint.sol) if served.endpoint.sol is not None else None
        if line is None:
            return
        line.typed.append(typed)
        if line.writer is None:
            line.writer = self._tasks.start(self._write(line), name="SOL typing")

    async def _write(self, line: Line) -> None:
        try:
            while line.typed:
                typed = line.typed.popleft()
                if typed.data:
                    await line.attached.write(typed.data)
                if typed.breaks:
                    await line.attached.send_break()
        except Gone:
            line.typed.clear()
        finally:
            line.writer = None

    def deactivate(self, served: Served) -> None:
        """End what is active, and tell its console."""
        sol = served.endpoint.sol
        line = self._lines.get(sol) if sol is not None else None
        if line is not None:
            line.send([line.sol.end()])
        served.endpoint.sol = None
        self.check(served, sol)

    def check(self, served: Served, sol: Sol | None) -> None:
        """Let go of the console of an activation that ended with its session."""
        line = self._lines.get(sol) if sol is not None else None
        if line is not None and served.endpoint.sol is not sol:
            self._tasks.start(line.attached.close(), name="SOL detach")
