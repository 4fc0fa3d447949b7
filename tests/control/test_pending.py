"""What is remembered of nodes while an `up` changes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from nospoon.control.operations.journal import Journal
from nospoon.control.planning.pending import Pending, as_it_is, known_places, moving
from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, Firmware, Host
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.order.order import Half
from nospoon.store import clusters, operations
from nospoon.store import nodes as node_rows
from nospoon.store.clusters import ClusterRow
from nospoon.store.database import Database
from nospoon.store.nodes import NodeRow, Source
from nospoon.store.operations import OperationRow, OperationState

CLUSTER = ClusterRow(uuid4(), "dev", 1000, 1, "c.yaml", "", {}, Allocations(), 0)
MACHINE = Machine(
    uuid=uuid4(), cpus=1, memory=1 << 30, arch=Arch.X86_64, firmware=Firmware.BIOS, tpm=False,
    disks=(), nics=(), boot_order=(BootDevice.DISK,), boot=BootMethod.NATIVE,
)  # fmt: skip
BEFORE = NodeRow(CLUSTER.id, "a", Host("x"), MACHINE, "", "admin", b"old", source=Source.FILE)
AFTER = replace(BEFORE, host=Host("y"), password=b"new", source=Source.MADE, profile="p")
MACHINE_Y, BMC_Y = Key(Kind.MACHINE, "y", "a"), Key(Kind.BMC, "y", "a")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database.open(f"sqlite:///{tmp_path / 'db'}")
    yield opened
    opened.close()


def test_host_and_account_are_remembered_as_they_are_until_that_is_done() -> None:
    row = as_it_is(AFTER, BEFORE, {MACHINE_Y, BMC_Y})
    assert (row.host, row.password) == (BEFORE.host, BEFORE.password)
    assert row.source is BEFORE.source, "whose password is it?"
    assert row.profile == AFTER.profile, "who boots gets the new profile at once"


def test_what_a_plan_does_not_make_is_so_already() -> None:
    assert as_it_is(AFTER, BEFORE, set()) == AFTER
    assert as_it_is(AFTER, BEFORE, {BMC_Y}).host == AFTER.host
    assert as_it_is(AFTER, None, {MACHINE_Y, BMC_Y}) == AFTER, "a new node has no other place"


def test_a_host_that_is_reached_otherwise_is_the_same_host() -> None:
    there = replace(AFTER, host=Host("x", ssh="root@x"))
    assert as_it_is(there, BEFORE, {Key(Kind.MACHINE, "x", "a")}).host == there.host


async def test_with_the_intent_to_make_its_machine_a_node_is_known_there(
    database: Database,
) -> None:
    await database.call(clusters.save, CLUSTER)
    await database.call(node_rows.put_nodes, [BEFORE])
    row = OperationRow(uuid4(), "up", CLUSTER.id, "dev", 1000, OperationState.RUNNING, 0)
    await database.call(operations.begin, row)
    told: list[NodeRow] = []
    journal = Journal(
        database, row.id, CLUSTER.id, lambda: 1.0, moving=moving([AFTER]), moved=told.append
    )
    await journal.intend(Key(Kind.MACHINE, "x", "a"), Half.REMOVE, "t")
    await journal.intend(BMC_Y, Half.MAKE, "t")
    (known,) = await database.call(node_rows.nodes_of, CLUSTER.id)
    assert known == BEFORE
    await journal.intend(MACHINE_Y, Half.MAKE, "t")
    (known,) = await database.call(node_rows.nodes_of, CLUSTER.id)
    assert known == replace(BEFORE, host=AFTER.host)
    assert told == [AFTER]


def test_an_account_is_pending_for_as_long_as_the_operation_lasts() -> None:
    pending = Pending()
    pending.begin([AFTER])
    assert pending.with_account(BEFORE) == replace(BEFORE, password=b"new", source=Source.MADE)
    pending.end([AFTER])
    assert pending.with_account(BEFORE) == BEFORE


def test_the_next_plan_begins_where_nodes_are() -> None:
    decided = Allocations(hosts={"a": "y", "b": "y"}, why={"a": "pinned", "b": "pinned"})
    known = known_places(decided, [BEFORE])
    assert known.hosts == {"a": "x", "b": "y"}
    assert known.why == {"b": "pinned"}
