"""Serial over LAN: sessions attached to consoles. A task exists while one is, and no longer."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nospoon.bmc.runtime import SolSettings
from nospoon.errors import Gone, NospoonError
from nospoon.protocols.ipmi.endpoint import Typed
from nospoon.protocols.ipmi.sol import Retries, Sol
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.udp import Peer, UdpSocket
from nospoon.services.bmcs.ports import ConsoleLine, Consoles

if TYPE_CHECKING:
    from nospoon.services.bmcs.served import Served

log = RateLimitedLog()
Answer = Callable[[bool], None]
WAITING = 64
"""Packets of one console that wait while the guest does not read; further ones are lost."""
SHORTEST = 0.1
"""Seconds after which a packet without an acknowledgement is sent again, or given up."""
CROSSES = 0.5
"""Seconds within which a question may come that was asked again before its answer was there."""


@dataclass(slots=True, eq=False)
class Line:
    """An activation and the console that it is attached to, `since` when by the loop's clock."""

    served: Served
    opened: UdpSocket
    sol: Sol
    attached: ConsoleLine
    since: float
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


def retries(settings: SolSettings) -> Retries:
    """As they are set (§26, parameter 4), but not without a pause: a client chooses that, and where
    the packets go, by the source of one packet of its session, which may be forged.
    """
    return Retries(settings.retries, max(settings.retry_interval / 100, SHORTEST))


class SolLines:
    """The activations of all BMCs."""

    def __init__(self, consoles: Consoles, tasks: Tasks) -> None:
        self._consoles, self._tasks = consoles, tasks
        self._lines: dict[Sol, Line] = {}
        self._asked: dict[Sol, Answer] = {}
        """What was asked last for a console that is being opened: a client asks again after a
        second, and takes one answer. ipmitool lets go of a console on which it hears a second.
        """

    def activate(self, opened: UdpSocket, served: Served, session: int, answer: Answer) -> None:
        """Attach a session; `answer` is told whether that worked."""
        sol = served.endpoint.sol
        if sol is not None and sol.session == session:
            self._answer_again(sol, answer)
            return
        wanted = retries(served.aggregate.runtime.settings.sol)
        sol = served.endpoint.sol = Sol(session, retries=wanted)
        self._asked[sol] = answer
        self._tasks.start(self._run(opened, served, sol), name=f"SOL of {served.config.node}")

    def _answer_again(self, sol: Sol, answer: Answer) -> None:
        line = self._lines.get(sol)
        if line is None:
            self._asked[sol] = answer
        elif self._now > line.since + CROSSES:
            answer(True)  # noqa: FBT003  (the callback's one argument)

    def _answer(self, sol: Sol, worked: bool) -> None:  # noqa: FBT001  (as what it calls)
        self._asked.pop(sol)(worked)

    async def _run(self, opened: UdpSocket, served: Served, sol: Sol) -> None:
        try:
            owner = served.config.owner  # of other users' clients none are disconnected for it
            attached = await self._consoles.attach(served.bmc.uuid, user=owner)
        except NospoonError as error:
            log.warning(
                "no console for SOL",
                node=served.config.node,
                machine=str(served.config.machine.uuid),
                why=str(error),
            )
            if served.endpoint.sol is sol:
                served.endpoint.sol = None
            self._answer(sol, False)  # noqa: FBT003  (as what it calls)
            return
        if served.endpoint.sol is not sol:  # its session ended meanwhile, or someone ended it
            await attached.close()
            self._answer(sol, False)  # noqa: FBT003  (as what it calls)
            return
        line = self._lines[sol] = Line(served, opened, sol, attached, self._now)
        try:
            self._answer(sol, True)  # noqa: FBT003  (as what it calls)
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
        """Type at the console, in order; what no one hears is lost, as on a wire."""
        line = self._lines.get(served.endpoint.sol) if served.endpoint.sol is not None else None
        if line is None or len(line.typed) >= WAITING:
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
