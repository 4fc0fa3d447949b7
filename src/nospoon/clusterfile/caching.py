"""Caches of disks in a cloud: how a compute host caches, its `nova.conf` alone says.

`[libvirt] disk_cachemodes` holds for all servers of a compute host. Nova's driver reads no property
of images, flavors or volumes beside it (`_set_cache_mode` of nova/virt/libvirt/driver.py), so that
no user of a cloud can choose it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nospoon.clusterfile.document import Path
from nospoon.clusterfile.expand import Complaint
from nospoon.clusterfile.hardware import HardwareSection
from nospoon.clusterfile.sections import Sections

WHY = "the operator of a cloud says how its compute hosts cache disks (`disk_cachemodes`)"


def caching(
    sections: Sections, layers: Iterable[tuple[Path, HardwareSection]]
) -> Iterator[Complaint]:
    """What says so of nodes that can be on clouds alone; of others, the plan notes it."""
    clouds = {name for name, host in sections.hosts.items() if host.openstack is not None}
    alone = bool(clouds) and len(clouds) == len(sections.hosts)
    if alone and sections.throwaway:
        yield Complaint(("throwaway",), WHY, "Drop `throwaway`: all hosts are clouds")
    for path, section in layers:
        pinned = path[0] == "nodes" and sections.groups[int(path[1])].host in clouds
        for index, disk in enumerate(section.disks or () if alone or pinned else ()):
            if disk.cache is not None:
                yield Complaint((*path, "disks", index, "cache"), WHY, "Drop `cache` of this disk")
