"""Snapshots in the store: without their nodes, one with them, and how many they are."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

from nospoon.plan.addresses.allocate import Allocations
from nospoon.store import clusters, snapshots
from nospoon.store.clusters import ClusterRow
from nospoon.store.database import Database
from nospoon.store.snapshots import Heading, Member, SnapshotRow, SnapshotState

COMPLETE, TAKING = SnapshotState.COMPLETE, SnapshotState.TAKING
NODES = (
    Member("plain", uuid4(), on=True, disks=("plain-0", "plain-1")),
    Member("off", uuid4(), on=False),
    Member('a "on": true, "on":true\\" b', uuid4(), on=True, disks=('"on": true',)),
)


async def a_cluster(database: Database, name: str) -> UUID:
    row = ClusterRow(
        id=uuid4(), name=name, owner=1001, generation=1, file="", text="", uploads={},
        allocations=Allocations(), created=0.0,
    )  # fmt: skip
    await database.call(clusters.save, row)
    return row.id


async def test_a_snapshot_is_found_with_its_nodes_and_listed_without(database: Database) -> None:
    one, other = await a_cluster(database, "one"), await a_cluster(database, "other")
    second = SnapshotRow(one, "second", TAKING, 2.0, NODES)
    first = replace(second, name="first", state=COMPLETE, created=1.0)
    elsewhere = replace(second, cluster_id=other, members=NODES[1:2])
    for row in (second, first, elsewhere):
        await database.call(snapshots.put, row)
    listed = [Heading("first", COMPLETE, 1.0), Heading("second", TAKING, 2.0)]
    assert await database.read(snapshots.headings, one) == listed
    assert await database.read(snapshots.find, one, "second") == second
    assert await database.read(snapshots.find, one, "third") is None
    assert await database.read(snapshots.in_states, [TAKING], one) == [second]
    half = await database.read(snapshots.in_states, [TAKING])
    assert {row.cluster_id for row in half} == {one, other}
    assert await database.read(snapshots.in_states, [SnapshotState.REMOVING]) == []


async def test_nodes_of_a_snapshot_are_counted_whatever_they_are_called(
    database: Database,
) -> None:
    cluster = await a_cluster(database, "one")
    for name, members in {"some": NODES, "none": ()}.items():
        await database.call(snapshots.put, SnapshotRow(cluster, name, COMPLETE, 1.0, members))
    assert await database.read(snapshots.counted, cluster, "some") == (3, 2)
    assert await database.read(snapshots.counted, cluster, "none") == (0, 0)
    assert await database.read(snapshots.counted, cluster, "third") is None


async def test_nodes_with_names_of_any_bytes_are_read_as_they_were_written(
    database: Database,
) -> None:
    odd = Member(b"caf\xe9".decode(errors="surrogateescape"), uuid4(), on=True)
    row = SnapshotRow(await a_cluster(database, "one"), "s", COMPLETE, 1.0, (*NODES, odd))
    await database.call(snapshots.put, row)
    assert await database.read(snapshots.find, row.cluster_id, "s") == row
    await database.call(snapshots.set_members, replace(row, members=(odd,)))
    assert await database.read(snapshots.find, row.cluster_id, "s") == replace(row, members=(odd,))
