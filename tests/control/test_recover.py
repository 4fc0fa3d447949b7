"""What disks keep tells which snapshots there were, and of which nodes."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from nospoon.clusterfile.load import load
from nospoon.control.maintenance.found_clusters import Found
from nospoon.control.maintenance.found_snapshots import Kept, joined, snapshots_of
from nospoon.model.boot import BootMethod
from nospoon.model.cluster import Arch, Cluster, Firmware, Host
from nospoon.model.machine import KeptState
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Observed
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.addresses import known_addresses
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.addresses.found import completed, found_allocations
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.resolve import resolve
from nospoon.store.nodes import NodeRow
from nospoon.store.snapshots import Member, SnapshotRow, SnapshotState

CLUSTER = UUID(int=9)
ON, OFF = KeptState(100.0, on=True), KeptState(101.0, on=False)


def node(number: int) -> NodeRow:
    machine = Machine(
        uuid=UUID(int=number), cpus=1, memory=1 << 26, arch=Arch.X86_64, firmware=Firmware.BIOS,
        tpm=False, disks=(), nics=(), boot_order=(), boot=BootMethod.NATIVE,
    )  # fmt: skip
    return NodeRow(CLUSTER, f"n{number}", Host("here"), machine, "", "admin", b"")


def test_those_who_keep_a_state_are_the_members() -> None:
    first, later, diskless = node(1), node(2), node(3)
    kept: Kept = [(first, {"a": {"s": ON}, "b": {"s": ON}}), (later, {"c": {}}), (diskless, {})]
    (found,) = snapshots_of(CLUSTER, kept)
    assert (found.name, found.state, found.created) == ("s", SnapshotState.COMPLETE, 100.0)
    assert found.members == (Member("n1", UUID(int=1), on=True, disks=("a", "b")),)


def test_who_was_off_is_off_in_each_snapshot_by_itself() -> None:
    kept = [(node(1), {"a": {"s": ON, "t": OFF}}), (node(2), {"b": {"t": ON}})]
    s, t = snapshots_of(CLUSTER, kept)
    assert [member.on for member in s.members] == [True]
    assert [member.on for member in t.members] == [False, True]


def test_a_state_that_one_disk_of_a_node_lacks_is_not_whole() -> None:
    (found,) = snapshots_of(CLUSTER, [(node(1), {"a": {"s": ON}, "b": {}})])
    assert found.state is SnapshotState.PARTLY


def test_disks_that_keep_nothing_tell_of_no_snapshot() -> None:
    assert snapshots_of(CLUSTER, [(node(1), {"a": {}})]) == []


def snapshot(*nodes: int, state: SnapshotState = SnapshotState.COMPLETE) -> SnapshotRow:
    members = tuple(Member(f"n{n}", UUID(int=n), on=True) for n in nodes)
    return SnapshotRow(CLUSTER, "s", state, 100.0, members)


def test_a_snapshot_is_complete_when_all_nodes_that_there_may_be_were_asked() -> None:
    assert joined(None, snapshot(1), whole=True) == snapshot(1)
    partly = joined(None, snapshot(1), whole=False)
    assert partly == snapshot(1, state=SnapshotState.PARTLY)
    assert joined(partly, partly, whole=True) == partly, "disks lack it"
    assert joined(partly, snapshot(1), whole=False) == partly
    assert joined(partly, snapshot(2, 1), whole=True) == snapshot(1, 2)


def test_a_snapshot_that_is_known_gets_the_members_that_are_found() -> None:
    assert joined(snapshot(1), snapshot(2), whole=True) == snapshot(1, 2)
    assert joined(snapshot(1), snapshot(1), whole=False) == snapshot(1)
    more = joined(snapshot(1), snapshot(2), whole=False)
    assert more == snapshot(1, 2, state=SnapshotState.PARTLY)
    half = joined(snapshot(1), snapshot(2, state=SnapshotState.PARTLY), whole=True)
    assert half == snapshot(1, 2, state=SnapshotState.PARTLY)
    for state in (SnapshotState.REMOVING, SnapshotState.RESTORING):
        known = snapshot(1, state=state)
        assert joined(known, snapshot(2), whole=True).state is state


NETWORKS = {
    "apart": "{netboot: builtin, cidr: 10.9.0.0/24}",
    "of IPv6": "{netboot: builtin, cidr: 'fd00:9::/64'}",
    "joined": "{overlay: vxlan, netboot: builtin, cidr: [10.9.0.0/24, 'fd00:9::/64']}",
}


def spread(nodes: str, *hosts: str, network: str) -> Cluster:
    """A node of each name; those of capitals are on the second host."""
    named = ", ".join(
        f"{name}: {{ssh: x{name}, libvirt: 'qemu+ssh://x{name}/system', address: 198.51.100.{n}}}"
        for n, name in enumerate(hosts, 1)
    )
    each = ", ".join(f"{{name: n{n.lower()}, host: {'b' if n.isupper() else 'a'}}}" for n in nodes)
    head = f"cluster: dev\nhosts: {{{named}}}\nnetworks: {{lan: {NETWORKS[network]}}}"
    return load(f"{head}\nnodes: [{each}]", file="x")


def decided(cluster: Cluster, earlier: Allocations) -> Allocations:
    allocations, reasons = allocate(cluster, earlier, Occupied())
    assert not reasons
    return allocations


def seen_of(cluster: Cluster, allocations: Allocations) -> Found:
    """What is found of a cluster that is up."""
    around = Surroundings({host.name: "/p" for host in cluster.hosts}, {}, {})
    made = resolve(cluster, CLUSTER, allocations, around).values()
    tag = OwnerTag("d", CLUSTER)
    things = tuple(Observed(each.key, each.shape, replace(tag, note=each.note)) for each in made)
    return Found(CLUSTER, cluster.name, 0, things, cluster.hosts)


@pytest.mark.parametrize("network", NETWORKS)
def test_who_is_found_keeps_its_address_and_takes_nobody_elses(network: str) -> None:
    first = decided(spread("xyZ", "a", "b", network=network), Allocations())
    up = spread("yZ", "a", "b", network=network)
    before = decided(up, first)
    recovered = found_allocations(seen_of(up, before).things)
    there = known_addresses(up, before)
    after = spread("Zvw", "a", "b", network=network)  # y left the file, and runs
    addresses = known_addresses(after, decided(after, recovered))
    assert addresses["nz", 0] == there["nz", 0]
    assert len({*addresses.values(), there["ny", 0]}) == 4


def test_hosts_of_an_overlay_are_found_with_their_addresses() -> None:
    first = decided(spread("xy", "a", network="joined"), Allocations())
    up = spread("xyZ", "b", "a", network="joined")
    before = decided(up, first)
    found = seen_of(up, before)
    assert found_allocations(found.things).ends == before.ends
    again = decided(up, found_allocations(found.things))
    assert seen_of(up, again) == found


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("first", ["a", "b"])
def test_what_a_recovery_left_out_keeps_its_place_and_its_addresses(
    network: str, first: str
) -> None:
    """Half of the machines have no row; nodes that are new since take nothing of theirs."""
    up = spread("xYzV", "a", "b", network=network)
    before = decided(up, Allocations())
    things = seen_of(up, before).things
    known = tuple(each for each in things if each.key.place == first)
    part = found_allocations(known)
    whole = completed(part, things, part.hosts.keys())
    assert {name: whole.hosts[name] for name in before.hosts} == before.hosts
    assert whole.endpoints == before.endpoints
    after = spread("wxYzVu", "a", "b", network=network)
    again = decided(after, whole)
    there = known_addresses(up, before)
    addresses = known_addresses(after, again)
    assert {key: addresses[key] for key in there} == there
    assert len({*addresses.values()}) == len(addresses)


def test_what_another_node_got_meanwhile_is_not_taken_from_it() -> None:
    up = spread("xY", "a", "b", network="apart")
    before = decided(up, Allocations())
    things = seen_of(up, before).things
    grown = spread("xW", "a", "b", network="apart")
    part = found_allocations([each for each in things if each.key.place == "a"])
    since = decided(grown, part)
    whole = completed(since, things, since.hosts.keys())
    assert whole.hosts["ny"] == "b"
    assert whole.endpoints["nw"] == since.endpoints["nw"]
    assert len({*whole.endpoints.values()}) == len(whole.endpoints)
    assert len({*whole.numbers.values()}) == len(whole.numbers)
    assert completed(since, things, {"nx", "ny"}) == since, "nobody is new"
