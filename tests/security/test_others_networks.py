"""Networks that a member gives a simulated host, which has any, keep no other user from others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from uuid import uuid4

from sqlalchemy import Connection, event, select
from tests.security.asked import OTHER, OWNER, Asked, a_daemon

from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, Firmware, Host
from nospoon.model.connections import Libvirt, Simulated
from nospoon.model.resources.machines import Machine
from nospoon.plan.addresses.allocate import Allocations
from nospoon.store import capacity, claims, tables
from nospoon.store import clusters as stored
from nospoon.store import nodes as node_rows
from nospoon.store.capacity import Taking
from nospoon.store.clusters import ClusterRow
from nospoon.store.database import Database
from nospoon.store.nodes import NodeRow

ALL = """\
cluster: all
hosts: {here: simulated}
networks:
  a: {cidr: 10.0.0.0/8}
  b: {cidr: 172.16.0.0/12}
  c: {cidr: 192.168.0.0/16}
  d: {cidr: 100.64.0.0/10}
nodes: [{name: n}]
"""
OWN = """\
cluster: own
hosts: {mine: simulated}
networks: {lan: {nat: true}}
nodes: [{name: n, nics: [lan]}%s]
"""
MANY = [str(each) for each in IPv4Network("10.0.0.0/8").subnets(new_prefix=24)][:1000]


async def cidr_of(asked: Asked, name: str) -> str:
    def found(connection: Connection) -> str:
        here = tables.claimed_networks.c.name == name
        cidr: str = connection.scalars(select(tables.claimed_networks.c.cidr).where(here)).one()
        return cidr

    return await asked.daemon.parts.database.read(found)


async def test_networks_are_chosen_beside_those_of_simulated_hosts_of_others(
    tmp_path: Path,
) -> None:
    """There was no free one for anyone, root included."""
    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OTHER, ALL)).status == 202
        for uid in (OWNER, 0):
            assert (await asked.up(uid, OWN % "")).status == 202


async def test_a_chosen_network_stays_when_another_user_gives_it_a_simulated_host(
    tmp_path: Path,
) -> None:
    """It became another one at the next `up`, or there was none left for it."""
    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OWNER, OWN % "")).status == 202
        before = await cidr_of(asked, "lan")
        assert (await asked.up(OTHER, ALL)).status == 202
        assert (await asked.up(OWNER, OWN % ", {name: m, nics: [lan]}")).status == 202
        assert await cidr_of(asked, "lan") == before


def put(connection: Connection, cidrs: Collection[str], host: Host) -> None:
    """A cluster with these networks, and a node on this host."""
    given = Allocations(cidrs={f"n{number}": each for number, each in enumerate(cidrs)})
    row = ClusterRow(uuid4(), f"c{uuid4().hex}", OTHER, 1, "f", "text", {}, given, 1.0)
    machine = Machine(
        uuid=uuid4(), cpus=1, memory=1 << 30, arch=Arch.X86_64, firmware=Firmware.UEFI, tpm=False,
        disks=(), nics=(), boot_order=(BootDevice.DISK,), boot=BootMethod.NATIVE,
    )  # fmt: skip
    node = NodeRow(row.id, "n", host, machine, "", "admin", b"secret")
    stored.save(connection, row, hosts=[host])
    node_rows.put_nodes(connection, [node])
    capacity.put(connection, row.id, [Taking(node.uuid, (host,), 1, 1 << 30, 7)])


def against(connection: Connection, cidrs: Collection[str], *hosts: Host) -> list[str]:
    wanted = [(cidr, cidr) for cidr in cidrs]
    return [cidr for cidr, _ in claims.beside(connection, wanted, hosts=hosts, but=uuid4())]


async def test_hosts_that_only_have_one_name_have_networks_of_their_own(tmp_path: Path) -> None:
    """Who called a simulated host `here` took all networks of this machine's libvirt from all."""
    here, there = Host("here"), Host("here", Libvirt("qemu+ssh://root@kvm1/system"))
    simulated = Host("here", Simulated())
    database = Database.open(f"sqlite:///{tmp_path}/store.db")
    lan = ["10.7.0.0/24"]
    try:
        await database.call(put, ["10.0.0.0/8"], simulated)
        assert await database.read(against, lan, here, there) == []
        assert await database.read(against, lan, simulated) == lan
        await database.call(put, ["10.0.0.0/8"], here)
        assert await database.read(against, lan, there) == []
        assert await database.read(against, lan, here) == lan
        assert await database.read(against, lan, replace(here, drained=True)) == lan
    finally:
        database.close()


async def test_many_networks_are_compared_at_once(tmp_path: Path) -> None:
    """For each new one all were gone through, while all other users' changes waited: 100 clusters
    of one member with 1,000 networks each took half a minute at each further one.
    """
    database = Database.open(f"sqlite:///{tmp_path}/store.db")
    statements = list[str]()

    def counted(connection: Connection) -> list[str]:
        event.listen(connection, "before_cursor_execute", lambda *args: statements.append(args[2]))
        return against(connection, MANY, Host("mine", Simulated()), Host("s7", Simulated()))

    def fill(connection: Connection) -> None:
        for number in range(8):
            put(connection, MANY[number::8], Host(f"s{number}", Simulated()))

    try:
        await database.call(fill)
        assert await database.read(counted) == MANY[7::8]
    finally:
        database.close()
    assert len(statements) < 5
