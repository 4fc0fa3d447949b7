"""PDUs, as net-snmp and Ironic's `snmp` driver see and switch them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest

from nospoon.bmc.pdu.device import Outlet, Pdu
from nospoon.bmc.runtime import OutletSettings, Runtime, Settings
from nospoon.model.machine import MachineChange, PowerCommand, PowerPolicy, PowerState
from nospoon.model.resources.bmcs import Outlet as Place
from nospoon.plan.identity import snmp_community
from nospoon.runtime import process
from nospoon.runtime.process import Finished
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.services.bmcs.service import BmcService
from nospoon.testing.bench import MemoryMachines, MemoryStore, config, free_port
from nospoon.testing.due import forward

APC = "1.3.6.1.4.1.318.1.1"
RPDU = f"{APC}.12.3.3.1.1.4"
SPDU = f"{APC}.4.4.2.1.3"
MSP = f"{APC}.6.5.1.1.5"
REBOOT = f"{APC}.12.3.4.1.1.6"
NAME = f"{APC}.12.3.4.1.1.2"
OFF_TIME = f"{APC}.12.3.4.1.1.5"
PENDING = f"{APC}.12.3.5.1.1.5"
MASTER = f"{APC}.4.2.1"
SECRET = "correct-horse"
COMMUNITY = snmp_community(SECRET)
V3 = ("-v3", "-l", "authPriv", "-u", "nospoon", "-A", SECRET, "-X", SECRET)
V2 = ("-v2c", "-c", COMMUNITY)


@dataclass
class Fed:
    """A service whose nodes are fed by one PDU."""

    service: BmcService
    machines: MemoryMachines
    store: MemoryStore
    configs: list[BmcConfig]
    port: int
    address: str = "127.0.0.1"

    async def snmp(self, tool: str, *argv: str, check: bool = True) -> Finished:
        how = argv if argv[0].startswith("-v") else (*V2, *argv)
        v6 = ":" in self.address
        agent = f"udp6:[{self.address}]:{self.port}" if v6 else f"{self.address}:{self.port}"
        # options, agent, what is asked: net-snmp wants them in this order
        at = next(i for i, each in enumerate(how) if each.startswith("1.3"))
        line = [tool, "-On", "-Oq", "-t1", "-r0", *how[:at], agent, *how[at:]]
        return await process.run(line, check=check)

    def has_power(self, number: int) -> bool:
        served = self.service.status(self.configs[number].bmc.uuid)
        assert served is not None
        return served.aggregate.has_power

    async def until(self, told: list[PowerCommand]) -> None:
        await _so(lambda: [command for _, command, _ in self.machines.told] == told)


async def _so(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0.01)


@asynccontextmanager
async def fed(
    count: int = 2,
    runtime: Runtime | None = None,
    *,
    address: str = "127.0.0.1",
    store: MemoryStore | None = None,
) -> AsyncIterator[Fed]:
    port, http = free_port(socket.SOCK_DGRAM), free_port(socket.SOCK_STREAM)
    machines, store = MemoryMachines(), store or MemoryStore()
    async with Tasks("pdu") as tasks:
        service = BmcService(machines, store, tasks)
        machines.service = service
        configs = []
        for number in range(count):
            made = config(number, redfish_port=http)
            outlet = Place(UUID(int=7), "pdu-1", address, port, number + 1)
            configs.append(
                replace(
                    made,
                    bmc=replace(made.bmc, address=address, outlet=outlet),
                    pdu_secret=SECRET,
                    runtime=runtime or made.runtime,
                )
            )
            await service.put(configs[-1])
        try:
            yield Fed(service, machines, store, configs, port, address)
        finally:
            await service.close()


@pytest.mark.parametrize(
    "how",
    [
        ("-v1", "-c", COMMUNITY),
        V2,
        (*V3, "-a", "SHA", "-x", "AES"),
        (*V3, "-a", "SHA-256", "-x", "AES"),
        (*V3, "-a", "SHA-512", "-x", "AES-256"),
        (*V3, "-a", "SHA", "-x", "AES-256"),
        ("-v3", "-l", "authNoPriv", "-u", "nospoon", "-A", SECRET, "-a", "SHA-224"),
    ],
    ids=lambda how: "-".join(each for each in how if each[0] in "SA-" and each[1:2] not in "lAXuc"),
)
async def test_every_version_switches_an_outlet(how: tuple[str, ...]) -> None:
    async with fed() as pdu:
        first = pdu.configs[0].bmc.uuid
        pdu.machines.report(first, MachineChange.STARTED, PowerState.ON)
        await pdu.snmp("snmpset", *how, f"{RPDU}.1", "i", "2")
        assert not pdu.has_power(0)
        assert pdu.has_power(1)
        assert (await pdu.snmp("snmpget", *how, f"{RPDU}.1")).stdout.split()[-1] == "2"
        await pdu.until([PowerCommand.OFF])


@pytest.mark.parametrize(
    "how",
    [
        ("-v2c", "-c", "public"),
        ("-v2c", "-c", SECRET),
        (*V3[:-4], "-A", "wrong-horse", "-X", SECRET, "-a", "SHA", "-x", "AES"),
        (*V3[:-4], "-A", SECRET, "-X", "wrong-horse", "-a", "SHA", "-x", "AES"),
        ("-v3", "-l", "noAuthNoPriv", "-u", "nospoon"),
        (*V3[:4], "mallory", "-A", SECRET, "-X", SECRET, "-a", "SHA", "-x", "AES"),
    ],
)
async def test_strangers_switch_nothing(how: tuple[str, ...]) -> None:
    async with fed() as pdu:
        refused = await pdu.snmp("snmpset", *how, f"{RPDU}.1", "i", "2", check=False)
        assert refused.status != 0
        assert pdu.has_power(0)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (("-n", "other"), "Bad context specified"),
        (("-E", "8000000001020304"), "Bad version specified"),  # so it tells unknownPDUHandlers
    ],
)
@pytest.mark.parametrize("level", ["authNoPriv", "authPriv"])
async def test_a_context_that_is_not_ours_is_told_as_such_and_switches_nothing(
    where: tuple[str, ...], said: str, level: str
) -> None:
    async with fed() as pdu:
        how = (*V3, "-l", level, "-a", "SHA-256", "-x", "AES", *where)
        told = await pdu.snmp("snmpset", *how, f"{RPDU}.1", "i", "2", check=False)
        assert said in told.stderr
        assert pdu.has_power(0)


async def test_an_outlet_that_is_off_silences_the_bmc_and_its_return_starts_the_machine() -> None:
    async with fed() as pdu:
        bmc = pdu.configs[0].bmc
        pdu.machines.report(bmc.uuid, MachineChange.STARTED, PowerState.ON)
        place = (bmc.address, bmc.ipmi_port)
        assert pdu.service.registry.at(place) is not None
        await pdu.snmp("snmpset", f"{RPDU}.1", "i", "2")
        assert pdu.service.registry.at(place) is None
        assert pdu.store.saved[-1][1].has_power is False, "durable before it is answered"
        await pdu.snmp("snmpset", f"{RPDU}.1", "i", "1")
        assert pdu.service.registry.at(place) is not None
        await pdu.until([PowerCommand.OFF, PowerCommand.ON])


async def test_the_power_restore_policy_decides() -> None:
    settings = Settings(policy=PowerPolicy.ALWAYS_OFF)  # of a client: what a PDU feeds goes on
    off = Runtime(settings=settings, filed_policy=PowerPolicy.ALWAYS_ON)
    async with fed(runtime=off) as pdu:
        await pdu.snmp("snmpset", f"{RPDU}.1", "i", "2")
        await pdu.snmp("snmpset", f"{RPDU}.1", "i", "1")
        assert pdu.has_power(0)
        assert PowerCommand.ON not in [command for _, command, _ in pdu.machines.told]


@pytest.mark.parametrize(("oid", "on", "off"), [(RPDU, 1, 2), (SPDU, 1, 2), (MSP, 1, 3)])
async def test_ironic_drives_each_of_its_apc_drivers(oid: str, on: int, off: int) -> None:
    """Its sequence: sysObjectID for `auto`, then get, set, get until it is so."""
    async with fed() as pdu:
        found = await pdu.snmp("snmpget", "1.3.6.1.2.1.1.2.0")
        assert found.stdout.split()[-1].startswith(f".{APC}.12")
        for number in (off, on):
            await pdu.snmp("snmpset", f"{oid}.2", "i", str(number))
            assert (await pdu.snmp("snmpget", f"{oid}.2")).stdout.split()[-1] == str(number)
            assert pdu.has_power(1) is (number == on)


@pytest.mark.parametrize(
    "asked", [(f"{RPDU}.1", "i", "2"), (f"{RPDU}.1", "i", "3"), (f"{REBOOT}.1", "i", "9")]
)
async def test_what_could_not_be_stored_is_not_answered_as_done(asked: tuple[str, ...]) -> None:
    store = MemoryStore(full=True)
    async with fed(store=store) as pdu:
        told = await pdu.snmp("snmpset", *asked, check=False)
        assert "Timeout" in told.stderr
        assert pdu.has_power(0)
        store.full = False
        assert (await pdu.snmp("snmpset", *asked)).status == 0


@dataclass
class SlowStore(MemoryStore):
    """A store that takes until `gate` is set."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def save(self, machine: UUID, runtime: Runtime) -> None:
        await self.gate.wait()
        await super().save(machine, runtime)


async def test_each_of_many_who_set_one_outlet_is_answered() -> None:
    """The last has the last word; those before it were heard all the same."""
    store = SlowStore()
    async with fed(store=store) as pdu:
        outlet = pdu.service.status(pdu.configs[0].bmc.uuid)
        assert outlet is not None
        sets = [(f"{REBOOT}.1", seconds) for seconds in (6, 7, 8)]
        asked = (
            pdu.snmp("snmpset", *V2, "-t9", place, "i", str(value))
            for place, value in [*sets, (f"{RPDU}.1", 2)]
        )

        async def once_all_came() -> None:
            await _so(lambda: len(outlet.effects) >= 7)  # a state and an answer each; one is out
            store.gate.set()

        *finished, _ = await asyncio.gather(*asked, once_all_came())
        assert [each.status for each in finished if each is not None] == [0] * 4


async def test_a_reboot_under_way_is_not_put_off_when_its_node_is_put_again() -> None:
    async with fed() as pdu:
        await pdu.snmp("snmpset", f"{RPDU}.1", "i", "3")
        served = pdu.service.status(pdu.configs[0].bmc.uuid)
        assert served is not None
        device = Pdu(name="pdu-1", serial="1", started=0.0)
        outlet = Outlet(served.bmc.uuid, "n0", served.aggregate)
        for now in (0.0, 3.0):
            device.plug(1, outlet, now)
        assert device.deadline == served.aggregate.runtime.settings.outlet.reboot


async def test_a_reboot_takes_as_long_as_it_was_told_to() -> None:
    async with fed() as pdu:
        await pdu.snmp("snmpset", f"{REBOOT}.1", "i", "60")
        assert (await pdu.snmp("snmpget", f"{REBOOT}.1")).stdout.split()[-1] == "60"
        began = pdu.service.now
        await pdu.snmp("snmpset", f"{RPDU}.1", "i", "3")
        assert not pdu.has_power(0)
        forward(20)
        assert (await pdu.snmp("snmpget", f"{PENDING}.1")).stdout.split()[-1] == "1"
        assert not pdu.has_power(0)
        forward(40)
        await _so(lambda: pdu.has_power(0))
        assert pdu.service.now - began >= 60


async def test_a_delayed_command_comes_after_its_delay() -> None:
    async with fed() as pdu:
        await pdu.snmp("snmpset", f"{OFF_TIME}.1", "i", "60")
        began = pdu.service.now
        await pdu.snmp("snmpset", f"{RPDU}.1", "i", "5")
        assert pdu.has_power(0)
        assert (await pdu.snmp("snmpget", f"{PENDING}.1")).stdout.split()[-1] == "1"
        forward(60)
        await _so(lambda: not pdu.has_power(0))
        assert pdu.service.now - began >= 60
        assert (await pdu.snmp("snmpget", f"{PENDING}.1")).stdout.split()[-1] == "2"


async def test_two_settings_told_in_one_request_are_both_kept() -> None:
    async with fed() as pdu:
        await pdu.snmp("snmpset", f"{OFF_TIME}.1", "i", "3", f"{REBOOT}.1", "i", "7")
        for oid, told in ((OFF_TIME, "3"), (REBOOT, "7")):
            assert (await pdu.snmp("snmpget", f"{oid}.1")).stdout.split()[-1] == told


async def test_a_cancelled_reboot_does_not_come_back() -> None:
    async with fed() as pdu:
        await pdu.snmp("snmpset", f"{RPDU}.1", "i", "3")
        await pdu.snmp("snmpset", f"{RPDU}.1", "i", "7")
        assert not pdu.has_power(0)
        served = pdu.service.status(pdu.configs[0].bmc.uuid)
        assert served is not None
        assert not served.aggregate.runtime.settings.outlet.returns


async def test_the_master_switch_has_values_of_its_own() -> None:
    """PowerNet-MIB, sPDUMasterControlSwitch: 1 all on now, 3 all off now, 6 no command."""
    async with fed() as pdu:
        assert (await pdu.snmp("snmpget", f"{MASTER}.0")).stdout.split()[-1] == "6"
        for told, on in (("6", True), ("3", False), ("6", False), ("1", True)):
            await pdu.snmp("snmpset", f"{MASTER}.0", "i", told)
            assert [pdu.has_power(number) for number in range(2)] == [on, on]
        assert (await pdu.snmp("snmpset", f"{MASTER}.0", "i", "8", check=False)).status != 0


async def test_an_outlet_off_for_a_reboot_comes_back_after_a_restart_of_the_daemon() -> None:
    interrupted = Runtime(
        has_power=False, settings=Settings(outlet=OutletSettings(reboot=0, returns=True))
    )
    async with fed(1, runtime=interrupted) as pdu:
        await _so(lambda: pdu.has_power(0))


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ((f"{RPDU}.1", "i", "9"), "wrongValue"),
        ((f"{RPDU}.1", "s", "on"), "wrongType"),
        ((f"{REBOOT}.1", "i", "3"), "wrongValue"),
        ((f"{NAME}.1", "s", "x" * 24), "wrongValue"),
        ((f"{APC}.12.3.5.1.1.4.1", "i", "1"), "notWritable"),
        ((f"{RPDU}.9", "i", "1"), "noCreation"),
        (("1.3.6.1.4.1.999.1.0", "i", "1"), "noAccess"),
        ((f"{RPDU}.1", "i", "2", f"{RPDU}.2", "i", "9"), "wrongValue"),
    ],
)
async def test_what_cannot_be_set_is_refused_as_a_whole(asked: tuple[str, ...], why: str) -> None:
    async with fed() as pdu:
        refused = await pdu.snmp("snmpset", *asked, check=False)
        assert why in refused.stderr
        assert pdu.has_power(0)


async def test_version_1_knows_only_its_own_errors() -> None:
    async with fed() as pdu:
        v1 = ("-v1", "-c", COMMUNITY)
        missing = await pdu.snmp("snmpget", *v1, f"{RPDU}.9", check=False)
        assert "noSuchName" in missing.stderr
        bad = await pdu.snmp("snmpset", *v1, f"{RPDU}.1", "i", "9", check=False)
        assert "badValue" in bad.stderr


@pytest.mark.parametrize("tool", ["snmpwalk", "snmpbulkwalk"])
async def test_a_walk_finds_every_outlet_once_and_ends(tool: str) -> None:
    async with fed(5) as pdu:
        walked = (await pdu.snmp(tool, "1.3.6.1")).stdout.splitlines()
        assert "No more variables" in walked.pop()
        oids = [line.split()[0] for line in walked if line.startswith(".1.3")]
        numbers = [tuple(map(int, oid[1:].split("."))) for oid in oids]
        assert numbers == sorted(set(numbers))
        assert [f".{RPDU}.{outlet}" in oids for outlet in range(1, 7)] == [True] * 5 + [False]


async def test_names_are_the_nodes_until_somebody_gives_others() -> None:
    async with fed() as pdu:
        assert (await pdu.snmp("snmpget", f"{NAME}.2")).stdout.split()[-1] == '"n1"'
        await pdu.snmp("snmpset", f"{NAME}.2", "s", "left")
        assert (await pdu.snmp("snmpget", f"{NAME}.2")).stdout.split()[-1] == '"left"'


async def test_a_bmc_that_is_removed_leaves_its_outlet_and_the_last_one_the_port() -> None:
    async with fed() as pdu:
        for each in pdu.configs:
            await pdu.service.remove(each.bmc.uuid)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", pdu.port))


@pytest.mark.parametrize("how", [V2, (*V3, "-a", "SHA-256", "-x", "AES")], ids=["v2c", "v3"])
async def test_a_pdu_answers_on_ipv6(how: tuple[str, ...]) -> None:
    async with fed(1, address="::1") as pdu:
        await pdu.snmp("snmpset", *how, f"{RPDU}.1", "i", "2")
        assert not pdu.has_power(0)


@pytest.mark.parametrize(
    ("served", "asked"),
    [("0.0.0.0", "127.0.0.2"), ("::", "::1"), ("::", "127.0.0.2")],
)
async def test_a_pdu_of_all_addresses_answers_at_each(served: str, asked: str) -> None:
    async with fed(1, address=served) as pdu:
        pdu.address = asked
        await pdu.snmp("snmpset", *V2, f"{RPDU}.1", "i", "2")
        assert not pdu.has_power(0)


DISCOVERY = bytes.fromhex(
    "3038020103300e0201010203"
    "00ffe30401040201030410300e0400020100020100040004000400"
    "301104000400a00b0201010201000201003000"
)
"""The least that asks for an engine (RFC 3414 §4): nobody has logged in."""


def _get(community: str) -> bytes:
    """An SNMPv2c GET of nothing."""
    name = bytes([4, len(community)]) + community.encode()
    content = bytes.fromhex("020101") + name + bytes.fromhex("a00b0201010201000201003000")
    return bytes([0x30, len(content)]) + content


async def _answer(pdu: Fed, request: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.settimeout(0)
        line.connect((pdu.address, pdu.port))
        await loop.sock_sendall(line, request)
        try:
            async with asyncio.timeout(0.5):
                return await loop.sock_recv(line, 2000)
        except TimeoutError:
            return b""


async def test_who_did_not_log_in_gets_three_times_the_request_at_most() -> None:
    async with fed(1) as pdu:
        report = await _answer(pdu, DISCOVERY)
        assert 0 < len(report) <= 3 * len(DISCOVERY)
        assert await _answer(pdu, _get("public")) == b""
        assert await _answer(pdu, _get(COMMUNITY)) != b""


async def test_another_secret_in_the_file_holds_at_once_and_the_outlets_stay() -> None:
    async with fed(1) as pdu:
        await pdu.snmp("snmpset", f"{RPDU}.1", "i", "2")
        await pdu.service.put(replace(pdu.configs[0], pdu_secret="battery-staple"))
        told = await pdu.snmp(
            "snmpget", "-v2c", "-c", snmp_community("battery-staple"), f"{RPDU}.1"
        )
        assert told.stdout.split()[-1] == "2"
        assert (await pdu.snmp("snmpget", f"{RPDU}.1", check=False)).status != 0
