"""What disks keep tells which snapshots there were, and of which nodes."""

from __future__ import annotations

from uuid import UUID

from nospoon.control.recover import Kept, snapshots_of
from nospoon.model.cluster import Arch, Firmware, Host
from nospoon.model.machine import KeptState
from nospoon.model.resources import Machine
from nospoon.store.clusters import NodeRow
from nospoon.store.snapshots import Member, SnapshotState

CLUSTER = UUID(int=9)
ON, OFF = KeptState(100.0, on=True), KeptState(101.0, on=False)


def node(number: int) -> NodeRow:
    machine = Machine(
        uuid=UUID(int=number), cpus=1, memory=1 << 26, arch=Arch.X86_64, firmware=Firmware.BIOS,
        tpm=False, pool="p", disks=(), nics=(), boot_order=(),
    )  # fmt: skip
    return NodeRow(CLUSTER, f"n{number}", Host("here"), machine, "", "admin", b"")


def test_those_who_keep_a_state_are_the_members() -> None:
    first, later, diskless = node(1), node(2), node(3)
    kept: Kept = [(first, {"a": {"s": ON}, "b": {"s": ON}}), (later, {"c": {}}), (diskless, {})]
    (found,) = snapshots_of(CLUSTER, kept)
    assert (found.name, found.state, found.created) == ("s", SnapshotState.COMPLETE, 100.0)
    assert found.members == (Member("n1", UUID(int=1), on=True),)


def test_who_was_off_is_off_in_each_snapshot_by_itself() -> None:
    kept = [(node(1), {"a": {"s": ON, "t": OFF}}), (node(2), {"b": {"t": ON}})]
    s, t = snapshots_of(CLUSTER, kept)
    assert [member.on for member in s.members] == [True]
    assert [member.on for member in t.members] == [False, True]


def test_a_state_that_one_disk_of_a_node_lacks_is_half_made() -> None:
    (found,) = snapshots_of(CLUSTER, [(node(1), {"a": {"s": ON}, "b": {}})])
    assert found.state is SnapshotState.TAKING


def test_disks_that_keep_nothing_tell_of_no_snapshot() -> None:
    assert snapshots_of(CLUSTER, [(node(1), {"a": {}})]) == []
