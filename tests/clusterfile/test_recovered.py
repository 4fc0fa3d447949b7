"""A file made of what was found says what the disks were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from nospoon.clusterfile.load import load
from nospoon.clusterfile.recovered import cluster_file, with_more
from nospoon.model.cluster import Host
from nospoon.model.connections import OpenStack
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import MachineDisk
from nospoon.model.resources.resource import Observed
from nospoon.model.resources.storage import Volume
from nospoon.model.resources.tags import OwnerTag
from nospoon.testing.probed import MACHINE

ID = UUID("5d0f2f0e-0000-4000-8000-000000000001")
TAG = OwnerTag("d", ID)


def no_login(name: str) -> Mapping[str, Any]:
    raise AssertionError(f"these hosts have no login: {name}")


def test_disks_of_a_recovered_file_are_what_they_were() -> None:
    disks = (
        MachineDisk("n-0", "virtio", "A"),
        MachineDisk("n-1", "scsi", "B", cache="none", discard="ignore", rotation_rate=7200),
        MachineDisk("n-2", "sata", "C", cache="unsafe", rotation_rate=1),
        MachineDisk("pool/theirs", "virtio", "D", format="raw"),
    )
    machine = Observed(Key(Kind.MACHINE, "h", "n"), replace(MACHINE, disks=disks), TAG)
    volumes = [
        Observed(Key(Kind.VOLUME, "h", disk.volume), Volume("pool", 1 << 30), TAG)
        for disk in disks[:3]
    ]
    text = cluster_file("c", ID, [Host("h")], [machine, *volumes], no_login)
    (node,) = load(text, file="c.yaml").nodes
    assert [(each.bus, each.cache, each.discard, each.rotational) for each in node.disks] == [
        ("virtio", "writeback", "unmap", None),
        ("scsi", "none", "ignore", True),
        ("sata", "unsafe", "unmap", False),
        ("virtio", "writeback", "unmap", None),
    ]
    assert [each.size for each in node.disks] == [1 << 30, 1 << 30, 1 << 30, 0]
    assert (node.disks[3].volume, node.disks[3].format) == ("pool/theirs", "raw")


def test_a_recovered_file_of_a_container_with_a_volume_can_be_read() -> None:
    """Its image is not seen, without which it is of no kind."""
    disks = (MachineDisk("n-0", "virtio", "A"), MachineDisk("n-1", "virtio", "", mount="/srv"))
    shape = replace(MACHINE, kind=NodeKind.CONTAINER, disks=disks)
    machine = Observed(Key(Kind.MACHINE, "h", "n"), shape, TAG)
    volumes = [
        Observed(Key(Kind.VOLUME, "h", disk.volume), Volume("pool", 1 << 30), TAG) for disk in disks
    ]
    text = cluster_file("c", ID, [Host("h")], [machine, *volumes], no_login)
    (node,) = load(text, file="c.yaml").nodes
    assert [each.size for each in node.disks] == [1 << 30, 1 << 30]


def test_a_recovered_file_takes_in_what_another_look_found() -> None:
    def machine(name: str, host: str, cpus: int) -> Observed:
        shape = replace(MACHINE, cpus=cpus, disks=(), nics=())
        return Observed(Key(Kind.MACHINE, host, name), shape, TAG)

    first = cluster_file("c", ID, [Host("a")], [machine("n1", "a", 2)], no_login)
    found_later = [machine("n0", "b", 1), machine("n1", "a", 9)]
    second = cluster_file("c", ID, [Host("b")], found_later, no_login)
    found = load(with_more(first, second), file="c.yaml")
    assert found.id == ID
    assert [host.name for host in found.hosts] == ["b", "a"]
    assert [(node.name, node.host, node.cpus) for node in found.nodes] == [
        ("n0", "b", 1), ("n1", "a", 2),
    ]  # fmt: skip


def test_a_host_in_a_cloud_has_its_login_in_the_file() -> None:
    at = OpenStack("mine", "http://k p", login="digest", flavors=("m",), boot_address="192.0.2.1")
    host = Host("cloud", at)
    disk = MachineDisk("n-0", "sata", serial="", size=1 << 30)
    shape = replace(MACHINE, disks=(disk,), flavor="m")
    machine = Observed(Key(Kind.MACHINE, "cloud", "n"), shape, TAG)
    settings = {"auth": {"auth_url": "http://192.0.2.9/v3", "username": "u", "password": "p"}}
    found = load(
        cluster_file("c", ID, [host], [machine], {"digest": settings}.__getitem__), file="c.yaml"
    )
    assert isinstance(found.hosts[0].connection, OpenStack)
    assert found.hosts[0].connection.cloud == "mine"
    assert "auth_url" in dict(found.logins)["cloud"]
    assert [each.size for each in found.nodes[0].disks] == [1 << 30]
