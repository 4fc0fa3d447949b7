"""Many listen to one console; it survives power cycles, and is let go by the last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from nospoon.errors import Conflict, Gone, HostUnreachable, ProviderError
from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.cluster import Host
from nospoon.model.connections import Simulated
from nospoon.model.machine import PowerCommand
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Image
from nospoon.providers.base import ConsoleStream
from nospoon.providers.simulated import SimulatedConnection
from nospoon.runtime.clock import monotonic
from nospoon.runtime.tasks import Tasks
from nospoon.services.consoles import reopened
from nospoon.services.consoles.records import Records
from nospoon.services.consoles.reopened import PAUSES, SHORT, Reopened
from nospoon.services.consoles.service import Attached, ConsoleService
from nospoon.testing.racks import Bench, make, rack_for

PLAN = BootPlan((BootDevice.DISK,), (BootDevice.DISK,))


async def nothing(resource: Resource) -> None:
    del resource


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[SimulatedConnection]:
    connection = SimulatedConnection("sim", "kit", lambda: 0.0, records=tmp_path)
    yield connection
    await connection.close()


@pytest.fixture
async def machine(connection: SimulatedConnection) -> UUID:
    image = Image("", "ab" * 32, "raw", 1 << 20)
    rack = rack_for(
        Bench(connection, Host("sim", Simulated()), "kit", "/pools", image, nothing, nothing)
    )
    await make(rack_bench(connection, image), *rack.all)
    return rack.uuid


def rack_bench(connection: SimulatedConnection, image: Image) -> Bench:
    return Bench(connection, Host("sim", Simulated()), "kit", "/pools", image, nothing, nothing)


@pytest.fixture
async def service(connection: SimulatedConnection, tmp_path: Path) -> AsyncIterator[ConsoleService]:
    service = ConsoleService(lambda _: connection.machine_driver, Records(tmp_path))
    service.start()
    async with Tasks("test") as tasks:
        tasks.start(feed(connection, service), name="events")
        yield service
        await service.close()


async def feed(connection: SimulatedConnection, service: ConsoleService) -> None:
    async for event in connection.machine_driver.watch():
        service.machine_event(event)


async def heard(attached: Attached, words: bytes) -> bytes:
    said = b""
    async with asyncio.timeout(20):
        async for data in attached.output():
            said += data
            if words in said:
                break
    return said


async def test_everybody_who_attaches_hears_and_may_type(
    connection: SimulatedConnection, service: ConsoleService, machine: UUID
) -> None:
    await connection.machine_driver.power(machine, PowerCommand.ON, PLAN)
    async with await service.attach(machine) as one, await service.attach(machine) as two:
        await one.write(b"hello")
        assert await heard(one, b"hello")
        await two.write(b"again")
        assert await heard(one, b"again")
        assert b"hello" in await heard(two, b"again")


async def test_the_last_to_leave_lets_the_stream_go(
    connection: SimulatedConnection, service: ConsoleService, machine: UUID
) -> None:
    await connection.machine_driver.power(machine, PowerCommand.ON, PLAN)
    async with await service.attach(machine), await service.attach(machine):
        with pytest.raises(Conflict):
            await connection.machine_driver.console(machine)
    stream = await connection.machine_driver.console(machine)
    with pytest.raises(Conflict):
        await service.attach(machine)
    await stream.close()
    async with await service.attach(machine):
        pass


async def test_a_console_is_heard_again_after_the_machine_was_off(
    connection: SimulatedConnection, service: ConsoleService, machine: UUID
) -> None:
    driver = connection.machine_driver
    async with await service.attach(machine) as attached:
        await driver.power(machine, PowerCommand.ON, PLAN)
        await heard(attached, b"boots")
        await stream_of(service, machine).close()
        await driver.power(machine, PowerCommand.CYCLE, PLAN)
        async with asyncio.timeout(20):
            while True:
                try:
                    await attached.write(b"typed after the cycle")
                    break
                except Gone:
                    await asyncio.sleep(0.01)
        await heard(attached, b"typed after the cycle")


@pytest.mark.parametrize("first", [0, 1])
async def test_a_console_comes_back_when_its_host_was_away_for_a_moment(
    connection: SimulatedConnection, machine: UUID, tmp_path: Path, first: int
) -> None:
    """Only the console's own line was lost: nobody tells of the machine anew. `first`: how often it
    is away when the console is opened.
    """
    driver, is_back, refusals = connection.machine_driver, asyncio.Event(), list[Exception]()

    class Away:
        async def console(self, machine: UUID) -> ConsoleStream:
            if refusals:
                raise refusals.pop()
            is_back.set()
            return await driver.console(machine)

    service = ConsoleService(lambda _: Away(), Records(tmp_path))
    await driver.power(machine, PowerCommand.ON, PLAN)
    refusals += [HostUnreachable("nobody answers")] * first
    async with await service.attach(machine) as attached:
        for _ in range(2):
            async with asyncio.timeout(20):
                await is_back.wait()
            await attached.write(b"typed after all")
            await heard(attached, b"typed after all")
            is_back.clear()
            refusals.append(HostUnreachable("nobody answers"))
            await stream_of(service, machine).close()
    await service.close()


def stream_of(service: ConsoleService, machine: UUID) -> ConsoleStream:
    stream = service._lines[machine].stream
    assert stream is not None
    return stream


async def test_the_record_is_read_from_an_offset_and_followed(
    connection: SimulatedConnection, service: ConsoleService, machine: UUID
) -> None:
    await service.keep({machine: "n"}, group="0/dev")
    await connection.machine_driver.power(machine, PowerCommand.ON, PLAN)
    whole = b"".join([chunk async for chunk in service.read(machine, follow=False)])
    assert b"boots disk" in whole
    assert await service.size(machine) == len(whole)
    later = service.read(machine, follow=True, offset=len(whole))
    await connection.machine_driver.power(machine, PowerCommand.RESET, PLAN)
    async with asyncio.timeout(20):
        assert b"boots disk" in await anext(later)


async def test_a_reader_is_told_what_is_missing_of_a_full_record_and_goes_on(
    service: ConsoleService, machine: UUID, tmp_path: Path
) -> None:
    await service.keep({machine: "n"}, group="0/dev")
    service._records.append(machine, b"first")
    reader = service.read(machine, follow=True)
    assert await anext(reader) == b"first"
    for letter in b"abcd":
        (tmp_path / f"{machine}.d" / f"0000000{letter - ord('`')}.log").write_bytes(bytes([letter]))
    (tmp_path / f"{machine}.d" / "dropped").write_text("3 8")
    assert b"3 bytes were removed here" in await anext(reader)
    assert await anext(reader) == b"d"


async def test_a_machine_that_is_not_there_cannot_be_attached_to(service: ConsoleService) -> None:
    with pytest.raises(Gone):
        await service.attach(UUID(int=1))


async def test_a_node_that_is_removed_ends_its_readers_and_a_new_one_is_heard(
    connection: SimulatedConnection, service: ConsoleService, machine: UUID
) -> None:
    await service.keep({machine: "n"}, group="0/dev")
    await connection.machine_driver.power(machine, PowerCommand.ON, PLAN)
    async with asyncio.timeout(20), await service.attach(machine) as one:
        followed = service.read(machine, follow=True)
        assert b"boots disk" in await anext(followed)
        await one.write(b"hello")
        assert await heard(one, b"hello")
        service.node_removed(machine)
        assert [data async for data in one.output()] == []
        assert one.is_removed
        assert b"".join([data async for data in followed]) in {b"", b"hello"}
    async with await service.attach(machine) as other:
        assert not other.is_removed


async def test_what_a_machine_says_before_its_stream_is_opened_is_heard_as_well(
    connection: SimulatedConnection, machine: UUID, tmp_path: Path
) -> None:
    """On a host with much to do a stream is opened long after the machine began to speak."""
    driver, records, is_open = connection.machine_driver, Records(tmp_path), asyncio.Event()

    class Late:
        async def console(self, machine: UUID) -> ConsoleStream:
            stream = await driver.console(machine) if is_open.is_set() else None
            if stream is None:
                raise ProviderError("it is off")
            return stream

    service = ConsoleService(lambda _: Late(), records)
    await service.keep({machine: "n"}, group="0/dev")
    async with Tasks("test") as tasks:
        tasks.start(feed(connection, service), name="events")
        async with await service.attach(machine) as attached:
            for start in (PowerCommand.ON, PowerCommand.CYCLE):
                before = records.size(machine)
                await driver.power(machine, start, PLAN)
                async with asyncio.timeout(20):
                    async for said in service.read(machine, follow=True, offset=before):
                        if b"boots disk" in said:
                            break
                is_open.set()
                service._lines[machine].runs.set()
                said = await heard(attached, b"boots disk")
                await attached.write(b"typed then")
                said += await heard(attached, b"typed then")
                assert said.count(b"boots disk") == 1
                is_open.clear()
                await stream_of(service, machine).close()
        await service.close()


class Ending:
    """A console that ends whenever it is opened, but for the third time. `opened`: when."""

    def __init__(self) -> None:
        self.opened: list[float] = []

    async def console(self, machine: UUID) -> ConsoleStream:
        del machine
        self.opened.append(monotonic())
        return Piece(b"here" if len(self.opened) > 2 else b"")


class Piece:
    """A stream that says this and no more, or has ended."""

    def __init__(self, said: bytes) -> None:
        self.said, self.ended = said, not said

    async def read(self) -> bytes:
        said, self.said = self.said, b""
        if not said and not self.ended:
            await asyncio.Event().wait()
        return said

    async def write(self, data: bytes) -> None: ...

    async def send_break(self) -> None: ...

    async def close(self) -> None: ...


async def test_a_console_that_ends_whenever_it_is_opened_is_opened_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy of a cloud does so while another program has the console."""
    monkeypatch.setattr(reopened, "SHORT", 3600.0)  # however slow this machine is
    source = Ending()
    service = ConsoleService(lambda _: source, Records(tmp_path))
    async with await service.attach(UUID(int=1)) as attached:
        assert await heard(attached, b"here") == b"here"
    await service.close()
    assert source.opened[2] - source.opened[1] >= PAUSES[1]


def test_a_stream_is_opened_at_once_unless_it_was_short_more_than_once() -> None:
    made = Reopened()
    assert [made.pause(SHORT - 0.1) for _ in range(9)] == [*PAUSES, PAUSES[-1], PAUSES[-1]]
    assert made.pause(SHORT) == 0, "it lasted"
    made.opened = SHORT
    assert [made.pause(SHORT) for _ in range(2)] == [0, 0.5]
