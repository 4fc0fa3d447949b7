"""In which pool a machine has its disks, which gives its domain a name: no shape says that."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import libvirt
import pytest

from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.storage import Pool
from nospoon.plan.identity import pool_name
from nospoon.providers.libvirt.connection import LibvirtConnection
from nospoon.providers.libvirt.owner import OWNER, domain_name, owner_in
from nospoon.testing.racks import Bench, Rack, found, make, rack_for

pytestmark = pytest.mark.libvirt


def pool_and_name(connection: LibvirtConnection, rack: Rack) -> tuple[str, str]:
    """What a domain says of its pool, and what it is called."""
    domain = libvirt.open(connection.host.where).lookupByUUID(rack.uuid.bytes)
    owner = owner_in(ET.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)))
    assert owner is not None
    return owner.pool, domain.name()


async def make_pool(bench: Bench, name: str) -> str:
    pool = pool_name(bench.cluster, name)
    resource = Resource(Key(Kind.POOL, bench.host, pool), Pool(f"{bench.pool_root}/{pool}"))
    await bench.connection.drivers[Kind.POOL].create(resource, bench.tag)
    return pool


async def change(bench: Bench, rack: Rack, *, cluster: str) -> Observed:
    """What is there after it was defined again for a cluster of that name."""
    driver = bench.connection.drivers[Kind.MACHINE]
    tag = replace(bench.tag, name=cluster)
    await driver.change(await found(bench, rack.machine), rack.machine, tag)
    return await found(bench, rack.machine)


async def test_a_new_machine_is_in_the_pool_that_has_its_clusters_name(
    bench_with_image: Bench, connection: LibvirtConnection
) -> None:
    bench, rack = bench_with_image, rack_for(bench_with_image)
    for name in ("another", "kit", "one-more"):
        pool = await make_pool(bench, name)
    await make(bench, rack.image, rack.blank, rack.cloned)
    driver = bench.connection.drivers[Kind.MACHINE]
    await driver.create(rack.machine, replace(bench.tag, name="one-more"))
    assert pool_and_name(connection, rack) == (pool, domain_name(pool, "m0"))


async def test_a_machine_keeps_its_pool_and_its_name(
    bench: Bench, connection: LibvirtConnection, rack: Rack
) -> None:
    """Its cluster's tag says another name, or an earlier version's none."""
    before = pool_and_name(connection, rack)
    assert before == (bench.pool, domain_name(bench.pool, "m0"))
    await make_pool(bench, "renamed")
    for name in ("renamed", ""):
        assert (await change(bench, rack, cluster=name)).shape == rack.machine.shape
        assert pool_and_name(connection, rack) == before


@pytest.mark.parametrize("said", ["", "default"])
async def test_a_pool_that_is_not_its_clusters_is_repaired(
    bench: Bench, connection: LibvirtConnection, rack: Rack, said: str
) -> None:
    domain = libvirt.open(connection.host.where).lookupByUUID(rack.uuid.bytes)
    root = ET.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    owner = root.find(f"./metadata/{OWNER}")
    assert owner is not None
    owner.set("pool", said)
    domain.connect().defineXML(ET.tostring(root, encoding="unicode"))
    edited = await found(bench, rack.machine)
    assert edited.shape != rack.machine.shape, "its disks are in no pool that is known"
    assert (await change(bench, rack, cluster="kit")).shape == rack.machine.shape
    assert pool_and_name(connection, rack) == (bench.pool, domain_name(bench.pool, "m0"))
