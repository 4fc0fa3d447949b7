"""Pools: one directory per cluster and host, which libvirt manages and we own."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID
from xml.etree import ElementTree as ET

import libvirt
import structlog

from nospoon.errors import NotOurs, ProviderError
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.storage import Pool
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.identity import pool_name
from nospoon.providers.libvirt.bindings import Connect, VirPool, VirVolume
from nospoon.providers.libvirt.elements import parsed
from nospoon.providers.libvirt.faults import (
    INTERNAL_ERROR,
    NO_STORAGE_POOL,
    OPERATION_INVALID,
    SYSTEM_ERROR,
)
from nospoon.providers.libvirt.hypervisor import Hypervisor, ignoring
from nospoon.providers.libvirt.owner import SHARED_IMAGES, pool_owner, pool_uuid
from nospoon.providers.libvirt.storage_xml import NVRAM, is_ours, parse_pool, render_pool
from nospoon.providers.libvirt.tags import clusters

log = structlog.get_logger()
NOT_STARTED = (NO_STORAGE_POOL, OPERATION_INVALID)
POOL_NAME = "nospoon-"


@dataclass(frozen=True, slots=True)
class FoundPool:
    """A pool of ours on the host, and whose it is."""

    name: str
    path: str
    active: bool
    tag: OwnerTag


def our_pools(
    connect: Connect, deployment: str, cluster: UUID | None
) -> list[tuple[VirPool, FoundPool]]:
    """The pools of one cluster that this deployment made; None: those of all its clusters."""
    known = {cluster} if cluster is not None else clusters(connect, deployment)
    found = []
    for pool in connect.listAllStoragePools(0):
        with ignoring(NO_STORAGE_POOL):  # it went while we looked
            root = _root(pool)
            tag = pool_owner(root) or _derived_owner(pool, deployment, known)
            if tag is None or tag.deployment != deployment or cluster not in (None, tag.cluster):
                continue
            if tag.cluster == SHARED_IMAGES:
                continue
            path, active = parse_pool(root).path, bool(pool.isActive())
            found.append((pool, FoundPool(pool.name(), path, active, tag)))
    return found


def _derived_owner(pool: VirPool, deployment: str, known: Iterable[UUID]) -> OwnerTag | None:
    """The owner of a pool that an earlier version made, by its UUID."""
    name, uuid = pool.name(), pool.UUIDString()
    for cluster in known:
        if uuid == str(pool_uuid(deployment, cluster, name)):
            return OwnerTag(deployment, cluster)
    return None


def our_pool(connect: Connect, host: str, tag: OwnerTag, name: str) -> VirPool:
    """The pool of that name, active. Raises `NotOurs`, or `Gone` by libvirt's error."""
    pool = connect.storagePoolLookupByName(name)
    if not _is_own(pool, tag):
        raise _refusal(host, name)
    if not pool.isActive():
        pool.create(0)
    return pool


def pool_of(connect: Connect, tag: OwnerTag, said: str = "") -> str:
    """The name of a cluster's pool there; where there is none yet, the one that it will have.
    `said`: by one of its machines, which keeps it if that is a pool of its cluster.
    """
    usual = pool_name(tag.cluster, tag.name)
    for name in filter(None, (said, usual)):
        pool = _find(connect, name)
        if pool is not None and _is_own(pool, tag):
            return name
    found = our_pools(connect, tag.deployment, tag.cluster)  # of a cluster that had another name
    return next((facts.name for _, facts in found), usual)


def _is_own(pool: VirPool, tag: OwnerTag) -> bool:
    return pool.UUIDString() == str(pool_uuid(tag.deployment, tag.cluster, pool.name()))


def refreshed(pool: VirPool) -> VirPool:
    """The pool after a look at its directory; while something is uploaded it cannot look."""
    with ignoring(INTERNAL_ERROR):  # "pool has asynchronous jobs running"
        pool.refresh(0)
    return pool


def has_directory(pool: VirPool) -> bool:
    """Start it, or look at it: for who has the turn. Where a removal that was interrupted, or
    someone, removed its directory, there is none of its files either; libvirt ends an active pool
    when it finds that.
    """
    try:
        if pool.isActive():
            pool.refresh(0)
        else:
            pool.create(0)
    except libvirt.libvirtError as error:
        gone = _is_gone(error)
        if gone and pool.isActive():
            pool.destroy()
        if not gone and error.get_error_code() != INTERNAL_ERROR:
            raise
        return not gone
    return True


def _is_gone(error: libvirt.libvirtError) -> bool:
    return error.get_error_code() == SYSTEM_ERROR and "No such file" in str(error)


def volumes_known(pool: VirPool) -> list[VirVolume]:
    """The files of a pool that libvirt knows; none of one that is not started, or that goes
    meanwhile. This changes nothing: who makes or removes the pool right now is not disturbed.
    """
    try:
        return list(pool.listAllVolumes(0))
    except libvirt.libvirtError as error:
        if error.get_error_code() not in NOT_STARTED:
            raise
        return []


def volumes_seen(pool: VirPool) -> list[VirVolume]:
    """The same after a look at the pool's directory; none where that is gone."""
    try:
        return volumes_known(refreshed(pool))
    except libvirt.libvirtError as error:
        if not _is_gone(error) and error.get_error_code() not in NOT_STARTED:
            raise
        return []


def _root(thing: VirPool) -> ET.Element:
    return parsed(thing.XMLDesc(0))


def _refusal(host: str, name: str) -> NotOurs:
    return NotOurs(
        f"host {host}: there is a storage pool {name} which this nospoon did not make",
        hint=f"See `virsh pool-info {name}`; remove it, or rename the cluster.",
    )


def _find(connect: Connect, name: str) -> VirPool | None:
    try:
        return connect.storagePoolLookupByName(name)
    except libvirt.libvirtError as error:
        if error.get_error_code() == NO_STORAGE_POOL:
            return None
        raise


def made_pool(connect: Connect, host: str, name: str, shape: Pool, tag: OwnerTag) -> VirPool:
    """Define, build, start. Each step may have been done by an earlier, interrupted call.

    Raises `NotOurs`.
    """
    uuid = pool_uuid(tag.deployment, tag.cluster, name)
    pool = _find(connect, name)
    if pool is not None and pool.UUIDString() != str(uuid):
        raise _refusal(host, name)
    if pool is None:
        pool = connect.storagePoolDefineXML(render_pool(name, shape, uuid, tag), 0)
    if pool.isActive():
        return pool
    try:
        pool.setAutostart(1)
        pool.build(0)
        pool.create(0)
    except libvirt.libvirtError:
        if pool.isActive():  # someone else started it
            return pool
        pool.undefine()
        raise
    return pool


def remove_empty(pool: VirPool) -> None:
    """The pool with its directory; one that is busy, as the root of a file system is, stays."""
    pool.destroy()
    try:
        pool.delete(0)
    except libvirt.libvirtError as error:
        if error.get_int1() != errno.EBUSY:
            raise
        log.info("the directory of a pool is busy and stays", pool=pool.name())
    pool.undefine()


def _is_emptied(volume: VirVolume) -> bool:
    """Remove a directory; whether nothing of others was in it."""
    if volume.info()[0] != libvirt.VIR_STORAGE_VOL_DIR:
        return False
    try:
        volume.delete(0)
    except libvirt.libvirtError as error:
        if error.get_int1() != errno.ENOTEMPTY:
            raise
        return False
    return True


class PoolDriver:
    """Defines, builds, starts and removes directory pools."""

    kind = Kind.POOL

    def __init__(
        self,
        hypervisor: Hypervisor,
        deployment: str,
        *,
        turn: Callable[[], asyncio.Lock],
        removed: Callable[[], Awaitable[None]],
        clear: Callable[[str], Awaitable[None]],
    ) -> None:
        """`turn`: of those who start or remove pools there. `removed`: called after a pool went,
        for what it may have been the last to use; `clear`: removes what is left of UEFI variables
        in a pool's directory.
        """
        self._hypervisor, self._deployment = hypervisor, deployment
        self._turn, self._removed, self._clear = turn, removed, clear

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        pools = await self._hypervisor.ask(
            lambda connect: [found for _, found in our_pools(connect, self._deployment, cluster)],
            "list storage pools",
        )
        host = self._hypervisor.host
        return [
            Observed(
                Key(Kind.POOL, host, pool.name),
                Pool(pool.path),
                pool.tag,
                fault="" if pool.active else "the pool is not started",
            )
            for pool in pools
        ]

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        assert isinstance(resource.shape, Pool)
        shape = resource.shape
        async with self._turn():
            await self._hypervisor.work(
                lambda connect: made_pool(
                    connect, self._hypervisor.host, resource.key.name, shape, tag
                ),
                f"make storage pool {resource.key.name} in {shape.path}",
            )

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        """Start it again; its path cannot change."""
        if observed.shape != desired.shape:
            raise ProviderError(f"{desired.key} cannot change its path in place")
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        name = observed.key.name
        assert isinstance(observed.shape, Pool)
        async with self._turn():
            await self._clear(observed.shape.path)
            await self._hypervisor.work(
                lambda connect: self._remove(connect, name, observed.tag),
                f"remove storage pool {name}",
            )
        await self._removed()

    def _remove(self, connect: Connect, name: str, tag: OwnerTag) -> None:
        """Files of ours go, then the directory if nothing else is in it, then the pool."""
        pool = _find(connect, name)
        if pool is None:
            return
        if pool.UUIDString() != str(pool_uuid(tag.deployment, tag.cluster, name)):
            raise _refusal(self._hypervisor.host, name)
        if not has_directory(pool):
            pool.undefine()
            return
        strangers = []
        for volume in refreshed(pool).listAllVolumes(0):
            if is_ours(volume.name(), name):
                volume.delete(0)
            elif volume.name() == NVRAM and _is_emptied(volume):
                continue
            else:
                strangers.append(volume.name())
        if strangers:
            path = parse_pool(_root(pool)).path
            raise NotOurs(
                f"host {self._hypervisor.host}: {path} holds files which nospoon did not make: "
                f"{', '.join(sorted(strangers))}",
                hint="Move them elsewhere and do it again.",
            )
        remove_empty(pool)
