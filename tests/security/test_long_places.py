"""What a file says of its hosts may be long: where a cloud is, which is a key of the store, and how
hosts are set, which is kept once for all nodes there.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, Text, cast, create_engine, func, select, text

from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, Firmware, Host
from nospoon.model.connections import OpenStack, Simulated, Simulation
from nospoon.model.resources.machines import Machine
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.placement.room import Usage
from nospoon.store import capacity, tables
from nospoon.store import clusters as stored
from nospoon.store import nodes as node_rows
from nospoon.store.capacity import Taking
from nospoon.store.clusters import ClusterRow
from nospoon.store.database import Database
from nospoon.store.nodes import NodeRow
from nospoon.testing.postgresql import PostgreSql

URL = f"https://{secrets.token_hex(3900)}/v3"
MINE = OpenStack("mine", at="http://keystone/v3 RegionOne", login="l" * 32)
CLOUD = Host("cloud", replace(MINE, at=f"{URL} RegionOne"))


def node_on(host: Host, cluster: UUID, name: str) -> NodeRow:
    machine = Machine(
        uuid=uuid4(), cpus=1, memory=1 << 30, arch=Arch.X86_64, firmware=Firmware.UEFI, tpm=False,
        disks=(), nics=(), boot_order=(BootDevice.DISK,), boot=BootMethod.SCRIPT,
    )  # fmt: skip
    return NodeRow(cluster, name, host, machine, "", "admin", b"secret")


def put(connection: Connection) -> None:
    """A cluster with a node in that cloud."""
    row = ClusterRow(uuid4(), "c", 1000, 1, "f", "text", {}, Allocations(), 1.0)
    node = node_on(CLOUD, row.id, "n")
    stored.save(connection, row, hosts=[CLOUD])
    node_rows.put_nodes(connection, [node])
    capacity.put(connection, row.id, [Taking(node.uuid, (CLOUD,), 1, 1 << 30, 7)])


async def test_nodes_in_a_cloud_of_a_long_url_are_stored_by_postgresql(
    postgresql: PostgreSql,
) -> None:
    """It refused the rows of such nodes, at a daemon's first start after an upgrade all of them, so
    that it did not start.
    """
    name = f"t{uuid4().hex}"
    admin = create_engine(postgresql.url("postgres"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    admin.dispose()
    database = Database.open(postgresql.url(name))
    try:
        await database.call(put)
        found = await database.read(capacity.taken, ["cloud"], but=uuid4())
        assert found == {("cloud", *CLOUD.place): Usage(1, 1 << 30, 7)}
    finally:
        database.close()


def test_clouds_of_long_urls_are_different() -> None:
    def at(where: str) -> Host:
        return replace(CLOUD, connection=replace(MINE, at=where))

    assert at(URL).place != at(f"{URL} RegionTwo").place
    assert at("http://cloud/v3 \N{BUG}").place[1] == "http://cloud/v3 \N{BUG}"


NODES = 20
SET = (
    Host("s", Simulated(Simulation(console="x" * 65_536, machines=("lab-1",), power_on=1.0))),
    Host("cloud", replace(MINE, flavors=tuple(f"flavor-{n:0250}" for n in range(1000)))),
    Host("here", physnets=tuple((f"net-{n}", "b" * 250) for n in range(200))),
)


@pytest.mark.parametrize("host", SET, ids=[each.name for each in SET])
async def test_settings_of_hosts_are_kept_once_for_all_nodes(tmp_path: Path, host: Host) -> None:
    """A console of 64 KiB was kept with each node: 1.3 GB of 20,000, which were written with each
    `up` in the transaction for which all changes wait.
    """
    row = ClusterRow(uuid4(), "c", 1000, 1, "f", "text", {}, Allocations(), 1.0)
    made = [node_on(host, row.id, f"n{number:02}") for number in range(NODES)]
    database = Database.open(f"sqlite:///{tmp_path}/store.db")

    def put_all(connection: Connection) -> None:
        stored.save(connection, row, hosts=[host])
        node_rows.put_nodes(connection, made)
        stored.put_hosts(connection, row.id, [host])

    try:
        await database.call(put_all)
        assert [each.host for each in await database.read(node_rows.nodes_of, row.id)] == (
            [host] * NODES
        )
        lengths = select(func.sum(func.length(cast(tables.nodes.c.host, Text))))
        assert (await database.read(lambda each: each.scalar(lengths)) or 0) < 1000 * NODES
    finally:
        database.close()
