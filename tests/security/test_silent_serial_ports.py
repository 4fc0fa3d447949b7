"""Guests that do not read their serial port: who types there holds up nobody else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any, cast
from uuid import UUID

import pytest

from nospoon.errors import Gone
from nospoon.protocols.ipmi.endpoint import Typed
from nospoon.providers.libvirt.console import LibvirtConsole
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.sol import WAITING, SolLines
from nospoon.testing.bench import MemoryConsoles, bench

LONGEST = 20.0
"""Seconds after which a send returns by itself: the test has failed by then."""


class StuckStream:
    """One whose `send` waits until the connection ends, as libvirt's does while libvirtd does not
    read. `freed`: how each `send` came back, by its end or after all that time.
    """

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()
        self.freed: list[bool] = []

    def newStream(self, _flags: int) -> StuckStream:  # noqa: N802  (libvirt's name)
        return self

    def openConsole(self, *_: object) -> None:  # noqa: N802  (libvirt's name)
        """Opened."""

    def ID(self) -> int:  # noqa: N802  (libvirt's name)
        return 1

    def eventAddCallback(self, *_: object) -> None:  # noqa: N802  (libvirt's name)
        """Nothing comes."""

    def send(self, data: bytes) -> int:
        self.begun.set()
        self.freed.append(self.ended.wait(LONGEST))
        return len(data)

    def registerCloseCallback(self, *_: object) -> None:  # noqa: N802  (libvirt's name)
        """Never lost."""

    def unregisterCloseCallback(self) -> None:  # noqa: N802  (libvirt's name)
        """Nothing is told."""

    def eventRemoveCallback(self) -> None:  # noqa: N802  (libvirt's name)
        """Nothing is told."""

    def abort(self) -> None:
        """The stream ends by what follows."""

    def close(self) -> None:
        self.ended.set()


async def opened() -> tuple[LibvirtConsole, StuckStream]:
    stream, console = StuckStream(), LibvirtConsole(asyncio.get_running_loop())
    console.open(cast("Any", stream), cast("Any", stream))
    return console, stream


async def test_typing_at_a_guest_that_does_not_read_does_not_stop_the_loop() -> None:
    console, stream = await opened()
    async with asyncio.TaskGroup() as group:
        group.create_task(console.write(b"x"))
        await asyncio.to_thread(stream.begun.wait)
        stream.close()  # only a loop that goes on gets here in time
    assert stream.freed == [True]
    await console.close()


async def test_a_console_at_which_typing_waits_can_be_closed() -> None:
    console, stream = await opened()
    async with asyncio.TaskGroup() as group:
        group.create_task(console.write(b"x"))
        await asyncio.to_thread(stream.begun.wait)
        await console.close()
    assert stream.freed == [True]
    with pytest.raises(Gone):
        await console.write(b"y")
    with pytest.raises(Gone):
        await console.send_break()


class SlowLine:
    """At which typing waits for `read`."""

    def __init__(self) -> None:
        self.read, self.typed = asyncio.Event(), asyncio.Queue[bytes]()

    async def attach(self, _machine: UUID, *, user: int) -> SlowLine:
        del user
        return self

    async def output(self) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async def write(self, data: bytes) -> None:
        await self.read.wait()
        self.typed.put_nowait(data)

    async def send_break(self) -> None:
        """Nobody hears it."""

    async def close(self) -> None:
        """Nothing is open."""


async def test_what_is_typed_over_lan_meanwhile_is_bounded() -> None:
    async with bench(1) as b, Tasks("typing") as tasks:
        served, console, active = b.service.status(b.first.bmc.uuid), SlowLine(), asyncio.Event()
        assert served is not None
        lines = SolLines(console, tasks)
        lines.activate(cast("Any", None), served, 1, lambda _: active.set())
        await active.wait()
        lines.typed(served, Typed(b"first"))
        await asyncio.sleep(0)  # which is under way from now on
        for number in range(3 * WAITING):
            lines.typed(served, Typed(bytes([number])))
        console.read.set()
        async with asyncio.timeout(20):
            typed = [await console.typed.get() for _ in range(1 + WAITING)]
            lines.typed(served, Typed(b"last"))
            assert await console.typed.get() == b"last"
        assert typed == [b"first", *(bytes([number]) for number in range(WAITING))]


async def test_what_waits_for_clients_of_bmcs_counts_for_the_owner_of_their_machine() -> None:
    """It counted for all of them together: where 64 MiB wait, who has something is disconnected."""
    async with bench(2) as b, Tasks("consoles") as tasks:
        consoles = MemoryConsoles()
        lines = SolLines(consoles, tasks)
        for owner, config in zip((1000, 1001), b.configs, strict=True):
            await b.service.put(replace(config, owner=owner))
            served, active = b.service.status(config.bmc.uuid), asyncio.Event()
            assert served is not None
            lines.activate(cast("Any", None), served, 1, partial(_set, active))
            async with asyncio.timeout(20):
                await active.wait()
        assert consoles.users == [1000, 1001]


def _set(event: asyncio.Event, _worked: object) -> None:
    event.set()
