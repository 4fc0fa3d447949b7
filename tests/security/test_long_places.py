"""A cloud has a URL of any length; where it is, is a key of the store, on PostgreSQL too."""

from __future__ import annotations

import secrets
from dataclasses import replace
from uuid import uuid4

from sqlalchemy import Connection, create_engine, text

from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, Firmware, Host
from nospoon.model.connections import OpenStack
from nospoon.model.resources.machines import Machine
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.placement.room import Usage
from nospoon.store import capacity
from nospoon.store import clusters as stored
from nospoon.store import nodes as node_rows
from nospoon.store.capacity import Taking
from nospoon.store.clusters import ClusterRow
from nospoon.store.database import Database
from nospoon.store.nodes import NodeRow
from nospoon.testing.postgresql import PostgreSql

URL = f"https://{secrets.token_hex(3900)}/v3"
CLOUD = Host("cloud", OpenStack("mine", at=f"{URL} RegionOne", login="l" * 32))


def put(connection: Connection) -> None:
    """A cluster with a node in that cloud."""
    row = ClusterRow(uuid4(), "c", 1000, 1, "f", "text", {}, Allocations(), 1.0)
    machine = Machine(
        uuid=uuid4(), cpus=1, memory=1 << 30, arch=Arch.X86_64, firmware=Firmware.UEFI, tpm=False,
        disks=(), nics=(), boot_order=(BootDevice.DISK,), boot=BootMethod.SCRIPT,
    )  # fmt: skip
    stored.save(connection, row, hosts=[CLOUD])
    node_rows.put_nodes(connection, [NodeRow(row.id, "n", CLOUD, machine, "", "admin", b"secret")])
    capacity.put(connection, row.id, [Taking(machine.uuid, (CLOUD,), 1, 1 << 30, 7)])


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
        return replace(CLOUD, connection=OpenStack("mine", at=where, login="l" * 32))

    assert at(URL).place != at(f"{URL} RegionTwo").place
    assert at("http://cloud/v3 \N{BUG}").place[1] == "http://cloud/v3 \N{BUG}"
