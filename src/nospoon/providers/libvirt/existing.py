"""Volumes of others, which machines of ours may have as disks: looked at, and nothing else.

They lie in storage pools that nospoon did not make (https://libvirt.org/formatstorage.html), of
whatever type. Being no resources, no plan makes, changes or deletes them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from uuid import UUID
from xml.etree import ElementTree as ET

import libvirt

from nospoon.model.resources.storage import ExistingVolume
from nospoon.providers.libvirt.bindings import Connect, VirPool, VirVolume
from nospoon.providers.libvirt.definitions import defined
from nospoon.providers.libvirt.elements import parsed
from nospoon.providers.libvirt.faults import NO_STORAGE_POOL, NO_STORAGE_VOL
from nospoon.providers.libvirt.hypervisor import ignoring
from nospoon.providers.libvirt.owner import pool_owner
from nospoon.providers.libvirt.pools import POOL_NAME, refreshed
from nospoon.providers.libvirt.storage_xml import parse_volume
from nospoon.providers.libvirt.volumes import file_named

User = tuple[UUID, str]


def existing_volumes(connect: Connect, names: Collection[str]) -> Mapping[str, ExistingVolume]:
    """Of these, POOL/VOLUME, those that are there, in a pool that is active."""
    users = _users(connect)
    found = {}
    for name in names:
        pool_name, _, file = name.partition("/")
        with ignoring(NO_STORAGE_POOL, NO_STORAGE_VOL):  # it is not there, or went while we looked
            pool = connect.storagePoolLookupByName(pool_name)
            volume = _volume(pool, file)
            if volume is not None:
                known = parse_volume(parsed(volume.XMLDesc(0)))
                using = dict.fromkeys((*users[name], *users[volume.path()]))
                managed = _is_of_nospoon(pool)
                found[name] = ExistingVolume(known.capacity, known.format, tuple(using), managed)
    return found


def _volume(pool: VirPool, name: str) -> VirVolume | None:
    """Files that libvirt does not know of yet are seen after a look at the pool only."""
    if not pool.isActive():
        return None
    return file_named(pool, name) or file_named(refreshed(pool), name)


def _is_of_nospoon(pool: VirPool) -> bool:
    return pool.name().startswith(POOL_NAME) or pool_owner(parsed(pool.XMLDesc(0))) is not None


def _users(connect: Connect) -> Mapping[str, list[User]]:
    """Path, or POOL/VOLUME, of each disk -> the domains that have it, or will when they start."""
    users: dict[str, list[User]] = defaultdict(list)
    for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
        for domain, root in defined(connect, flags=flags):
            user = (UUID(bytes=domain.UUID()), domain.name())
            for place in _sources(root):
                users[place].append(user)
    return users


def _sources(root: ET.Element) -> Iterator[str]:
    """What its disks, and files below them in backing chains, are made of."""
    for source in root.iterfind("devices/disk//source"):
        place = source.get("file") or source.get("dev")
        if place:
            yield place
        if source.get("pool"):
            yield f"{source.get('pool')}/{source.get('volume')}"
