"""Existing volumes: no resources of ours, found with their size, refused where others have them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from nospoon.clusterfile.load import load
from nospoon.model.cluster import Arch, Cluster, Firmware
from nospoon.model.host_facts import HostFacts
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.storage import ExistingVolume
from nospoon.plan import identity
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.refuse import reasons_against
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.resolve import resolve

ID = UUID("5d0f2f0e-0000-4000-8000-000000000001")
FACTS = HostFacts(frozenset(Firmware), frozenset(Arch), tpm=True)


def read(text: str) -> Cluster:
    return load(f"cluster: dev\n{text}", file="x")


def existing(size: int, **more: Any) -> HostFacts:
    return replace(FACTS, volumes={"p/data": ExistingVolume(size, "raw", **more)})


BORROWED = """
hosts: {a: {}, b: {}}
networks: {n: {cidr: 10.0.0.0/24}}
nodes: [{name: n0, disks: [1GiB, {volume: p/data}]}]
"""


def test_an_existing_volume_is_no_resource_and_its_size_is_what_was_found() -> None:
    cluster, facts = read(BORROWED), {"a": FACTS, "b": existing(7 << 20)}
    decisions, reasons = allocate(cluster, Allocations(), Occupied(), facts=facts)
    assert not reasons
    assert decisions.hosts == {"n0": "b"}, "where the volume is"
    around = Surroundings(dict.fromkeys("ab", "/pools"), {}, {}, facts)
    found = resolve(cluster, ID, decisions, around)
    assert [key.name for key in found if key.kind is Kind.VOLUME] == ["n0-0"]
    machine = found[Key(Kind.MACHINE, "b", "n0")].shape
    assert isinstance(machine, Machine)
    assert [(disk.volume, disk.format) for disk in machine.disks] == [
        ("n0-0", "qcow2"), ("p/data", "raw"),
    ]  # fmt: skip
    bmc = found[Key(Kind.BMC, "b", "n0")].shape
    assert isinstance(bmc, Bmc)
    assert bmc.disk_sizes == (1 << 30, 7 << 20)


def test_an_existing_volume_that_is_nowhere_is_refused() -> None:
    facts = {"a": FACTS, "b": FACTS}
    _, (reason,) = allocate(read(BORROWED), Allocations(), Occupied(), facts=facts)
    assert "a, b: no volume p/data in an active storage pool" in reason


def test_a_volume_of_another_machine_is_refused_and_of_its_own_is_not() -> None:
    cluster = read(BORROWED)
    decisions = Allocations(hosts={"n0": "a"})

    def reasons(user: UUID) -> list[str]:
        facts = {"a": existing(1, users=((user, "theirs"),))}
        return list(reasons_against(cluster, ID, decisions, facts))

    assert reasons(identity.node_uuid(ID, "n0")) == []
    (reason,) = reasons(UUID(int=1))
    assert reason.startswith("node n0 on host a: volume p/data is a disk of domain theirs.")


def test_two_nodes_share_no_volume_of_a_host() -> None:
    cluster = read("nodes: [{count: 2, disks: [{volume: p/data}]}]")
    facts = {"here": existing(1)}
    hosts = dict.fromkeys(("node-0", "node-1"), "here")
    (reason,) = reasons_against(cluster, ID, Allocations(hosts=hosts), facts)
    assert "nodes node-0 and node-1 on host here: both want volume p/data" in reason
