"""Owner tags found on a host, whoever's they are: for looking at everything of a deployment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from uuid import UUID

from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.libvirt.bindings import Connect
from nospoon.providers.libvirt.definitions import defined
from nospoon.providers.libvirt.elements import parsed
from nospoon.providers.libvirt.faults import NO_STORAGE_POOL
from nospoon.providers.libvirt.hypervisor import ignoring
from nospoon.providers.libvirt.owner import owner_in, pool_owner
from nospoon.providers.libvirt.plugs import described


def deployments(connect: Connect) -> Mapping[str, int]:
    """Deployment -> how many domains, networks and pools carry its tag."""
    tags = (*domain_and_network_tags(connect), *_pool_tags(connect))
    return Counter(tag.deployment for tag in tags)


def clusters(connect: Connect, deployment: str) -> set[UUID]:
    """The clusters of which this deployment has domains or networks there."""
    tags = domain_and_network_tags(connect)
    return {tag.cluster for tag in tags if tag.deployment == deployment}


def domain_and_network_tags(connect: Connect) -> Iterator[OwnerTag]:
    """One for each domain and network that has a tag of nospoon's form."""
    roots = (root for _, root in defined(connect))
    networks = (root for root, _ in described(connect))
    for root in chain(roots, networks):
        owner = owner_in(root)
        if owner is not None:
            yield owner.tag


def _pool_tags(connect: Connect) -> Iterator[OwnerTag]:
    for pool in connect.listAllStoragePools(0):
        with ignoring(NO_STORAGE_POOL):
            tag = pool_owner(parsed(pool.XMLDesc(0)))
            if tag is not None:
                yield tag
