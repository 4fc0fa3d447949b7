"""The console service: attach, read, follow.

A hypervisor gives one interactive stream per machine. The first to attach opens it, everybody who
attaches reads all of it, what anybody types is sent, and the last to leave closes it. It survives
power cycles: when the machine starts again the stream is opened again.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Protocol, Self
from uuid import UUID

import structlog

from nospoon.errors import Conflict, Gone, HostUnreachable, ProviderError
from nospoon.model.machine import MachineEvent, PowerState
from nospoon.providers.base import ConsoleStream
from nospoon.runtime.clock import monotonic
from nospoon.runtime.joined_bytes import JoinedBytes
from nospoon.runtime.slices import Slices
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.workers import Workers
from nospoon.services.consoles.beginning import beginning
from nospoon.services.consoles.capacity import Capacity, make_room
from nospoon.services.consoles.records import Records, Stamp
from nospoon.services.consoles.reopened import Reopened

log = structlog.get_logger()
UNBOUNDED = Capacity()
CHUNK = 1 << 16
THREADS = 4
"""Users whose records are read at a time: the default executor is everybody's."""
BACKLOG, OF_USER = 4 << 20, 64 << 20
"""Bytes that wait for a slow reader, and for all of one user, before it is disconnected."""
MOST_READERS = 64
"""Of one console, those that wait until it is opened included."""
LOOK_SECONDS = 0.2
"""How often a followed record is looked at: files do not tell that they grew."""
SWEEP_SECONDS = 1.0
ROOM_SECONDS = 10.0
"""How often it is looked whether records take too much of the disk."""
ROOM_REST = 20
"""Times as long as that look took, the next one waits: tens of thousands of records may be kept."""
AGAIN_SECONDS, HELD_SECONDS = 0.5, 60.0
"""Between two tries to open what is held, and for how long to try."""
SOON_SECONDS, CYCLE_SECONDS = 0.05, 3.0
"""Between two tries after a machine stopped, and for how long to try: a power cycle starts it at
once, and firmware may have had its say before that is told.
"""


class Source(Protocol):
    """What the service needs of a machine driver."""

    async def console(self, machine: UUID) -> ConsoleStream: ...


SourceOf = Callable[[UUID], Source]
"""Machine -> the driver of its host. Raises `Gone` for an unknown machine."""


Fetch = Callable[[UUID], Awaitable[None]]
"""Brings the record of a machine of another host up to date."""


async def _nothing_to_fetch(machine: UUID) -> None:
    del machine  # virtlogd writes here


class Waiting(JoinedBytes):
    """What waits for one reader. `of_users`: bytes that wait for all readers of each user."""

    def __init__(self, user: int | None, of_users: Counter[int | None]) -> None:
        super().__init__()
        self._user, self._of_users = user, of_users

    @property
    def is_behind(self) -> bool:
        return self.size >= BACKLOG or (self.size > 0 and self._of_users[self._user] >= OF_USER)

    def put(self, data: bytes) -> None:
        super().put(data)
        self._of_users[self._user] += len(data)

    async def take(self) -> bytes:
        data = await super().take()
        self._of_users[self._user] -= len(data)
        return data

    def drop(self) -> None:
        """The reader has gone: nothing waits."""
        self._of_users[self._user] -= self.size
        self.clear()
        self.end()


@dataclass(slots=True, eq=False)
class Follower:
    """Who reads a record as it grows; `over`: its node was removed, and nothing more comes."""

    over: bool = False


@dataclass(slots=True)
class Line:
    """The stream of one machine and who reads it. `removed`: its node was removed; `heard`: up to
    which offset of its record it was heard, None where that is not known.
    """

    machine: UUID
    readers: set[Waiting] = field(default_factory=set)
    stream: ConsoleStream | None = None
    runs: asyncio.Event = field(default_factory=asyncio.Event)
    pump: asyncio.Task[None] | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    removed: bool = False
    heard: int | None = None

    def spread(self, data: bytes) -> None:
        """Hand data to every reader; one that does not keep up has its queue ended."""
        for queue in list(self.readers):
            if queue.is_behind:
                self.readers.discard(queue)
                queue.end()
            else:
                queue.put(data)
        if self.heard is not None:
            self.heard += len(data)


class Attached:
    """One reader and writer of a console; an async context manager that lets go at its end."""

    def __init__(self, service: ConsoleService, line: Line, user: int | None) -> None:
        self._service, self._line, self._user = service, line, user
        self._queue = Waiting(user, service.waiting)
        line.readers.add(self._queue)

    @property
    def is_removed(self) -> bool:
        """Whether the output has ended because the machine's node was removed."""
        return self._line.removed

    async def output(self) -> AsyncIterator[bytes]:
        """What the machine says from now on; ends when this reader fell too far behind, or when
        the machine's node is removed.
        """
        slice_ = self._service.slices.begin(self._user)
        while data := await self._queue.take():
            if not slice_.share():
                await slice_.rest()
            yield data

    async def write(self, data: bytes) -> None:
        """Type. Raises `Gone` while the machine is off."""
        if self._line.stream is None:
            raise Gone("input is ignored: the machine is off")
        await self._line.stream.write(data)

    async def send_break(self) -> None:
        """Raises `Gone` while the machine is off."""
        if self._line.stream is None:
            raise Gone("no break was sent: the machine is off")
        await self._line.stream.send_break()

    async def close(self) -> None:
        self._line.readers.discard(self._queue)
        self._queue.drop()
        await self._service.leave(self._line)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class ConsoleService:
    """Consoles of all machines. Start it with `start`; give it every machine event."""

    def __init__(
        self,
        source_of: SourceOf,
        records: Records,
        *,
        fetch: Fetch = _nothing_to_fetch,
        capacity: Capacity = UNBOUNDED,
    ) -> None:
        self._source_of, self._records, self._fetch = source_of, records, fetch
        self.capacity = capacity
        self.slices = Slices()
        """Of what is sent to readers: many may read one console, and all get what it says."""
        self.waiting: Counter[int | None] = Counter()
        """Bytes that wait for readers, by user."""
        self._lines: dict[UUID, Line] = {}
        self._followers: defaultdict[UUID, set[Follower]] = defaultdict(set)
        self._tasks = Tasks("consoles")
        self._workers = Workers("console records", THREADS)

    def start(self) -> None:
        """Keep records from being rotated away, and from filling the disk."""
        self._tasks.start(self._sweep(), name="sweep records")
        self._tasks.start(self._make_room(), name="bound records")

    async def keep(self, nodes: Mapping[UUID, str], *, group: str) -> None:
        """Keep the records of these machines, each as a node's of this group."""
        await asyncio.to_thread(self._keep, nodes, group)

    def _keep(self, nodes: Mapping[UUID, str], group: str) -> None:
        for machine, node in nodes.items():
            self._records.keep(machine, group=group, node=node)

    async def kept(self, group: str, node: str, *, user: int = 0) -> UUID | None:
        """The machine whose record is kept for a node, though its cluster may be gone. `user`: who
        asks, here and below; what one user has read waits for no other's.
        """
        return await self._workers.run(user, self._records.find, group, node)

    async def has(self, machine: UUID, *, user: int = 0) -> bool:
        """Whether a record of a machine is kept."""
        return bool(await self._workers.run(user, self._records.group, machine))

    def machine_event(self, event: MachineEvent) -> None:
        """A machine that runs (again) is listened to again."""
        line = self._lines.get(event.uuid)
        if line is not None and event.power is PowerState.ON:
            line.runs.set()

    def node_removed(self, machine: UUID) -> None:
        """Its node is no more: those who listen hear what was said, and that it is over."""
        for follower in self._followers.get(machine, ()):
            follower.over = True
        line = self._lines.get(machine)
        if line is not None:
            line.removed = True
            for queue in line.readers:
                queue.end()
            line.readers.clear()

    async def attach(self, machine: UUID, *, user: int | None = None) -> Attached:
        """Listen and type. A machine that is off is heard once it runs. `user`: who does; of a
        client of its BMC, whose machine it is.

        Raises `Conflict` when someone else has the stream or too many read it, `Gone` for no
        machine of ours.
        """
        line = self._lines.get(machine)
        if line is None or line.removed:
            line = self._lines[machine] = Line(machine)
        if len(line.readers) >= MOST_READERS:
            raise Conflict("the console has too many readers", hint=f"At most {MOST_READERS}.")
        attached = Attached(self, line, user)
        try:
            async with line.opening:
                if line.pump is None:
                    line.runs.clear()
                    line.heard = None
                    try:
                        line.stream = await self._open(line)
                        if line.stream is None:  # it may be started as soon as this returns
                            line.heard = await self.size(machine)
                    except HostUnreachable:
                        line.runs.set()  # it may be back in a moment
                    line.pump = self._tasks.start(self._pump(line), name=f"console {machine}")
        except BaseException:
            await attached.close()
            raise
        return attached

    async def _open(self, line: Line) -> ConsoleStream | None:
        """The stream, or None while the machine is off. Raises `HostUnreachable`."""
        source = self._source_of(line.machine)
        try:
            return await source.console(line.machine)
        except (Conflict, Gone, HostUnreachable):
            raise
        except ProviderError as error:
            log.debug("no console yet", machine=str(line.machine), why=str(error))
            return None

    async def _pump(self, line: Line) -> None:
        slice_, reopened = self.slices.begin(line.machine), Reopened()
        while True:
            if line.stream is None:
                await line.runs.wait()
                line.runs.clear()
            else:
                reopened.opened = monotonic()
                data = await self._beginning(line, line.stream)
                while data or (data := await line.stream.read()):
                    if not slice_.share():
                        await slice_.rest()
                    line.spread(data)
                    data = b""
                stream, line.stream = line.stream, None
                await stream.close()
                if line.heard is None:
                    line.heard = await self.size(line.machine)
                await asyncio.sleep(reopened.pause(monotonic()))
            try:
                # at once: what ended may be no more than the line to the host of one that runs on
                line.stream = await self._again(line) or await self._soon(line)
            except Gone as error:
                log.warning("console lost", machine=str(line.machine), why=str(error))

    async def _beginning(self, line: Line, stream: ConsoleStream) -> bytes:
        """What readers hear first of a stream: of one that is opened again, all that the machine
        said since the earlier one. They attached to the first one to hear what is said from now on.
        """
        if line.heard is None or not await self.has(line.machine):
            return b""

        async def read(offset: int, limit: int) -> tuple[int, bytes]:
            return await self._workers.run(0, self._records.read, line.machine, offset, limit)

        begun = await beginning(stream, read, partial(self.size, line.machine), line.heard)
        line.heard = begun.offset
        return begun.said

    async def _again(self, line: Line) -> ConsoleStream | None:
        """The stream of a machine that runs again. A host that was away for a moment may be so
        still, and may hold the earlier one until it sees that no one is there any more; one that is
        away for longer tells of its machines when it is back. Raises `Gone`.
        """
        end = monotonic() + HELD_SECONDS
        while True:
            try:
                return await self._open(line)
            except (Conflict, HostUnreachable) as error:
                if monotonic() > end:
                    log.warning("console lost", machine=str(line.machine), why=str(error))
                    return None
            await asyncio.sleep(AGAIN_SECONDS)

    async def _soon(self, line: Line) -> ConsoleStream | None:
        """The stream of a machine that is started again, as soon as there is one. Raises `Gone`."""
        end = monotonic() + CYCLE_SECONDS
        while monotonic() < end:
            with suppress(TimeoutError):
                async with asyncio.timeout(SOON_SECONDS):
                    await line.runs.wait()
            line.runs.clear()
            with suppress(Conflict, HostUnreachable):
                if (stream := await self._open(line)) is not None:
                    return stream
        return None

    async def leave(self, line: Line) -> None:
        """Close the stream after the last reader left."""
        async with line.opening:
            if line.readers:
                return
            pump, line.pump = line.pump, None
            if pump is not None:
                pump.cancel()
                await asyncio.wait({pump})
            stream, line.stream = line.stream, None
            if stream is not None:
                await stream.close()
            # only now: who attaches meanwhile waits, and does not open it a second time
            if not line.readers and self._lines.get(line.machine) is line:
                del self._lines[line.machine]

    async def size(self, machine: UUID, *, user: int = 0) -> int:
        """Bytes recorded so far, as an offset: also those that the record has no more."""
        await self._fetch(machine)
        return await self._workers.run(user, self._records.size, machine)

    async def stamp(self, machine: UUID, *, user: int = 0) -> Stamp:
        """Another one when something was recorded since, or dropped."""
        await self._fetch(machine)
        return await self._workers.run(user, self._records.stamp, machine)

    async def read(
        self, machine: UUID, *, follow: bool, offset: int = 0, user: int = 0
    ) -> AsyncIterator[bytes]:
        """The record from this offset to its end; with `follow` until its node is removed. Where
        bytes are missing because the record is full, a line says so.
        """
        await self._fetch(machine)
        follower = Follower(over=not follow)
        self._followers[machine].add(follower)
        try:
            while True:
                last = follower.over
                at, data = await self._workers.run(user, self._records.read, machine, offset, CHUNK)
                if at != offset:
                    yield _missing(at - offset)
                    offset = at
                if data:
                    offset += len(data)
                    yield data
                elif last:
                    return
                elif not follower.over:
                    await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._followers[machine].discard(follower)
            if not self._followers[machine]:
                del self._followers[machine]

    async def pieces(
        self, machine: UUID, *, offset: int, user: int = 0
    ) -> AsyncIterator[tuple[int, bytes]]:
        """(Offset of its first byte, piece) of the record from this offset to its end now. Bytes
        that are missing because the record is full are in no piece.
        """
        await self._fetch(machine)
        while True:
            at, data = await self._workers.run(user, self._records.read, machine, offset, CHUNK)
            if not data:
                return
            yield at, data
            offset = at + len(data)

    async def tail(self, machine: UUID, most: int, *, user: int = 0) -> bytes:
        """The end of the record, at most so many bytes."""
        await self._fetch(machine)
        return await self._workers.run(user, self._records.tail, machine, most)

    async def _sweep(self) -> None:
        while True:
            await asyncio.to_thread(self._records.sweep)
            await asyncio.sleep(SWEEP_SECONDS)

    async def _make_room(self) -> None:
        while True:
            began = monotonic()
            await asyncio.to_thread(make_room, self._records, self.capacity)
            await asyncio.sleep(max(ROOM_SECONDS, ROOM_REST * (monotonic() - began)))

    async def close(self) -> None:
        async with asyncio.TaskGroup() as group:  # one whose host hangs takes tens of seconds
            for line in list(self._lines.values()):
                line.readers.clear()
                group.create_task(self.leave(line))
        await self._tasks.close()
        self._workers.close()


def _missing(amount: int) -> bytes:
    """What a reader is told; `amount` below 0: of a record that was made shorter at its place."""
    what = f"{amount} bytes were" if amount > 0 else "The beginning was"
    return f"\r\n[nospoon: {what} removed here, because the record was full]\r\n".encode()
