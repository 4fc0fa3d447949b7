"""The BMC service itself: addresses, sockets, what is durable, and what is told in which order."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Self
from uuid import UUID, uuid4

import pytest

from nospoon.bmc.messages import OverrideRequested, SettingsRequested, Verdict
from nospoon.bmc.runtime import Runtime, Settings
from nospoon.bmc.users import User
from nospoon.errors import (
    Conflict,
    Gone,
    HostUnreachable,
    NotFound,
    ProviderError,
    UsageError,
)
from nospoon.model.boot import BootDevice, BootOverride, BootPlan, OverrideEnabled
from nospoon.model.machine import MachineChange, MachineEvent, Outcome, PowerCommand, PowerState
from nospoon.runtime import process
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.services.bmcs.service import BmcService
from nospoon.testing.bench import (
    ORDER,
    Bench,
    MemoryMachines,
    MemoryStore,
    bench,
    config,
    endpoint,
    free_port,
)
from nospoon.testing.console import Console, plain
from nospoon.testing.redfish import client, system_of

ONCE = BootOverride(BootDevice.NETWORK, OverrideEnabled.ONCE)
POWER_STATUS = (0x00, 0x01)


class Line:
    """A UDP client on the test's own loop."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(0)
        self.socket.connect((host, port))

    async def ask(self, data: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self.socket, data)
        async with asyncio.timeout(20):
            return await loop.sock_recv(self.socket, 2048)

    async def log_in(self, each: BmcConfig) -> Console:
        console = Console(each.bmc.username.encode(), each.password.encode())
        console.take_open(await self.ask(console.open_request()))
        assert console.take_rakp2(await self.ask(console.rakp1()))
        assert console.take_rakp4(await self.ask(console.rakp3()))
        return console

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


async def power_status(each: BmcConfig) -> tuple[int, bytes]:
    with Line(each.bmc.address, each.bmc.ipmi_port) as line:
        console = await line.log_in(each)
        return console.take(await line.ask(console.request(*POWER_STATUS)))


@asynccontextmanager
async def service_with(
    machines: MemoryMachines,
    store: MemoryStore,
    *,
    save_within: float = 5.0,
    save_again: float = 30.0,
) -> AsyncIterator[BmcService]:
    async with Tasks("test") as tasks:
        service = BmcService(machines, store, tasks, save_within=save_within, save_again=save_again)
        machines.service = service
        try:
            yield service
        finally:
            await service.close()


def pooled(count: int) -> list[BmcConfig]:
    """BMCs with an address each, of a pool that no other test has."""
    third, port = os.getpid() % 250, free_port(socket.SOCK_DGRAM)
    redfish = free_port(socket.SOCK_STREAM)
    made = []
    for number in range(count):
        each = config(number, redfish_port=redfish)
        address, pool = f"127.97.{third}.{number + 1}", f"127.97.{third}.0/24"
        bmc = replace(each.bmc, address=address, ipmi_port=port, pool=pool)
        made.append(replace(each, bmc=bmc))
    return made


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  (counts, and leaves no handle)


async def test_a_pool_of_addresses_shares_one_socket_for_each_protocol() -> None:
    async with service_with(MemoryMachines(), MemoryStore()) as service:
        configs = pooled(100)
        await service.put(configs[0])
        before, tasks = descriptors(), len(asyncio.all_tasks())
        for each in configs[1:]:
            await service.put(each)
        assert descriptors() == before
        assert len(asyncio.all_tasks()) == tasks
        service.machine_event(_on(configs[7]))
        assert (await power_status(configs[7]))[1][0] & 1 == 1
        assert (await power_status(configs[8]))[1][0] & 1 == 0


def _on(each: BmcConfig) -> MachineEvent:
    return MachineEvent(each.bmc.uuid, MachineChange.STARTED, PowerState.ON)


async def test_an_address_of_the_pool_without_a_bmc_is_silent() -> None:
    async with service_with(MemoryMachines(), MemoryStore()) as service:
        first, second = pooled(2)
        await service.put(first)
        await power_status(first)
        with Line(second.bmc.address, second.bmc.ipmi_port) as line:
            line.socket.send(plain(0x06, 0x38, b"\x8e\x04"))
            await power_status(first)  # the socket that they share has read it by then
            with pytest.raises(BlockingIOError):
                line.socket.recv(2048)


async def test_a_bmc_that_was_removed_is_silent_and_frees_its_port() -> None:
    async with bench(1) as b:
        bmc = b.first.bmc
        await power_status(b.first)
        await b.service.remove(bmc.uuid)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind((bmc.address, bmc.ipmi_port))
        with socket.create_server((bmc.address, bmc.redfish_port)):
            pass
        await b.service.remove(bmc.uuid)


async def test_a_port_in_use_is_named_with_who_has_it() -> None:
    each = config(1, redfish_port=free_port(socket.SOCK_STREAM))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", each.bmc.ipmi_port))
        async with service_with(MemoryMachines(), MemoryStore()) as service:
            with pytest.raises(ProviderError) as refused:
                await service.put(each)
    told = str(refused.value)
    assert f"127.0.0.1:{each.bmc.ipmi_port}" in told
    assert f"(pid {os.getpid()})" in told


async def test_a_redfish_port_in_use_is_named_and_nothing_is_left_half_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        each = config(1, redfish_port=taken.getsockname()[1])
        async with service_with(MemoryMachines(), MemoryStore()) as service:
            with pytest.raises(ProviderError, match=f"127.0.0.1:{each.bmc.redfish_port}"):
                await service.put(each)
            assert service.status(each.bmc.uuid) is None
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
                other.bind(("127.0.0.1", each.bmc.ipmi_port))


async def test_a_new_password_counts_at_once_for_both_protocols() -> None:
    async with bench(1) as b:
        changed = replace(b.first, password="another-one")
        await b.service.put(changed)
        assert (await power_status(changed))[0] == 0
        with pytest.raises(AssertionError):
            await power_status(b.first)


async def test_a_machine_that_is_described_anew_is_told_so_by_its_bmc() -> None:
    """By `up`, when nothing of the BMC itself is another."""
    async with bench(1) as b:
        turned = ORDER[::-1]
        machine = replace(b.first.machine, cpus=7, boot_order=turned)
        b.service.reshape(machine)
        told = (await client(b.first).get(system_of(b.first))).json
        assert told["ProcessorSummary"]["CoreCount"] == 7
        assert told["Boot"]["BootOrder"] == ["Boot0000", "Boot0002"]
        await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        assert b.machines.told[-1][2] == BootPlan(turned, turned)
        b.service.reshape(replace(machine, boot_order=ORDER))
        await until(lambda: bool(b.machines.orders))
        assert b.machines.orders == [(machine.uuid, BootPlan(ORDER, ORDER))]
        b.service.reshape(replace(machine, uuid=UUID(int=5)))


async def test_nothing_is_kept_of_a_bmc_that_is_gone() -> None:
    """Another may be served in its place meanwhile, of the same machine."""
    async with bench(1) as b:
        b.machines.delay, uuid = 0.05, b.first.bmc.uuid
        served = b.service.status(uuid)
        assert served is not None

        async def remove() -> int:
            await until(lambda: bool(b.machines.told))
            await b.service.remove(uuid)
            return len(b.store.saved)

        answer, kept = await asyncio.gather(b.service.power(uuid, PowerCommand.ON), remove())
        assert answer == "done"
        told = await b.service.ask(served, lambda ticket: OverrideRequested(ONCE, ticket))
        assert told.verdict is Verdict.GONE
        assert len(b.store.saved) == kept
        assert served.timer is None


async def test_a_bmc_goes_once_what_was_asked_of_it_is_kept() -> None:
    gate = asyncio.Event()

    @dataclass
    class Slow(MemoryStore):
        async def save(self, machine: UUID, runtime: Runtime) -> None:
            await gate.wait()
            await super().save(machine, runtime)

    async with service_with(MemoryMachines(), store := Slow()) as service:
        each = config(1, redfish_port=free_port(socket.SOCK_STREAM))
        await service.put(each)
        served = service.status(each.bmc.uuid)
        assert served is not None
        bob = User(3, "bob", "hunter2222", 4, enabled=True, messaging=True)
        wanted = Settings(users=(bob,))
        asked = service.ask(served, lambda ticket: SettingsRequested(wanted, ticket))

        async def open_later() -> None:
            await until(lambda: service.status(each.bmc.uuid) is None)
            gate.set()

        await asyncio.gather(service.remove(each.bmc.uuid), open_later())
        assert asked.done()
        assert [runtime.settings for _, runtime in store.saved] == [wanted]
        assert service.listeners.accounts.find(endpoint(each), "bob", "hunter2222") is None


async def until(so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not so():  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0)


async def test_what_cannot_be_made_durable_is_not_acknowledged_and_not_so() -> None:
    store = MemoryStore(full=True)
    async with service_with(MemoryMachines(), store) as service:
        each = config(1, redfish_port=free_port(socket.SOCK_STREAM))
        await service.put(each)
        served = service.status(each.bmc.uuid)
        assert served is not None
        with pytest.raises(ProviderError, match=r"could not be stored.*disk full.*log"):
            await service.set_override(each.bmc.uuid, ONCE)
        assert not served.override.active
        store.full = False
        await service.set_override(each.bmc.uuid, ONCE)
        assert served.override == ONCE


async def test_what_machines_did_is_answered_and_holds_where_it_cannot_be_stored() -> None:
    """On a full disk, `power on` was answered by an error, and a boot of Once was not the last."""
    store = MemoryStore()
    async with service_with(MemoryMachines(), store, save_again=0.01) as service:
        each = config(1, redfish_port=free_port(socket.SOCK_STREAM))
        await service.put(each)
        await service.set_override(each.bmc.uuid, ONCE)
        store.full = True
        assert await service.power(each.bmc.uuid, PowerCommand.ON) == "done"
        served = service.status(each.bmc.uuid)
        assert served is not None
        assert not served.override.active
        with pytest.raises(ProviderError, match="could not be stored"):
            await service.set_override(each.bmc.uuid, ONCE)
        assert not served.override.active
        store.full = False
        await until(lambda: bool(store.saved) and store.saved[-1][1].on)
        assert store.saved[-1][1] == served.aggregate.runtime


async def test_a_store_that_hangs_keeps_no_client_waiting_and_has_in_the_end_what_holds() -> None:
    """A server of PostgreSQL that was stopped: `power on` had no answer, and went on for good."""
    store = MemoryStore()
    async with (
        asyncio.timeout(20),
        service_with(MemoryMachines(), store, save_within=0.02, save_again=0.05) as service,
    ):
        each = config(1, redfish_port=free_port(socket.SOCK_STREAM))
        await service.put(each)
        served = service.status(each.bmc.uuid)
        assert served is not None
        store.hung = []
        for command in (PowerCommand.ON, PowerCommand.RESET, PowerCommand.CYCLE):
            assert await service.power(each.bmc.uuid, command) in {"done", "accepted"}
        with pytest.raises(ProviderError, match=r"could not be stored.*does the database answer"):
            await service.set_override(each.bmc.uuid, ONCE)
        assert not served.override.active
        assert any(runtime.override == ONCE for _, runtime in store.hung), "it is done later"
        store.go_on()
        await until(lambda: store.saved[-1][1] == served.aggregate.runtime)
        assert store.saved[-1][1].on
        await service.set_override(each.bmc.uuid, ONCE)
        assert served.override == ONCE


@dataclass
class SlowToLearn(MemoryMachines):
    """Has a boot order when the test lets it; remembers in which order it was told what."""

    heard: list[str] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def set_boot(self, machine: UUID, boot: BootPlan) -> None:
        self.asked.set()
        await self.go_on.wait()
        self.heard.append("boot")
        await super().set_boot(machine, boot)

    async def power(self, machine: UUID, command: PowerCommand, boot: BootPlan) -> Outcome:
        self.heard.append(str(command))
        return await super().power(machine, command, boot)


async def test_a_power_command_does_not_overtake_a_boot_order() -> None:
    machines = SlowToLearn()
    async with service_with(machines, MemoryStore()) as service, asyncio.TaskGroup() as group:
        each, other = (
            config(number, redfish_port=free_port(socket.SOCK_STREAM)) for number in (1, 2)
        )
        machines.seen[each.bmc.uuid] = PowerState.ON
        for one in (each, other):
            await service.put(one)
        await service.set_override(each.bmc.uuid, ONCE)
        reset = group.create_task(service.power(each.bmc.uuid, PowerCommand.RESET))
        await machines.asked.wait()
        await service.power(other.bmc.uuid, PowerCommand.ON)  # it comes later, and is first
        assert machines.heard == ["on"]
        machines.go_on.set()
        assert await reset in {"done", "accepted"}
        await until(lambda: machines.heard == ["on", "boot", "reset"])
        (plan,) = (plan for machine, _, plan in machines.told if machine == each.bmc.uuid)
        assert plan == BootPlan(now=(BootDevice.NETWORK, BootDevice.DISK), after=ORDER)


async def test_what_a_machine_reports_while_sockets_are_opened_is_not_lost() -> None:
    machines = MemoryMachines()
    each = config(1, redfish_port=free_port(socket.SOCK_STREAM))
    machines.seen[each.bmc.uuid] = PowerState.UNKNOWN
    async with service_with(machines, MemoryStore()) as service, asyncio.TaskGroup() as group:
        putting = group.create_task(service.put(each))
        await asyncio.sleep(0)
        machines.report(each.bmc.uuid, MachineChange.DEFINED, PowerState.OFF)
        assert service.status(each.bmc.uuid) is None, "it was not served yet"
        await putting
        assert (await power_status(each))[0] == 0


async def test_one_slow_machine_does_not_hold_up_another_bmc() -> None:
    async with bench(2) as b:
        b.machines.delay = 60.0
        async with asyncio.TaskGroup() as group:
            slow = group.create_task(b.service.power(b.first.bmc.uuid, PowerCommand.ON))
            await asyncio.sleep(0)
            assert (await power_status(b.configs[1]))[0] == 0
            assert b.machines.last(b.first.bmc.uuid).power is PowerState.OFF, "it is not on yet"
        assert slow.result() == "accepted"


async def test_runtime_state_goes_on_after_a_restart() -> None:
    machines = MemoryMachines()
    each = config(1, redfish_port=free_port(socket.SOCK_STREAM))
    machines.seen[each.bmc.uuid] = PowerState.ON
    kept = replace(each, runtime=Runtime(override=ONCE))
    async with service_with(machines, MemoryStore()) as service:
        await service.put(kept)
        served = service.status(each.bmc.uuid)
        assert served is not None
        assert served.override == ONCE
        async with asyncio.timeout(20):
            while not machines.orders:  # noqa: ASYNC110  (these machines have no event)
                await asyncio.sleep(0.01)
        [(_, plan)] = machines.orders
        assert plan.now[0] is BootDevice.NETWORK


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (Gone("no more"), Gone),
        (HostUnreachable("away"), HostUnreachable),
        (ProviderError("no"), ProviderError),
    ],
)
async def test_the_reason_of_a_failure_reaches_the_caller(
    error: ProviderError, raised: type[ProviderError]
) -> None:
    async with bench(1) as b:
        b.machines.error = error
        with pytest.raises(raised, match=str(error)):
            await b.service.power(b.first.bmc.uuid, PowerCommand.ON)


async def test_requests_that_cannot_be_are_refused() -> None:
    async with bench(1) as b:
        with pytest.raises(NotFound):
            await b.service.power(uuid4(), PowerCommand.ON)
        with pytest.raises(UsageError):
            await b.service.power(b.first.bmc.uuid, PowerCommand.RESET)
        b.machines.delay = 1.0
        assert await b.service.power(b.first.bmc.uuid, PowerCommand.ON) == "accepted"
        with pytest.raises(Conflict):
            await b.service.power(b.first.bmc.uuid, PowerCommand.DIAG)
        assert await b.service.power(b.first.bmc.uuid, PowerCommand.OFF) == "accepted"


async def test_events_of_strangers_change_nothing() -> None:
    async with bench(1) as b:
        _report_stranger(b)
        assert (await power_status(b.first))[1][0] & 1 == 0


def _report_stranger(b: Bench) -> None:
    b.machines.report(uuid4(), MachineChange.STARTED, PowerState.ON)


async def test_power_that_is_not_known_is_not_told_as_off() -> None:
    async with bench(1) as b:
        b.machines.report(b.first.bmc.uuid, MachineChange.UNREACHABLE, PowerState.UNKNOWN)
        assert await power_status(b.first) == (0xD3, b"")


async def test_bmcs_on_any_address_answer_on_each_of_them() -> None:
    async with bench(0) as rack:
        one = config(0, redfish_port=free_port(socket.SOCK_STREAM))
        anywhere = replace(one, bmc=replace(one.bmc, address="0.0.0.0"))
        await rack.service.put(anywhere)
        for address in ("127.0.0.1", "127.0.0.9"):
            found = rack.service.registry.at((address, one.bmc.ipmi_port))
            assert found is not None
            assert found.bmc.uuid == one.bmc.uuid
            there = rack.service.registry.redfish_at((address, one.bmc.redfish_port))
            assert there == {one.bmc.uuid}
            line = Line(address, one.bmc.ipmi_port)
            await line.log_in(anywhere)
            line.socket.close()


async def test_a_bmc_answers_on_ipv6() -> None:
    async with bench(1) as b:
        bmc = replace(b.first.bmc, address="::1")
        await b.service.put(replace(b.first, bmc=bmc))
        where = ["-H", "::1", "-p", str(bmc.ipmi_port), "-U", "admin", "-P", b.first.password]
        done = await process.run(["ipmitool", "-I", "lanplus", *where, "power", "status"])
        assert "Chassis Power is off" in done.stdout
        shown = await process.run(["ipmitool", "-I", "lanplus", *where, "lan6", "print", "1"])
        said = {line.split(":", 1)[0].strip(): line.split(":", 1)[1].strip()
                for line in shown.stdout.splitlines() if ":" in line}  # fmt: skip
        assert said["IPv6/IPv4 Addressing Enables"] == "ipv6"
        assert "::1/128" in shown.stdout
        reader, writer = await asyncio.open_connection("::1", bmc.redfish_port)
        writer.write(b"GET /redfish HTTP/1.1\r\nHost: bmc\r\nConnection: close\r\n\r\n")
        assert b"/redfish/v1/" in await reader.read()
        writer.close()


def test_ipv6_places_are_told_in_brackets() -> None:
    bmc = replace(config(0, redfish_port=8000).bmc, address="fd00::1", ipmi_port=623)
    assert (bmc.ipmi, bmc.redfish) == ("[fd00::1]:623", "[fd00::1]:8000")


@pytest.mark.parametrize(
    ("netfn", "command", "data"),
    [(0x06, 0x38, b"\x8e\x04"), (0x06, 0x54, b"\x0e\x00\x80"), (0x06, 0x37, b"")],
    ids=["authentication capabilities", "cipher suites", "GUID"],
)
async def test_commands_without_login_are_answered_with_at_most_thrice_their_size(
    netfn: int, command: int, data: bytes
) -> None:
    async with bench(1) as b:
        with Line(b.first.bmc.address, b.first.bmc.ipmi_port) as line:
            request = plain(netfn, command, data)
            assert len(await line.ask(request)) <= 3 * len(request)
