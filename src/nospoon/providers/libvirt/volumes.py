"""Volumes: disks as qcow2 files in our pool, blank or on top of an image."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from uuid import UUID

import libvirt
import structlog

from nospoon.errors import Gone, ProviderError
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.storage import Volume
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.order.kinds import whose
from nospoon.providers.base import in_use
from nospoon.providers.libvirt.bindings import Connect, VirPool, VirVolume
from nospoon.providers.libvirt.definitions import defined
from nospoon.providers.libvirt.elements import parsed
from nospoon.providers.libvirt.faults import NO_DOMAIN, NO_STORAGE_POOL, NO_STORAGE_VOL
from nospoon.providers.libvirt.hypervisor import Hypervisor, ignoring
from nospoon.providers.libvirt.owner import domain_name, owner_in
from nospoon.providers.libvirt.pools import (
    NOT_STARTED,
    FoundPool,
    our_pool,
    our_pools,
    refreshed,
    volumes_seen,
)
from nospoon.providers.libvirt.storage_xml import (
    EARLIER_DISK,
    FoundVolume,
    as_disk,
    as_image,
    disk_file,
    earlier_disk_file,
    is_ours,
    parse_volume,
    render_volume,
)

log = structlog.get_logger()


def files_in(pool: VirPool) -> Iterator[tuple[VirVolume, FoundVolume]]:
    """Every file of a pool, as libvirt knows it."""
    return described(pool.listAllVolumes(0))


def described(volumes: Iterable[VirVolume]) -> Iterator[tuple[VirVolume, FoundVolume]]:
    """Files with what libvirt says of them. One that vanishes while we look is left out."""
    for volume in volumes:
        try:
            xml = volume.XMLDesc(0)
        except libvirt.libvirtError as error:
            if error.get_error_code() in (NO_STORAGE_VOL, *NOT_STARTED):
                continue
            raise
        yield volume, parse_volume(parsed(xml))


def file_named(pool: VirPool, file: str) -> VirVolume | None:
    try:
        return pool.storageVolLookupByName(file)
    except libvirt.libvirtError as error:
        if error.get_error_code() == NO_STORAGE_VOL:
            return None
        raise


def remove_files(connect: Connect, host: str, observed: Observed, files: list[str]) -> None:
    """Delete files of a pool of ours; what is gone already, pool included, is no error."""
    shape = observed.shape
    assert isinstance(shape, Volume)
    try:
        pool = our_pool(connect, host, observed.tag, shape.pool)
    except libvirt.libvirtError as error:
        if error.get_error_code() == NO_STORAGE_POOL:
            return
        raise
    for file in files:
        volume = file_named(pool, file)
        if volume is not None:
            _refuse_in_use(connect, observed, volume.path())
            volume.delete(0)


def _refuse_in_use(connect: Connect, observed: Observed, path: str) -> None:
    """Its machine may have been switched on since someone looked."""
    assert isinstance(observed.shape, Volume)
    node = whose(observed.key)
    with ignoring(NO_DOMAIN):
        domain = connect.lookupByName(domain_name(observed.shape.pool, node))
        if domain.isActive():
            sources = parsed(domain.XMLDesc(0)).iterfind("devices/disk/source")
            if any(source.get("file") == path for source in sources):
                raise in_use(observed.key, node)


def disks_of(connect: Connect, tag: OwnerTag) -> frozenset[str]:
    """The paths of the disks of a cluster's domains that are named as earlier versions named them:
    by the node, which someone's file that he gave to a domain is not.
    """
    found: set[str] = set()
    for _, root in defined(connect):
        owner = owner_in(root)
        if owner and (owner.tag.deployment, owner.tag.cluster) == (tag.deployment, tag.cluster):
            own = re.compile(rf".*/{re.escape(owner.name)}-\d+\.qcow2")
            sources = root.iterfind("devices/disk/source")
            found |= {path for each in sources if own.fullmatch(path := each.get("file", ""))}
    return frozenset(found)


def named_as_earlier(pool: VirPool, machine: Machine) -> frozenset[str]:
    """A machine's volumes that are there only in files named as earlier versions named them."""
    return frozenset(
        disk.volume
        for disk in machine.disks
        if not disk.existing
        and file_named(pool, disk_file(pool.name(), disk.volume)) is None
        and file_named(pool, earlier_disk_file(disk.volume)) is not None
    )


class VolumeDriver:
    """Makes, grows and removes disks."""

    kind = Kind.VOLUME

    def __init__(
        self,
        hypervisor: Hypervisor,
        deployment: str,
        *,
        shared: Callable[[Connect], VirPool | None],
    ) -> None:
        """`shared`: finds the pool of images that clusters share."""
        self._hypervisor, self._deployment = hypervisor, deployment
        self._shared = shared
        self._earlier: set[tuple[str, str]] = set()

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        found = await self._hypervisor.work(
            lambda connect: self._list(connect, cluster), "list volumes"
        )
        host = self._hypervisor.host
        return [Observed(Key(Kind.VOLUME, host, name), shape, tag) for tag, (name, shape) in found]

    def _list(
        self, connect: Connect, cluster: UUID | None
    ) -> list[tuple[OwnerTag, tuple[str, Volume]]]:
        found = []
        for pool, facts in our_pools(connect, self._deployment, cluster):
            files = [file for _, file in described(volumes_seen(pool))]
            if files:
                earlier = self._claimed(connect, facts, files)
                disks = (as_disk(file, facts.name, earlier=earlier) for file in files)
                found += [(facts.tag, disk) for disk in disks if disk is not None]
        return found

    def _claimed(
        self, connect: Connect, facts: FoundPool, files: Sequence[FoundVolume]
    ) -> frozenset[str]:
        """Files named as earlier versions named disks, that domains of the cluster have as such."""
        unsure = {
            file.file: match["name"]
            for file in files
            if (match := EARLIER_DISK.match(file.file)) and not is_ours(file.file, facts.name)
        }
        disks = disks_of(connect, facts.tag) if unsure else frozenset()
        claimed = frozenset(file for file in unsure if f"{facts.path}/{file}" in disks)
        self._earlier |= {(facts.name, unsure[file]) for file in claimed}
        return claimed

    def _file(self, pool: str, name: str) -> str:
        """The file of a volume: that which a domain has, where an earlier version named it."""
        if (pool, name) in self._earlier:
            return earlier_disk_file(name)
        return disk_file(pool, name)

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        assert isinstance(resource.shape, Volume)
        shape = resource.shape
        await self._hypervisor.work(
            lambda connect: self._make(connect, resource.key.name, shape, tag),
            f"make volume {resource.key.name} in pool {shape.pool}",
        )

    def _make(self, connect: Connect, name: str, shape: Volume, tag: OwnerTag) -> None:
        pool = our_pool(connect, self._hypervisor.host, tag, shape.pool)
        file = self._file(shape.pool, name)
        existing = file_named(pool, file)
        if existing is not None:
            known = parse_volume(parsed(existing.XMLDesc(0)))
            found = as_disk(known, shape.pool, earlier=(file,))
            if found is not None and found[1].image == shape.image:
                self._grow(connect, existing, found[1].size, shape.size)
                return
            existing.delete(0)
        xml = render_volume(
            file,
            capacity=shape.size,
            file_format="qcow2",
            backing=self._backing(connect, pool, shape) if shape.image else None,
        )
        self._create(pool, xml)

    def _create(self, pool: VirPool, xml: str) -> None:
        """A file that libvirt does not know of is seen after a look at the directory only."""
        try:
            pool.createXML(xml, 0)
        except libvirt.libvirtError as error:
            name = parse_volume(parsed(xml)).file
            existing = file_named(refreshed(pool), name)
            if existing is None:
                raise
            log.warning("recreating a file unknown to libvirt", file=name, why=error)
            existing.delete(0)
            pool.createXML(xml, 0)

    def _backing(self, connect: Connect, pool: VirPool, shape: Volume) -> tuple[str, str]:
        """Where the image lies: in the cluster's own pool those of earlier versions do."""
        for place in filter(None, (pool, self._shared(connect))):
            for volume, file in files_in(place):
                image = as_image(file, shape.pool)
                if image is not None and image[0] == shape.image:
                    return volume.path(), image[1].format
        raise Gone(
            f"host {self._hypervisor.host}: pool {shape.pool} has no image {shape.image}",
            hint="It was removed by other means. `nospoon up` copies it again.",
        )

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del tag
        before, after, name = observed.shape, desired.shape, desired.key.name
        assert isinstance(before, Volume)
        assert isinstance(after, Volume)
        if after.size < before.size:
            raise ProviderError(
                f"{desired.key} cannot shrink from {before.size} to {after.size} bytes",
                hint="Remove the node and make it again.",
            )
        await self._hypervisor.work(
            lambda connect: self._enlarge(connect, observed, after), f"grow volume {name}"
        )

    def _enlarge(self, connect: Connect, observed: Observed, after: Volume) -> None:
        assert isinstance(observed.shape, Volume)
        pool = our_pool(connect, self._hypervisor.host, observed.tag, after.pool)
        file = self._file(after.pool, observed.key.name)
        volume = refreshed(pool).storageVolLookupByName(file)
        self._grow(connect, volume, observed.shape.size, after.size)

    def _grow(self, connect: Connect, volume: VirVolume, before: int, size: int) -> None:
        """Grow the file, through the guest's QEMU where one has it open."""
        if before >= size:
            return
        path = volume.path()
        for domain, root in defined(connect, of=libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE, flags=0):
            disks = root.iterfind("devices/disk/source")
            if any(source.get("file") == path for source in disks):
                domain.blockResize(path, size, libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)
                return
        volume.resize(size, 0)

    async def delete(self, observed: Observed) -> None:
        assert isinstance(observed.shape, Volume)
        name, file = observed.key.name, self._file(observed.shape.pool, observed.key.name)
        await self._hypervisor.work(
            lambda connect: remove_files(connect, self._hypervisor.host, observed, [file]),
            f"remove volume {name}",
        )
