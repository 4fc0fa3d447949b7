"""A file made of what was found says what the disks were."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from nospoon.model.cluster import Host
from nospoon.model.resources import Key, Kind, MachineDisk, Observed, OwnerTag, Volume
from nospoon.spec.load import load
from nospoon.spec.recovered import cluster_file
from nospoon.testing.probed import MACHINE

ID = UUID("5d0f2f0e-0000-4000-8000-000000000001")
TAG = OwnerTag("d", ID)


def test_disks_of_a_recovered_file_are_what_they_were() -> None:
    disks = (
        MachineDisk("n-0", "virtio", "A"),
        MachineDisk("n-1", "scsi", "B", cache="none", discard="ignore", rotation_rate=7200),
        MachineDisk("n-2", "sata", "C", cache="unsafe", rotation_rate=1),
        MachineDisk("pool/theirs", "virtio", "D", format="raw"),
    )
    machine = Observed(Key(Kind.MACHINE, "h", "n"), replace(MACHINE, disks=disks), TAG, 0.0)
    volumes = [
        Observed(Key(Kind.VOLUME, "h", disk.volume), Volume("pool", 1 << 30), TAG, 0.0)
        for disk in disks[:3]
    ]
    text = cluster_file("c", ID, [Host("h")], [machine, *volumes])
    (node,) = load(text, file="c.yaml").nodes
    assert [(each.bus, each.cache, each.discard, each.rotational) for each in node.disks] == [
        ("virtio", "writeback", "unmap", None),
        ("scsi", "none", "ignore", True),
        ("sata", "unsafe", "unmap", False),
        ("virtio", "writeback", "unmap", None),
    ]
    assert [each.size for each in node.disks] == [1 << 30, 1 << 30, 1 << 30, 0]
    assert (node.disks[3].volume, node.disks[3].format) == ("pool/theirs", "raw")
