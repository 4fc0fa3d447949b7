"""What disks keep tells which snapshots there were, and of which nodes."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from nospoon.control.recover import Found, Kept, allocations_of, snapshots_of
from nospoon.model.cluster import Arch, Cluster, Firmware, Host
from nospoon.model.machine import KeptState
from nospoon.model.resources import Machine, Observed, OwnerTag
from nospoon.plan.addresses import known_addresses
from nospoon.plan.allocate import Allocations, Occupied, allocate
from nospoon.plan.resolve import Surroundings, resolve
from nospoon.spec.load import load
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
    things = tuple(
        Observed(each.key, each.shape, replace(tag, note=each.note), 0.0) for each in made
    )
    return Found(CLUSTER, cluster.name, 0, things, cluster.hosts)


@pytest.mark.parametrize("network", NETWORKS)
def test_who_is_found_keeps_its_address_and_takes_nobody_elses(network: str) -> None:
    first = decided(spread("xyZ", "a", "b", network=network), Allocations())
    up = spread("yZ", "a", "b", network=network)
    before = decided(up, first)
    recovered = allocations_of(seen_of(up, before))
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
    assert allocations_of(found).ends == before.ends
    again = decided(up, allocations_of(found))
    assert seen_of(up, again) == found
