"""Clouds that members' files name answer what their owners like: nothing of others is theirs by it.

A server's metadata may name any node, its id may be any UUID, and lists need not end.
"""

from __future__ import annotations

import socket
import sys
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response

from nospoon.clusterfile.load import load
from nospoon.clusterfile.openstack import OpenStackSection, connection
from nospoon.control.fleet.authority import Authority, Bootable
from nospoon.control.fleet.fleet import Fleet, Member
from nospoon.control.fleet.hosts import Hosts
from nospoon.control.fleet.recent_hosts import MOST_NAMES, RecentHosts
from nospoon.errors import Conflict, NospoonError, ProviderError, SpecError, UsageError
from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.cluster import Arch, Firmware, Host
from nospoon.model.connections import CLOUD, OpenStack, Simulated
from nospoon.model.machine import MachineChange, MachineEvent, PowerCommand, PowerState
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine, MachineNic
from nospoon.model.resources.networks import Link
from nospoon.model.resources.relays import RELAY
from nospoon.model.resources.storage import Image
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.found import found_allocations
from nospoon.plan.identity import node_uuid
from nospoon.providers.answers import MAX_TOLD
from nospoon.providers.base import Medium
from nospoon.providers.openstack.api import LARGEST, MOST_LISTED, MOST_PAGES, Api
from nospoon.providers.openstack.around import Around, BuildImage
from nospoon.providers.openstack.drives import KeptMedia
from nospoon.providers.openstack.records import LONGEST_LOG
from nospoon.providers.openstack.relays import SHAPE as RELAY_SHAPE
from nospoon.providers.openstack.roster import RELAYS, SHAPE, Roster, metadata
from nospoon.providers.openstack.servers import ServerDriver
from nospoon.providers.openstack.tags import (
    LONGEST_VALUE,
    Tagged,
    described,
    in_pieces,
    of_description,
    of_properties,
    properties,
)
from nospoon.providers.simulated.connection import SimulatedConnection
from nospoon.runtime.tasks import Tasks
from nospoon.services.netboot.ports import ServedProfile
from nospoon.services.netboot.serving import HttpListeners
from nospoon.testing.cloud_connection import AT, connected, fake_cloud
from nospoon.testing.fake_cloud import FakeCloud, Rule
from nospoon.testing.racks import PLAN, Bench, any_rack, make

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
NETWORK = BootPlan((BootDevice.NETWORK,), (BootDevice.NETWORK,))
RACK = Host("rack", Simulated())
OTHER = Host("other", Simulated())


def machine(uuid: UUID, *, asks: bool) -> Machine:
    nic = MachineNic(f"02:{uuid.hex[:10]:0>10}"[:17], "a-network", "virtio")
    return Machine(
        uuid, 1, 1 << 29, Arch.X86_64, Firmware.BIOS, tpm=False, disks=(), nics=(nic,),
        boot_order=(BootDevice.NETWORK,), boot=CLOUD.boot_of(asks=asks),
    )  # fmt: skip


def authority() -> Authority:
    async def observed(_: UUID) -> None:
        return None

    return Authority(lambda _: NETWORK, lambda _: "", observed)


def boots(name: str) -> ServedProfile:
    return ServedProfile(name, "http://192.0.2.1/k", (), "secret")


def test_a_cloud_cannot_give_its_server_the_uuid_of_another_machine() -> None:
    asked, victim, attacker = authority(), uuid4(), uuid4()
    asked.put(Bootable(machine(victim, asks=False), boots("victim")))
    asked.put(Bootable(machine(attacker, asks=True), boots("attacker")))
    asked.call(attacker, victim)
    answer = asked.answer(uuid=victim)
    assert answer is not None
    assert answer.profile == boots("victim")
    assert answer.secret is None, "whoever asks has to be that machine"
    asked.remove(attacker)
    answer = asked.answer(uuid=victim)
    assert answer is not None
    assert answer.profile == boots("victim")


def test_a_uuid_that_was_claimed_before_its_machine_came_is_that_machines() -> None:
    asked, victim, attacker = authority(), uuid4(), uuid4()
    asked.put(Bootable(machine(attacker, asks=True), boots("attacker")))
    asked.call(attacker, victim)
    asked.put(Bootable(machine(victim, asks=False), boots("victim")))
    answer = asked.answer(uuid=victim)
    assert answer is not None
    assert (answer.profile, answer.secret) == (boots("victim"), None)


@pytest.mark.parametrize(
    "settings",
    [
        {"auth": {"auth_url": "http://attacker.example/v3"}},
        {
            "auth": {"auth_url": "http://cloud.example/v3"},
            "compute_endpoint_override": "http://attacker.example/",
        },
        {"auth": {"auth_url": "http://cloud.example/v3", "endpoint": "http://attacker.example/"}},
    ],
    ids=["Keystone", "Nova", "endpoint"],
)
def test_a_cloud_cannot_make_its_server_the_node_of_another_user(settings: dict[str, Any]) -> None:
    """By giving it the id of a server that is one at another cloud: their machines differ."""
    id_, usual = uuid4(), {"auth": {"auth_url": "http://cloud.example/v3"}}
    theirs, mine = (
        Around(
            cast("Api", None),  # nothing is asked
            Host("cloud", connection=connection(cloud_section(each))[0]),
            "deployment",
            cast("BuildImage", None),
        )
        for each in (usual, settings)
    )
    assert theirs.machine_of(id_) != mine.machine_of(id_)
    assert id_ not in {theirs.machine_of(id_), mine.machine_of(id_)}


def cloud_section(settings: dict[str, Any]) -> OpenStackSection:
    cloud = {"name": "c", "region_name": "RegionOne", **settings}
    return OpenStackSection.model_validate({"cloud": cloud, "boot_address": "127.0.0.1"})


def test_what_one_server_is_known_by_no_other_one_takes() -> None:
    asked, first, second, smbios = authority(), uuid4(), uuid4(), uuid4()
    for uuid, name in ((first, "first"), (second, "second")):
        asked.put(Bootable(machine(uuid, asks=True), boots(name)))
    asked.call(first, smbios)
    asked.call(second, smbios)
    answer = asked.answer(uuid=smbios)
    assert answer is not None
    assert answer.uuid == first
    asked.put(Bootable(machine(first, asks=True), boots("changed")))
    answer = asked.answer(uuid=smbios)
    assert answer is not None, "a machine that changes keeps it"
    asked.remove(first)
    assert asked.answer(uuid=smbios) is None


def test_a_machine_that_only_boots_its_empty_drive_is_answered() -> None:
    async def observed(_: UUID) -> None:
        return None

    drive = BootPlan((BootDevice.CDROM,), (BootDevice.CDROM,))
    asked, uuid = Authority(lambda _: drive, lambda _: "", observed), uuid4()
    asked.put(Bootable(machine(uuid, asks=True)))
    answer = asked.answer(uuid=uuid)
    assert answer is not None
    assert answer.device is BootDevice.DISK


async def test_a_host_says_nothing_of_machines_that_are_on_others(tmp_path: Path) -> None:
    class Lying(SimulatedConnection):
        async def machines(self) -> list[MachineEvent]:
            return [MachineEvent(victim, MachineChange.OBSERVED, PowerState.ON, smbios=uuid4())]

        @property
        def machine_driver(self) -> Lying:  # type: ignore[override]
            return self

    victim, heard = uuid4(), list[MachineEvent]()
    async with Tasks("test") as tasks:
        hosts = Hosts(
            lambda host: (
                Lying(host.name, "d", lambda: 0.0)
                if host == OTHER
                else SimulatedConnection(host.name, "d", lambda: 0.0)
            ),
            tasks,
            heard.append,
            sockets=tmp_path,
        )
        hosts.settle(victim, RACK)
        await hosts.look(OTHER)
        assert hosts.is_at(RACK, victim)
        assert not hosts.is_at(OTHER, victim)
        assert hosts.last(victim) is None
        assert not heard
        await hosts.close()


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    async with fake_cloud() as made:
        yield made


@pytest.fixture
async def bench(cloud: FakeCloud, tmp_path: Path) -> AsyncIterator[Bench]:
    async def nothing(*_: object) -> None:
        return None

    at_home = set[UUID]()
    async with connected(cloud, tmp_path, at_home=lambda machine: machine in at_home) as made:
        image = Image("", "ab" * 32, "raw", 1)
        bench = Bench(made, AT, "kit", "", image, nothing, nothing, flavor="metal.512")
        at_home.add(any_rack(bench).uuid)
        yield bench


async def test_servers_that_name_other_nodes_are_not_there(cloud: FakeCloud, bench: Bench) -> None:
    rack, victim = any_rack(bench), uuid4()
    await make(bench, *rack.all)
    (own,) = cloud.servers.values()
    for number, change in enumerate(
        ({"nospoon_uuid": str(victim)}, {"nospoon_name": "m1"}, {"nospoon_cluster": str(uuid4())})
    ):
        id_ = str(UUID(int=number + 1))
        metadata = {**own["metadata"], **change}
        cloud.servers[id_] = {**own, "id": id_, "status": "ACTIVE", "metadata": metadata}
        cloud.consoles[id_] = "FORGED"
    machines = bench.connection.machine_driver
    assert {each.uuid for each in await machines.machines()} == {rack.uuid}
    assert not Path(machines.console_record(victim)).exists()
    assert len(await machines.observe(None)) == 1


async def test_a_server_whose_shape_is_nested_without_end_is_none(
    cloud: FakeCloud, bench: Bench
) -> None:
    """One that a member's cloud showed kept `recover` and `orphans` from all other hosts."""
    await make(bench, *any_rack(bench).all)
    (own,) = cloud.servers.values()
    nested = '{"x":' + "[" * 20_000
    deep = {**own["metadata"], **in_pieces(SHAPE, nested)}
    cloud.servers["deep"] = {**own, "id": "deep", "metadata": deep}
    assert len(await bench.connection.drivers[Kind.MACHINE].observe(None)) == 1
    relay = {
        **properties(Tagged(bench.tag, RELAY)),
        RELAYS: "x",
        **in_pieces(RELAY_SHAPE, nested),
    }
    cloud.servers["relay"] = {**own, "id": "relay", "metadata": relay}
    assert await bench.connection.drivers[Kind.RELAY].observe(None) == []


@pytest.mark.parametrize("address", ["x", "256.1.1.1/24", "10.0.0.1/33", "10.0.0.1"])
async def test_a_network_that_notes_no_address_has_none(
    cloud: FakeCloud, bench: Bench, address: str
) -> None:
    """What a lost store is made again from: one was an error of `recover` for all hosts."""
    rack = any_rack(bench)
    await make(bench, *rack.all)
    for each in cloud.networks.values():
        each["description"] = f"{each.get('description', '')},{address}"
    found = await bench.connection.drivers[Kind.NETWORK].observe(None)
    assert [each.shape.address for each in found if isinstance(each.shape, Link)] == [""]
    assert found_allocations(found).cidrs == {}


async def test_of_nodes_elsewhere_no_console_is_written(cloud: FakeCloud, bench: Bench) -> None:
    other = Bench(
        bench.connection, AT, "kit", "", bench.image, bench.make_stranger,
        bench.remove_machine, flavor="metal.512",
    )  # fmt: skip
    rack = any_rack(other)
    await make(other, *rack.all)
    (server,) = cloud.servers.values()
    cloud.consoles[server["id"]] = "FORGED"
    machines = bench.connection.machine_driver
    await machines.power(rack.uuid, PowerCommand.ON, PLAN)
    await machines.power(rack.uuid, PowerCommand.OFF, PLAN)
    assert not Path(machines.console_record(rack.uuid)).exists()
    assert not await machines.machines()


async def test_a_medium_goes_though_the_cloud_says_that_its_server_went(
    cloud: FakeCloud, bench: Bench, tmp_path: Path
) -> None:
    rack = any_rack(bench)
    await make(bench, *rack.all)
    drives = bench.connection.machine_driver.drives
    assert drives is not None
    (tmp_path / "medium").write_bytes(b"m" * 4096)
    await drives.insert(rack.uuid, Medium(str(tmp_path / "medium"), "ab" * 32))
    cloud.servers.clear()
    assert list((tmp_path / "media").iterdir())
    await drives.eject(rack.uuid)
    assert not list((tmp_path / "media").iterdir())


async def test_media_of_machines_that_are_gone_are_removed(tmp_path: Path) -> None:
    kept, known, gone = KeptMedia(tmp_path / "kept"), uuid4(), uuid4()
    (tmp_path / "medium").write_bytes(b"m" * 4096)
    for each in (known, gone):
        await kept.insert(each, Medium(str(tmp_path / "medium"), ""))
    (tmp_path / "kept" / f".{uuid4()}").write_bytes(b"half")
    KeptMedia(tmp_path / "kept").tidy(lambda each: each == known)
    assert [path.stem for path in (tmp_path / "kept").iterdir()] == [str(known)]
    fleet = Fleet(cast("Hosts", NoHosts()), authority(), lambda _: None, left=kept.drop)
    fleet.put(Member(1000, "dev", uuid4(), "node-0", RACK, machine(known, asks=True)))
    fleet.drop(known)
    assert not list((tmp_path / "kept").iterdir())


class NoHosts:
    def settle(self, machine: UUID, host: Host) -> None:
        pass

    def forget(self, machine: UUID) -> None:
        pass


async def test_servers_that_are_others_at_each_look_are_not_all_known(
    cloud: FakeCloud, bench: Bench
) -> None:
    rack = any_rack(bench)
    await make(bench, *rack.all)
    (own,) = cloud.servers.values()
    tag = of_properties(own["metadata"])
    assert tag is not None
    roster = Roster(bench.connection._around)  # type: ignore[attr-defined]
    for look in range(3):
        cloud.servers.clear()
        for number in range(500):
            name, id_ = f"n{look}-{number}", str(UUID(int=look * 500 + number))
            shape = replace(machine(node_uuid(tag.tag.cluster, name), asks=True), nics=())
            said = metadata(name, shape, tag.tag)
            cloud.servers[id_] = {**own, "id": id_, "updated": cloud.now(), "metadata": said}
        await roster.servers()
        assert len(roster._ids) == 500
        await roster.changed("")
        assert len(roster._ids) == 500
    roster._ids = {uuid4(): uuid4() for _ in range(MOST_LISTED)}
    await roster.changed("2026")
    assert len(roster._ids) <= MOST_LISTED


async def test_a_list_without_an_end_is_refused(cloud: FakeCloud, bench: Bench) -> None:
    def more() -> Response:
        networks = [{"id": f"n{cloud.ticks}", "name": cloud.now(), "description": ""}] * 1000
        return JSONResponse({"networks": networks, "next": "x"})

    cloud.rules.append(Rule("GET /network/v2.0/networks", more, times=10_000))
    with pytest.raises(ProviderError, match="without an end, or more than 20000"):
        await bench.connection.survey("", ())
    assert cloud.calls["GET /network/v2.0/networks"] < 30


async def test_a_page_of_more_than_was_asked_for_is_refused(cloud: FakeCloud, bench: Bench) -> None:
    def large() -> Response:
        return JSONResponse({"networks": [{"id": str(n), "name": "n"} for n in range(5000)]})

    cloud.rules.append(Rule("GET /network/v2.0/networks", large))
    with pytest.raises(ProviderError, match="5000 of them"):
        await bench.connection.survey("", ())


async def test_of_what_a_cloud_lists_only_what_is_needed_is_kept(
    cloud: FakeCloud, bench: Bench
) -> None:
    junk = b"{}," * 40_000
    numbers = iter(range(10_000))

    def page() -> Response:
        body = b'{"next": 1, "networks": [{"id": "n%d", "name": "n", "junk": [%s{}]}]}'
        return Response(body % (next(numbers), junk), media_type="application/json")

    cloud.rules.append(Rule("GET /network/v2.0/networks", page, times=10_000))
    await bench.connection.check()  # what is imported for it is not counted
    tracemalloc.start()
    try:
        with pytest.raises(ProviderError, match="without an end"):
            await bench.connection.survey("", ())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert cloud.calls["GET /network/v2.0/networks"] == MOST_PAGES
    assert peak < 10 * 40_000 * sys.getsizeof({}), "a few pages, not all of them"


async def test_an_answer_that_is_kept_whole_is_short(cloud: FakeCloud, bench: Bench) -> None:
    cloud.rules.append(Rule("GET /compute/v2.1/limits", lambda: JSONResponse(["x" * LARGEST])))
    with pytest.raises(ProviderError, match="expected 1048576 at most"):
        await bench.connection.check()


def test_long_tags_of_a_cloud_are_none_or_cut() -> None:
    tag = OwnerTag("kit", uuid4(), 1, name="dev", uid=1000)
    assert of_description(described(Tagged(tag, "n"))) is not None
    assert of_description(described(Tagged(tag, "n" * 1000))) is None
    found = of_properties(properties(Tagged(tag, "n" * 1000)))
    assert found is not None
    assert len(found.name) == LONGEST_VALUE


async def test_words_of_a_cloud_are_cut(cloud: FakeCloud, bench: Bench) -> None:
    *before, node = any_rack(bench).all
    await make(bench, *before)

    def failed() -> Response:
        server = next(iter(cloud.servers.values()))
        fault = {"message": "x" * 5_000_000}
        return JSONResponse({"server": {**server, "status": "ERROR", "fault": fault}})

    cloud.rules.append(Rule("GET /compute/v2.1/servers/[0-9a-f]{8}-", failed))
    with pytest.raises(ProviderError) as told:
        await make(bench, node)
    assert len(str(told.value)) < MAX_TOLD + 200


async def test_of_a_long_console_log_the_end_is_looked_at(cloud: FakeCloud, bench: Bench) -> None:
    rack = any_rack(bench)
    await make(bench, *rack.all)
    machines = bench.connection.machine_driver
    assert isinstance(machines, ServerDriver)
    (server,) = cloud.servers.values()

    def said() -> Response:
        return JSONResponse({"output": "a" * 8_000_000})

    await machines.power(rack.uuid, PowerCommand.ON, PLAN)
    cloud.rules.append(Rule(f"POST .*/{server['id']}/action", said, times=1))
    await machines.power(rack.uuid, PowerCommand.ON, PLAN)
    await machines._consoles._recorder.flush()  # the end of a connection does not wait for it
    await bench.connection.close()
    assert Path(machines.console_record(rack.uuid)).stat().st_size <= LONGEST_LOG


def cloud_file(password: str = "p", hosts: int = 1) -> str:
    auth = f"{{auth_url: http://192.0.2.1/v3, username: u, password: {password}}}"
    host = f"{{openstack: {{cloud: {{auth: {auth}}}, boot_address: 192.0.2.2}}}}"
    lines = "".join(f"  h{number}: {host}\n" for number in range(hosts))
    return f"cluster: dev\nhosts:\n{lines}nodes: []\n"


def test_long_secrets_and_many_clouds_are_refused() -> None:
    load(cloud_file(), file="f")
    with pytest.raises(UsageError, match="more than 16 KiB"):
        load(cloud_file("p" * 20_000), file="f")
    with pytest.raises(SpecError, match="expected at most 32 clouds, got 33"):
        load(cloud_file(hosts=33), file="f")


def test_each_login_of_a_member_counts_as_a_name() -> None:
    recent = RecentHosts(now=lambda: 0.0)

    def host(login: str) -> Host:
        at = OpenStack("mine", "http://keystone p", login=login)
        return Host("cloud", at)

    for number in range(MOST_NAMES):
        recent.ask(1000, [host(str(number))])
    recent.ask(1000, [host("0")])
    with pytest.raises(Conflict, match="more than 8 ways"):
        recent.ask(1000, [host("another")])
    recent.ask(1001, [host("another")])


def test_boot_images_are_answered_at_addresses_of_this_machine_alone() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.2", 0))
        other.listen()
        listeners = HttpListeners(Starlette(), port=other.getsockname()[1])
        listeners.refuse("127.0.0.1")
        with pytest.raises(NospoonError, match="not an address of this machine"):
            listeners.refuse("192.0.2.77")
        with pytest.raises(Conflict, match="another process listens on"):
            listeners.refuse("127.0.0.2")
