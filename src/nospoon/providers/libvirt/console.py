"""The interactive stream of a serial port: libvirt's non-blocking stream as awaitable bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, TypeVarTuple
from uuid import UUID

import libvirt

from nospoon.errors import Gone, NospoonError, ProviderError
from nospoon.providers.libvirt.bindings import Connect, Domain, Stream
from nospoon.providers.libvirt.hypervisor import Hypervisor
from nospoon.providers.libvirt.monitor import execute
from nospoon.runtime.joined_bytes import JoinedBytes
from nospoon.runtime.tasks import Tasks

R = TypeVar("R")
Ts = TypeVarTuple("Ts")
CHUNK = 1 << 16
CHARDEV = "charserial0"
"""What libvirt calls the first serial port's backend."""
WOULD_BLOCK = -2
READABLE = (
    libvirt.VIR_STREAM_EVENT_READABLE
    | libvirt.VIR_STREAM_EVENT_ERROR
    | libvirt.VIR_STREAM_EVENT_HANGUP
)


@dataclass(frozen=True, slots=True)
class _Attached:
    connect: Connect
    domain: Domain
    stream: Stream


class LibvirtConsole:
    """A `ConsoleStream`, on a connection of its own. libvirt's thread puts what it read on the
    loop; b"" is the end.

    A stream that does not block on the way in does on the way out: libvirtd stops to read from a
    connection while five of its messages wait (`max_client_requests`), and a guest that does not
    read its serial port lets them wait. So whatever is sent there is sent in a thread of this
    console, and its end, which may wait as well, in another one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._typing = ThreadPoolExecutor(1, thread_name_prefix="console typing")
        self._closing = ThreadPoolExecutor(1, thread_name_prefix="console end")
        self._turn = asyncio.Lock()
        self._attached: _Attached | None = None
        self._incoming = JoinedBytes()
        self._writable = asyncio.Event()

    def open(self, connect: Connect, domain: Domain) -> int:
        """In a worker thread: attach to the first serial port, and keep the connection. The ID of
        the machine's run, which has to be `same_run` after this.
        """
        stream = connect.newStream(libvirt.VIR_STREAM_NONBLOCK)
        domain.openConsole(None, stream, 0)
        try:
            stream.eventAddCallback(READABLE, self._ready, None)
            connect.registerCloseCallback(self._lost, None)
        except libvirt.libvirtError:
            stream.eventRemoveCallback()
            stream.abort()
            raise
        self._attached = _Attached(connect, domain, stream)
        return int(domain.ID())

    def _ready(self, stream: Stream, events: int, _opaque: object) -> None:
        """In libvirt's event thread."""
        if events & libvirt.VIR_STREAM_EVENT_WRITABLE:
            stream.eventUpdateCallback(READABLE)
            self._loop.call_soon_threadsafe(self._writable.set)
        if not events & READABLE:
            return
        try:
            data = stream.recv(CHUNK)
        except libvirt.libvirtError:
            data = b""
        if isinstance(data, int):
            return  # it would block
        if not data:
            stream.eventRemoveCallback()
            self._loop.call_soon_threadsafe(self._writable.set)  # no one writes any more
            self._loop.call_soon_threadsafe(self._incoming.end)
        else:
            self._loop.call_soon_threadsafe(self._incoming.put, data)

    def _lost(self, _connect: object, _reason: int, _opaque: object) -> None:
        """In libvirt's event thread: the connection is gone. Its streams tell no one."""
        with suppress(RuntimeError):  # the loop has ended: no one listens
            self._loop.call_soon_threadsafe(self._writable.set)
            self._loop.call_soon_threadsafe(self._incoming.end)

    async def read(self) -> bytes:
        """The next bytes; b"" when the machine stopped, the host went away or the stream was
        closed, ever after.
        """
        return await self._incoming.take()

    async def write(self, data: bytes) -> None:
        """Type. Raises `Gone` when the stream has ended."""
        rest = data
        async with self._turn:
            while rest:
                stream = self._must().stream
                try:
                    sent = await self._in(self._typing, stream.send, rest)
                except libvirt.libvirtError as error:
                    raise Gone("the console has ended: the machine stopped") from error
                if sent == WOULD_BLOCK:
                    self._writable.clear()
                    stream.eventUpdateCallback(READABLE | libvirt.VIR_STREAM_EVENT_WRITABLE)
                    await self._writable.wait()
                else:
                    rest = rest[sent:]

    async def send_break(self) -> None:
        """By QEMU's monitor: a libvirt stream carries bytes only. Raises `Gone`."""
        async with self._turn:
            send = partial(execute, self._must().domain, "chardev-send-break", id=CHARDEV)
            try:
                await self._in(self._typing, send)
            except libvirt.libvirtError as error:
                raise Gone("no break was sent: the machine stopped") from error

    async def close(self) -> None:
        """Let go, so that another may attach."""
        attached, self._attached = self._attached, None
        if attached is None:
            return
        self._writable.set()  # who waits to write learns that it is closed
        try:
            await self._in(self._closing, _abort, attached)
        finally:
            self._typing.shutdown(wait=False, cancel_futures=True)
            self._closing.shutdown(wait=False)
        self._incoming.end()

    def _must(self) -> _Attached:
        """Raises `Gone`."""
        if self._attached is None:
            raise Gone("the console was closed")
        return self._attached

    async def _in(self, thread: ThreadPoolExecutor, call: Callable[[*Ts], R], *args: *Ts) -> R:
        return await self._loop.run_in_executor(thread, call, *args)


def same_run(domain: Domain, run: int) -> None:
    """Hear from the QEMU whose console was opened that it lives. Raises `ProviderError` when it
    does not.

    libvirt opens the pseudo-terminal by its name, and holds a machine for one that runs until some
    200 ms after its QEMU ended (qemuProcessKill). Meanwhile the kernel gives the name to whoever
    opens the next one, as another machine's QEMU. One that lives afterwards had it all the time.
    """
    try:
        domain.ioThreadInfo(libvirt.VIR_DOMAIN_AFFECT_LIVE)  # asks QEMU, also while a job runs
    except libvirt.libvirtError as error:
        raise ProviderError("the machine stopped while its console was opened") from error
    if domain.ID() != run:
        raise ProviderError("the machine was restarted while its console was opened")


async def attached(
    hypervisor: Hypervisor, find: Callable[[Connect], Domain], machine: UUID, tasks: Tasks
) -> LibvirtConsole:
    """An open console of a machine. Who is cancelled meanwhile leaves none behind: a machine has
    one, which no one else could attach to then.
    """
    console, doing = LibvirtConsole(asyncio.get_running_loop()), f"open the console of {machine}"

    async def opened() -> NospoonError | None:
        try:
            run = await hypervisor.take(lambda connect: console.open(connect, find(connect)), doing)
            await hypervisor.ask(lambda connect: same_run(find(connect), run), doing)
        except NospoonError as error:
            await console.close()
            return error
        return None

    opening = tasks.start(opened(), name=doing)
    try:
        error = await asyncio.shield(opening)
    except asyncio.CancelledError:
        tasks.start(_left(opening, console), name=f"leave the console of {machine}")
        raise
    if error is not None:
        raise error
    return console


async def _left(opening: asyncio.Task[NospoonError | None], console: LibvirtConsole) -> None:
    await asyncio.wait([opening])
    await console.close()


def _abort(attached: _Attached) -> None:
    connect, stream = attached.connect, attached.stream
    ends = (
        connect.unregisterCloseCallback, stream.eventRemoveCallback, stream.abort, connect.close,
    )  # fmt: skip
    for end in ends:
        try:
            end()
        except libvirt.libvirtError:
            continue  # the machine or the host went first, and the stream with it
