"""What no two clusters may have: the store refuses the second one that comes, and says of what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, create_engine, event, func, insert, select
from sqlalchemy.exc import IntegrityError
from structlog.testing import capture_logs

from nospoon.control.fleet.usage import Machines, Wanted
from nospoon.control.planning.saved import save
from nospoon.errors import Stale
from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, Firmware, Host
from nospoon.model.connections import Libvirt, Lxc, OpenStack, Simulated
from nospoon.model.resources.machines import Machine
from nospoon.plan.addresses.allocate import Allocations, Endpoint
from nospoon.plan.addresses.claims import Claims, Scope, given_claims
from nospoon.plan.addresses.pdus import Socket
from nospoon.plan.addresses.scopes import Ports
from nospoon.plan.placement.room import Claim, Usage
from nospoon.store import capacity, claims, tables
from nospoon.store import clusters as stored
from nospoon.store import nodes as node_rows
from nospoon.store.capacity import Taking
from nospoon.store.clusters import ClusterRow
from nospoon.store.database import Database
from nospoon.store.encoded import as_json
from nospoon.store.migrations.run import upgrade
from nospoon.store.nodes import NodeRow

OWNER, OTHER = 1000, 1001
ROWS = (
    tables.claims,
    tables.claimed_endpoints,
    tables.claimed_networks,
    tables.claimed_capacity,
)


def a_cluster(name: str, owner: int = OWNER, **given: object) -> ClusterRow:
    allocations = Allocations(**given)  # type: ignore[arg-type]
    return ClusterRow(uuid4(), name, owner, 1, "f", "text", {}, allocations, 1.0)


def at(name: str, address: str, ipmi: int, redfish: int = 0, owner: int = OWNER) -> ClusterRow:
    return a_cluster(name, owner, endpoints={"n": Endpoint(address, ipmi, redfish)})


def a_node(cluster: ClusterRow, host: str = "here", name: str = "n") -> NodeRow:
    machine = Machine(
        uuid=uuid4(), cpus=1, memory=1 << 30, arch=Arch.X86_64, firmware=Firmware.UEFI, tpm=False,
        disks=(), nics=(), boot_order=(BootDevice.DISK,), boot=BootMethod.NATIVE,
    )  # fmt: skip
    return NodeRow(cluster.id, name, a_host(host), machine, "", "admin", b"secret")


def a_host(name: str) -> Host:
    """This machine, or another one that is called so."""
    return Host(name, ssh="" if name == "here" else name)


def on(cluster: ClusterRow, cidr: str, host: str = "here") -> ClusterRow:
    """With a network, and a node on a host."""
    return replace(cluster, allocations=Allocations(cidrs={"lan": cidr}, hosts={"n": host}))


async def keep(
    database: Database,
    row: ClusterRow,
    *nodes: NodeRow,
    hosts: Sequence[Host] = (),
    **more: object,
) -> None:
    hosts = hosts or [a_host(name) for name in {*row.allocations.hosts.values()}]
    taken = [Taking(each.uuid, (each.host,), 1, 1 << 30, 7) for each in nodes]
    await database.call(
        save, row, nodes, hosts, limited=False, takings=taken, **more  # type: ignore[arg-type]
    )  # fmt: skip


async def counted(database: Database) -> list[int]:
    def count(connection: Connection) -> list[int]:
        return [connection.scalar(select(func.count()).select_from(each)) or 0 for each in ROWS]

    return await database.read(count)


PDU = Socket(1, 1, "127.0.0.1", 6230)


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        (at("a", "127.0.0.1", 6230), at("b", "127.0.0.1", 6230), "UDP 127.0.0.1:6230"),
        (at("a", "127.0.0.1", 6230), at("b", "127.0.0.1", 6231), ""),
        (at("a", "127.0.0.1", 6230), at("b", "127.0.0.2", 6230), ""),
        (at("a", "127.0.0.1", 0), at("b", "127.0.0.1", 0), ""),
        (at("a", "::1", 6230), at("b", "::1", 6230), r"UDP \[::1\]:6230"),
        (at("a", "0.0.0.0", 6230), at("b", "127.0.0.1", 6230), "UDP 127.0.0.1:6230"),
        (at("a", "127.0.0.1", 6230), at("b", "0.0.0.0", 6230), "UDP 0.0.0.0:6230"),
        (at("a", "127.0.0.1", 6230), at("b", "0.0.0.0", 6231), ""),
        (at("a", "0.0.0.0", 6230), at("b", "::1", 6230), ""),
        (at("a", "::1", 6230), at("b", "::", 6230), r"UDP \[::\]:6230"),
        (at("a", "::", 6230), at("b", "127.0.0.1", 6230), "UDP 127.0.0.1:6230"),
        (at("a", "127.0.0.1", 6230), a_cluster("b", outlets={"n": PDU}), "UDP 127.0.0.1:6230"),
        (
            a_cluster("a", outlets={"n": replace(PDU, number=2)}),
            a_cluster("b", outlets={"n": PDU}),
            "UDP 127.0.0.1:6230",
        ),
        (at("a", "127.0.0.1", 0, 8000), at("b", "127.0.0.1", 0, 8000), ""),
        (
            at("a", "127.0.0.1", 0, 8000),
            at("b", "127.0.0.1", 0, 8000, owner=OTHER),
            "TCP 127.0.0.1:8000",
        ),
        (at("a", "127.0.0.1", 0, 8000), at("b", "127.0.0.1", 0, 8001, owner=OTHER), ""),
        (at("a", "0.0.0.0", 0, 8000), at("b", "10.1.0.7", 0, 8000, owner=OTHER), "TCP 10.1.0.7"),
        (at("a", "10.1.0.7", 0, 8000), at("b", "0.0.0.0", 0, 8000, owner=OTHER), "TCP 0.0.0.0"),
    ],
)
async def test_a_socket_of_another_cluster_is_refused(
    database: Database, one: ClusterRow, other: ClusterRow, what: str
) -> None:
    await database.call(stored.save, one)
    if not what:
        await database.call(stored.save, other)
        return
    before = await counted(database)
    with pytest.raises(Stale, match=f"another cluster took the same address and port, {what}"):
        await database.call(stored.save, other)
    assert await database.read(stored.get, other.id) is None
    assert await counted(database) == before


async def test_the_database_itself_refuses_the_second_of_a_port_and_of_a_name(
    database: Database,
) -> None:
    """Whatever looked before: it is the constraint that two at one moment cannot pass."""
    one, other = at("a", "127.0.0.1", 6230), a_cluster("b")
    for row in (one, other):
        await database.call(stored.save, row)
    socket = {"transport": "udp", "address": "127.0.0.1", "port": 6230, "owner": OTHER}

    def twice(connection: Connection) -> None:
        for row in (one, other):
            value = {"scope": "mac", "value": "02:00:00:00:00:01", "cluster_id": str(row.id)}
            connection.execute(insert(tables.claims).values(value))

    def again(connection: Connection) -> None:
        values = socket | {"cluster_id": str(other.id)}
        connection.execute(insert(tables.claimed_endpoints).values(values))

    for refused in (twice, again):
        with pytest.raises(IntegrityError):
            await database.call(refused)


@pytest.mark.parametrize(
    ("cidr", "host", "refused"),
    [
        ("172.30.0.0/25", "here", True),
        ("172.30.0.0/16", "here", True),
        ("172.30.0.0/25", "there", False),
        ("172.30.1.0/24", "here", False),
        ("172.29.255.0/24", "here", False),
    ],
)
async def test_networks_of_one_host_do_not_overlap(
    database: Database, cidr: str, host: str, *, refused: bool
) -> None:
    one, other = on(a_cluster("a"), "172.30.0.0/24"), on(a_cluster("b"), cidr, host)
    await keep(database, one, a_node(one))
    if refused:
        with pytest.raises(Stale, match=f"another cluster took the same network, {cidr}"):
            await keep(database, other, a_node(other, host))
        return
    await keep(database, other, a_node(other, host))
    moves = replace(other, generation=2, allocations=on(other, cidr, "here").allocations)
    if host == "there":  # a network that it has comes to a host that is new
        with pytest.raises(Stale, match="the same network"):
            await keep(database, moves)


@pytest.mark.parametrize(
    ("cidr", "refused"),
    [
        ("fd00:0:0:7::/64", True),
        ("fd00::/16", True),
        ("::/0", True),
        ("fd00:0:0:8::/64", False),
        ("fd00:0:0:6::/64", False),
        ("172.30.0.0/16", False),
    ],
)
async def test_nor_do_those_of_ipv6(database: Database, cidr: str, *, refused: bool) -> None:
    one, other = on(a_cluster("a"), "172.16.0.0/24"), on(a_cluster("b"), "172.17.0.0/24")
    both = frozenset({("lan", "172.16.0.0/24"), ("lan", "fd00:0:0:7::/64")})
    await keep(database, one, a_node(one), claimed=Claims(networks=both))
    assert (await database.read(claims.of, one.id)).networks == both
    wanted = Claims(networks=frozenset({("lan", cidr)}))
    if refused:
        with pytest.raises(Stale, match=f"another cluster took the same network, {cidr}"):
            await keep(database, other, a_node(other), claimed=wanted)
        await keep(database, replace(one, generation=2), claimed=Claims())
    await keep(database, other, a_node(other), claimed=wanted)


HERE, BOX = Host("here"), Host("box")


@pytest.mark.parametrize(
    ("one", "other", "meets"),
    [
        (HERE, BOX, True),
        (HERE, replace(BOX, connection=Lxc()), True),
        (HERE, replace(HERE, ssh="kvm1"), False),
        (replace(HERE, ssh="kvm1"), replace(BOX, ssh="kvm1"), True),
        (HERE, replace(HERE, connection=Simulated()), False),
        (replace(HERE, connection=Simulated()), replace(HERE, connection=Simulated()), True),
        (replace(HERE, connection=Simulated()), replace(BOX, connection=Simulated()), False),
        (HERE, replace(HERE, connection=Libvirt("qemu:///session")), False),
        (
            replace(HERE, connection=OpenStack("c", "https://keystone")),
            replace(HERE, connection=OpenStack("c", "https://keystone")),
            False,
        ),
    ],
)
async def test_networks_overlap_where_they_are_on_one_machine(
    database: Database, one: Host, other: Host, *, meets: bool
) -> None:
    """Whatever each user calls it. A cloud switches each by itself, as an emulator does."""
    for host, coming in ((one, other), (other, one)):
        first = on(a_cluster("a"), "172.30.0.0/24", host.name)
        second = on(a_cluster("b", OTHER), "172.30.0.0/16", coming.name)
        await keep(database, first, replace(a_node(first), host=host), hosts=[host])
        beside = keep(database, second, replace(a_node(second), host=coming), hosts=[coming])
        if meets:
            with pytest.raises(Stale, match=r"the same network, 172\.30\.0\.0/16"):
                await beside
        else:
            await beside
        for row in (first, second):
            await database.call(stored.remove, row.id)


@pytest.mark.parametrize(
    ("scope", "called"),
    [
        (Scope.MAC, "MAC"), (Scope.BRIDGE, "bridge"), (Scope.POOL, "pool"),
        (Scope.VNI, "VXLAN identifier"),
    ],
)  # fmt: skip
async def test_a_name_of_another_cluster_is_refused(
    database: Database, scope: Scope, called: str
) -> None:
    one, other = a_cluster("a"), a_cluster("b", OTHER)
    many = {(scope, f"x{number}") for number in range(1200)}
    await keep(database, one, claimed=Claims(names=frozenset({(scope, "x700")})))
    with pytest.raises(Stale, match=f"another cluster took the same {called}, x700"):
        await keep(database, other, claimed=Claims(names=frozenset(many)))
    assert await database.read(claims.of, other.id) == Claims()
    await database.call(stored.remove, one.id)
    await keep(database, other, claimed=Claims(names=frozenset(many)))
    assert (await database.read(claims.of, other.id)).names == many


async def test_bmcs_of_a_pool_share_the_socket_of_all_addresses(database: Database) -> None:
    await database.call(stored.save, at("a", "0.0.0.0", 623))
    other = at("b", "10.9.0.1", 623)
    pooled = replace(given_claims(other.allocations), pooled=True)
    await keep(database, other, claimed=pooled)


async def test_what_a_cluster_gives_back_is_free(database: Database) -> None:
    one, other = at("a", "127.0.0.1", 6230), at("b", "127.0.0.1", 6230)
    await database.call(stored.save, one)
    moved = at("a", "127.0.0.1", 6231).allocations
    await database.call(stored.save, replace(one, generation=2, allocations=moved))
    await database.call(stored.save, other)
    await database.call(stored.remove, other.id)
    await database.call(stored.save, replace(one, generation=3))


async def test_a_node_that_is_gone_gives_back_what_it_had(database: Database) -> None:
    ends = {"n": Endpoint("127.0.0.1", 6230, 8000), "m": Endpoint("127.0.0.1", 6231, 8000)}
    one, mac = a_cluster("a", endpoints=ends), (Scope.MAC, "02:00:00:00:00:01")
    kept = (Scope.MAC, "02:00:00:00:00:02")
    claimed = replace(given_claims(one.allocations), names=frozenset({mac, kept}))
    await keep(database, one, claimed=claimed)
    await database.call(stored.forget_places, one.id, {"n"}, {mac})
    left = Claims(
        udp=frozenset({("127.0.0.1", 6231)}),
        redfish=frozenset({("127.0.0.1", 8000)}),
        names=frozenset({kept}),
    )
    assert await database.read(claims.of, one.id) == left


async def test_a_cluster_takes_its_rows_along(database: Database) -> None:
    row = on(at("a", "127.0.0.1", 6230, 8000), "172.30.0.0/24")
    row = replace(row, allocations=replace(
        row.allocations, endpoints={"n": Endpoint("127.0.0.1", 6230, 8000)}
    ))  # fmt: skip
    named = frozenset({(Scope.POOL, "p")})
    await keep(
        database, row, a_node(row), claimed=replace(given_claims(row.allocations), names=named)
    )
    assert await counted(database) == [1, 2, 1, 1]
    await database.call(stored.remove, row.id)
    assert await counted(database) == [0, 0, 0, 0]


@pytest.fixture
def written(database: Database) -> Iterator[list[str]]:
    """Statements that change tables of claims."""
    seen = list[str]()

    def note(_: object, __: object, statement: str, *___: object) -> None:
        if "claim" in statement and not statement.startswith("SELECT"):
            seen.append(statement)

    event.listen(database._engine, "before_cursor_execute", note)
    yield seen
    event.remove(database._engine, "before_cursor_execute", note)


async def test_what_is_as_before_is_not_written_again(
    database: Database, written: list[str]
) -> None:
    row = at("a", "127.0.0.1", 6230, 8000)
    node = a_node(row)
    await keep(database, row, node)
    assert written
    written.clear()
    await keep(database, replace(row, generation=2), node)
    assert written == []


async def test_rows_of_many_are_written_a_few_hundred_at_a_time(
    database: Database, written: list[str]
) -> None:
    ends = {f"n{number}": Endpoint("10.9.0.1", 1 + number, 8000) for number in range(10_000)}
    await database.call(stored.save, a_cluster("a", endpoints=ends))
    assert len(written) < 30


async def test_a_plan_reads_what_is_near_and_nothing_else(database: Database) -> None:
    mine = a_cluster("mine")
    for number, (address, port) in enumerate(
        [("127.0.0.1", 6230), ("127.0.0.2", 6230), ("0.0.0.0", 6231), ("::1", 6232),
         ("127.0.0.1", 7000)]
    ):  # fmt: skip
        await database.call(stored.save, at(f"c{number}", address, port, 8000))
    loopback = (127 << 24) + 1
    near = [Ports(6230, 6240, loopback, loopback)]

    async def found(where: Sequence[Ports], but: UUID) -> set[tuple[str, int]]:
        rows = await database.read(claims.places_in, where, transport=claims.UDP, but=but)
        return {place for place, _ in rows}

    assert await found(near, mine.id) == {("127.0.0.1", 6230), ("0.0.0.0", 6231), ("::1", 6232)}
    assert len(await found([Ports(6230, 6240)], mine.id)) == 4
    first = (await database.read(stored.listed, owner=OWNER))[0][0]
    assert await found(near, first) == {("0.0.0.0", 6231), ("::1", 6232)}


async def test_capacity_is_summed_by_place_and_without_ones_own(database: Database) -> None:
    one, other = a_cluster("a"), a_cluster("b")
    here, far = Host("here"), Host("here", ssh="root@far")
    nodes = [a_node(one), a_node(one, name="m"), a_node(other)]
    for row, its in ((one, nodes[:2]), (other, nodes[2:])):
        await keep(database, row, *its)
    both = Taking(nodes[1].uuid, (here, far), 2, 1 << 62, 1 << 70)
    await database.call(capacity.put, one.id, [both, Taking(nodes[0].uuid, (here,), 2, 1 << 62, 3)])

    async def taken(but: UUID) -> dict[tuple[str, ...], Usage]:
        return await database.read(capacity.taken, {"here", "elsewhere"}, but=but)

    at_here, at_far = ("here", *here.place), ("here", *far.place)
    most = float(1 << 63)
    assert await taken(other.id) == {
        at_here: Usage(4, float(1 << 63), most + 3), at_far: Usage(2, float(1 << 62), most),
    }  # fmt: skip
    assert await taken(one.id) == {at_here: Usage(1, float(1 << 30), 7)}
    await database.call(node_rows.settle, nodes[1].uuid, far)
    assert (await taken(other.id))[at_here] == Usage(2, float(1 << 62), 3)
    await database.call(node_rows.drop_nodes, [nodes[1].uuid])
    assert at_far not in await taken(other.id)


async def test_the_second_that_comes_for_the_last_of_a_host_is_refused(database: Database) -> None:
    one, other = a_cluster("a"), a_cluster("b", OTHER)
    asked = Usage(1, 1 << 30, 7)
    claim = Claim("here", "m", Usage(8, 3 << 29, 100), asked, asked)
    wanted = Wanted((claim,), Machines({"here"}, lambda _: "m"))
    await keep(database, one, a_node(one), wanted=wanted)
    with pytest.raises(Stale, match="another cluster took memory of host here"):
        await keep(database, other, a_node(other), wanted=wanted)
    assert await database.read(stored.get, other.id) is None
    await database.call(stored.remove, one.id)
    await keep(database, other, a_node(other), wanted=wanted)


async def test_a_cluster_that_is_found_again_has_what_is_free(database: Database) -> None:
    one, found = at("a", "127.0.0.1", 6230), at("b", "127.0.0.1", 6230, 8000)
    await database.call(stored.save, one)
    lost = await database.call(stored.save_found, found, given_claims(found.allocations))
    assert lost.udp == {("127.0.0.1", 6230)}
    had = await database.read(claims.of, found.id)
    assert not had.udp
    assert had.redfish == {("127.0.0.1", 8000)}


async def test_a_cluster_of_which_more_is_found_keeps_what_it_had(database: Database) -> None:
    """Of a network into which nothing is plugged, nothing is found in machines."""
    bridge, mac = (Scope.BRIDGE, "ns012345-lan"), (Scope.MAC, "02:00:00:00:00:01")
    row = at("a", "127.0.0.1", 6230, 8000)
    had = replace(given_claims(row.allocations), names=frozenset({bridge}))
    await keep(database, row, claimed=had)
    more = at("a", "127.0.0.1", 6231).allocations
    found = replace(given_claims(more), names=frozenset({mac}))
    await database.call(stored.save_found, replace(row, generation=2), found)
    assert await database.read(claims.of, row.id) == Claims(
        udp=frozenset({("127.0.0.1", 6230), ("127.0.0.1", 6231)}),
        redfish=frozenset({("127.0.0.1", 8000)}),
        names=frozenset({bridge, mac}),
    )


def test_a_store_of_an_earlier_version_gets_its_rows(url: str) -> None:
    """Two of its clusters have the same: the first one has the row, and the store opens."""
    mac = "02:00:00:00:00:0A"
    engine = create_engine(url, json_serializer=as_json)
    first = replace(on(a_cluster("a"), "172.30.0.0/24"), created=1.0, name="later", id=UUID(int=9))
    given = {
        "cidrs": {"lan": "172.30.0.0/24"},
        "endpoints": {"n": {"address": "127.0.0.1", "ipmi_port": 6230, "redfish_port": 8000}},
        "outlets": {"n": {"pdu": 1, "number": 1, "address": "127.0.0.1", "port": 1161}},
    }
    with engine.begin() as connection:
        upgrade(connection, "0019")
        columns = ("name", "owner", "generation", "file", "text", "uploads")
        for id_, created, name in ((first.id, 1.0, "first"), (UUID(int=1), 2.0, "second")):
            values = {each: getattr(first, each) for each in columns} | {"name": name}
            values |= {"id": str(id_), "created": created, "allocations": given}
            connection.execute(insert(tables.clusters).values(values))
        node = a_node(first)
        nic = {"mac": mac, "bridge": "ns012345-lan", "model": "virtio-net"}
        node_rows.put_nodes(connection, [node])
        now = {"mac": "", "network": "nsfedcba-wan", "model": "virtio-net"}
        machine = {"uuid": str(node.uuid), "cpus": 2, "memory": 1 << 40, "nics": [nic, now]}
        connection.execute(tables.nodes.update().values(machine=machine))
        adopted = a_node(first, name="adopted")
        node_rows.put_nodes(connection, [adopted])
        nic |= {"mac": "", "bridge": "ns111111-its"}  # its owner plugged it into another's bridge
        row = {"uuid": str(adopted.uuid), "cpus": 0, "memory": 0, "nics": [nic], "adopted": "x"}
        its = tables.nodes.c.uuid == str(adopted.uuid)
        connection.execute(tables.nodes.update().where(its).values(machine=row))
        bmc = {"bmc": {"uuid": str(node.uuid), "disk_sizes": [5, 6]}, "tag": {}}
        row = {"uuid": str(node.uuid), "cluster_id": str(first.id), "host": "h", "name": "n"}
        connection.execute(insert(tables.bmcs).values(row | {"record": bmc}))
        with capture_logs() as logs:
            upgrade(connection)
        (noted,) = (each for each in logs if each["log_level"] == "warning")
        assert (noted["cluster"], noted["more"]) == ("second", 0)
        assert noted["what"] == ["127.0.0.1:1161", "127.0.0.1:6230"]
        had = claims.of(connection, first.id)
        assert had.udp == {("127.0.0.1", 6230), ("127.0.0.1", 1161)}
        assert had.networks == {("lan", "172.30.0.0/24")}
        bridges = {value for scope, value in had.names if scope is Scope.BRIDGE}
        assert bridges == {"ns012345-lan", "nsfedcba-wan"}
        assert {value for scope, value in had.names if scope is Scope.MAC} == {mac.lower()}
        second = claims.of(connection, UUID(int=1))
        assert not second.udp
        assert second.redfish == {("127.0.0.1", 8000)}
        place = ("here", *Host("here").place)
        assert capacity.taken(connection, {"here"}, but=UUID(int=1)) == {
            place: Usage(2, float(1 << 40), 11)
        }
    engine.dispose()
    Database.open(url).close()
