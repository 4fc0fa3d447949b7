"""Sizes that a cloud offers: the smallest that fits, kept while it fits, and why there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nospoon.model.cluster import Arch, Disk, Firmware, Host, Node
from nospoon.model.host_facts import HostFacts, SizeOffered
from nospoon.model.resources.machines import MachineDisk
from nospoon.plan.placement.flavors import chosen, lacking
from nospoon.plan.placement.hosts import against_node
from nospoon.testing.cloud_connection import AT
from nospoon.testing.cloud_like import CloudLike
from nospoon.testing.probed import MACHINE

GIB = 1 << 30
SIZES = (
    SizeOffered("large", "1", 4, 8 * GIB, 40 * GIB),
    SizeOffered("small", "2", 1, GIB, 10 * GIB),
    SizeOffered("medium", "3", 2, 4 * GIB, 20 * GIB),
    SizeOffered("medium-b", "0", 2, 4 * GIB, 20 * GIB),
    SizeOffered("diskless", "4", 2, 2 * GIB, 0),
)
FACTS = HostFacts(frozenset(Firmware), frozenset(Arch), tpm=False, sizes=SIZES)


def node(cpus: int, memory: int, *disks: int) -> Node:
    return Node("n", cpus=cpus, memory=memory, disks=tuple(Disk(size=each) for each in disks))


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        (node(1, GIB, GIB), "small"),
        (node(2, GIB), "diskless"),
        (node(1, GIB), "diskless"),  # Nova gives each server the ephemeral disk of its flavor
        (node(2, GIB, GIB), "medium-b"),
        (node(1, GIB, 10 * GIB, 1), "medium-b"),
        (node(3, 5 * GIB, 40 * GIB), "large"),
    ],
)
def test_the_smallest_that_fits_is_taken(wanted: Node, name: str) -> None:
    size = chosen(wanted, AT, FACTS)
    assert size is not None
    assert size.name == name


def test_a_node_keeps_the_size_that_it_has_while_it_fits() -> None:
    disks = (MachineDisk("n-0", "virtio", serial="", size=GIB),)
    for flavor in ("medium", "one that the file does not allow any more"):
        made = replace(MACHINE, flavor=flavor, cpus=2, memory=4 * GIB, disks=disks)
        size = chosen(node(1, GIB, GIB), AT, FACTS, made)
        assert size is not None
        assert (size.name, size.cpus, size.memory) == (flavor, 2, 4 * GIB)
        grown = chosen(node(3, GIB, GIB), AT, FACTS, made)
        assert grown is not None
        assert grown.name == "large"


def test_what_no_size_has_is_told_with_what_there_is() -> None:
    assert not lacking(node(1, GIB, GIB), AT, FACTS)
    why = lacking(node(8, GIB, GIB), AT, FACTS)
    assert why.startswith("no flavor has 8 CPUs, 1 GiB of memory, 1 GiB of disks.")
    assert "small: 1 CPU, 1 GiB of memory, 10 GiB of disks" in why


def test_what_clouds_disks_lack_is_of_their_storage_and_not_of_their_sizes() -> None:
    """Volumes in pools may be made of images, also where machines have flavors."""
    image = replace(node(1, GIB), disks=(Disk(size=GIB, image="debian.qcow2"),))
    facts = replace(FACTS, firmwares=frozenset(Firmware))
    assert [why for why in against_node(image, AT, facts) if "begin blank" in why]
    pools = Host("h", CloudLike())
    assert not [why for why in against_node(image, pools, facts) if "begin blank" in why]


def test_where_sizes_are_free_none_is_chosen() -> None:
    free = Host("here")
    assert chosen(node(99, GIB), free, FACTS) is None
    assert not lacking(node(99, GIB), free, FACTS)
