"""The libvirt connection keeps the promises of the driver contract, with a real libvirtd."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import uuid4

import libvirt
import pytest

from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.networks import Link
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Image
from nospoon.protocols import iso9660
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.providers.libvirt.owner import domain_name
from nospoon.testing.conformance import DriverPromises
from nospoon.testing.racks import Bench, Rack, Stranger, make

pytestmark = pytest.mark.libvirt

POOL = "<pool type='dir'><name>{name}</name><target><path>{path}</path></target></pool>"
NETWORK = "<network><name>{name}</name><bridge name='{name}'/></network>"
DOMAIN = (
    "<domain type='qemu'><name>{name}</name><memory>1024</memory>"
    "<os><type arch='x86_64'>hvm</type></os></domain>"
)


class TestLibvirt(DriverPromises):
    @pytest.fixture
    async def bench(
        self, connection: LibvirtConnection, images: dict[str, str], tmp_path: Path
    ) -> AsyncIterator[Bench]:
        content = b"a disk".ljust(1 << 20, b"\0")
        sha256 = hashlib.sha256(content).hexdigest()
        (tmp_path / "image.raw").write_bytes(content)
        images[sha256] = str(tmp_path / "image.raw")
        uri = connection.host.where
        foreign = libvirt.open(uri).defineXML(DOMAIN.format(name=f"theirs-{uuid4().hex[:6]}"))
        bench = Bench(
            connection=connection,
            place=connection.host,
            deployment="kit",
            pool_root=str(tmp_path),
            image=Image("", sha256, "raw", 1 << 20),
            make_stranger=lambda resource: make_stranger(bench, resource, tmp_path),
            remove_machine=lambda resource: remove_machine(bench, resource),
            read_seed=lambda machine, name: read_seed(uri, machine, name),
            foreign=foreign.name(),
        )
        yield bench
        if foreign.isActive():
            foreign.destroy()
        foreign.undefine()

    async def test_a_pool_of_an_earlier_version_is_known_by_its_clusters_other_things(
        self, bench: Bench, rack: Rack
    ) -> None:
        assert rack.link is not None
        await make(bench, rack.pool, rack.link)
        connect = libvirt.open(bench.connection.host.where)  # type: ignore[attr-defined]
        pool = connect.storagePoolLookupByName(rack.pool.key.name)
        without = re.sub(r"<source>.*</source>", "", pool.XMLDesc(0), flags=re.DOTALL)
        pool.destroy()
        connect.storagePoolDefineXML(without, 0).create(0)
        (seen,) = await bench.connection.drivers[Kind.POOL].observe(None)
        assert (seen.key, seen.tag.cluster) == (rack.pool.key, bench.cluster)


async def make_stranger(bench: Bench, resource: Resource, place: Path) -> Stranger | None:
    """Something of the same name, made with libvirt alone."""
    connect = libvirt.open(bench.connection.host.where)  # type: ignore[attr-defined]
    if resource.key.kind is Kind.MACHINE:
        made = connect.defineXML(DOMAIN.format(name=name_of(bench, resource)))
    else:
        made = STRANGERS[resource.key.kind](connect, resource, place)
    before = made.XMLDesc(0)

    async def untouched() -> bool:
        return bool(made.XMLDesc(0) == before)

    async def remove() -> None:
        made.undefine()

    return Stranger(untouched, remove)


STRANGERS: dict[Kind, Callable[[libvirt.virConnect, Resource, Path], libvirt.virDomain]] = {
    Kind.POOL: lambda connect, resource, place: connect.storagePoolDefineXML(
        POOL.format(name=resource.key.name, path=place / "theirs")
    ),
    Kind.NETWORK: lambda connect, resource, _: connect.networkDefineXML(
        NETWORK.format(name=resource.shape.name if isinstance(resource.shape, Link) else "")
    ),
}


def name_of(bench: Bench, resource: Resource) -> str:
    return domain_name(bench.pool, resource.key.name)


async def read_seed(uri: str, machine: Machine, name: str) -> str:
    """From the CD in a drive of the machine that runs."""
    domain = libvirt.open(uri).lookupByUUIDString(str(machine.uuid))
    (path,) = re.findall(r"file='([^']*\.seed)'", domain.XMLDesc(0))
    content = Path(path).read_bytes()

    def read(offset: int, length: int) -> bytes:
        return content[offset : offset + length]

    (file,) = iso9660.find(read, frozenset({name}), largest=len(content))
    return file.decode()


async def remove_machine(bench: Bench, resource: Resource) -> None:
    connect = libvirt.open(bench.connection.host.where)  # type: ignore[attr-defined]
    connect.lookupByName(name_of(bench, resource)).undefine()
