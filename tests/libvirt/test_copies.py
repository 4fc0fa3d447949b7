"""Domains and networks that other programs made as copies of ours: the tag comes along."""

from __future__ import annotations

from uuid import uuid4
from xml.etree import ElementTree as ET

import libvirt
import pytest

from nospoon.model.resources.keys import Kind
from nospoon.plan.identity import node_uuid
from nospoon.providers.libvirt.connection import LibvirtConnection
from nospoon.providers.libvirt.owner import Owner, domain_name, owner_element, owner_in
from nospoon.testing.racks import Bench, Rack, found, make

pytestmark = pytest.mark.libvirt


def renamed(text: str, name: str) -> ET.Element:
    """As virt-clone(1) does it: all else stays, the metadata included."""
    root = ET.fromstring(text)
    uuid = str(uuid4())
    for key, value in (("name", name), ("uuid", uuid)):
        node = root.find(key)
        assert node is not None
        node.text = value
    for node in root.iterfind("sysinfo/system/entry[@name='uuid']"):
        node.text = uuid
    return root


async def test_a_copy_of_a_machine_is_its_owners(
    bench: Bench, connection: LibvirtConnection, rack: Rack
) -> None:
    await make(bench, *rack.all)
    connect = libvirt.open(connection.host.where)
    domain = connect.lookupByUUID(rack.uuid.bytes)
    root = renamed(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE), "copy")
    for nic in root.iterfind("devices/interface/mac"):
        nic.set("address", "52:54:00:77:77:77")
    copy = connect.defineXML(ET.tostring(root, encoding="unicode"))
    try:
        driver = connection.drivers[Kind.MACHINE]
        for cluster in (None, bench.tag.cluster):
            seen = [each for each in await driver.observe(cluster) if each.key == rack.machine.key]
            assert [each.shape for each in seen] == [rack.machine.shape]
        await driver.delete(await found(bench, rack.machine))
        assert connect.lookupByUUIDString(copy.UUIDString()).name() == "copy"
    finally:
        copy.undefine()


def test_a_machine_that_was_renamed_stays(bench: Bench, rack: Rack) -> None:
    machine = rack.machine
    root = ET.fromstring("<domain><name>n</name><uuid/><metadata/></domain>")
    uuid, name = root.find("uuid"), root.find("name")
    assert uuid is not None
    assert name is not None
    owner = Owner(bench.tag, machine.key.name, rack.pool.key.name)
    root[2].append(owner_element(owner))
    uuid.text = str(uuid4())
    assert owner_in(root) is None
    uuid.text = str(node_uuid(bench.tag.cluster, machine.key.name))
    assert owner_in(root) == owner
    uuid.text, name.text = str(uuid4()), domain_name(rack.pool.key.name, machine.key.name)
    assert owner_in(root) == owner


async def test_a_copy_of_a_network_is_its_owners(
    bench: Bench, connection: LibvirtConnection, rack: Rack
) -> None:
    await make(bench, *rack.all)
    connect = libvirt.open(connection.host.where)
    driver = connection.drivers[Kind.NETWORK]
    before = [each.key for each in await driver.observe(bench.tag.cluster)]
    network = next(each for each in connect.listAllNetworks(0) if each.name().startswith("ns"))
    root = renamed(network.XMLDesc(libvirt.VIR_NETWORK_XML_INACTIVE), "copy")
    bridge = root.find("bridge")
    assert bridge is not None
    bridge.set("name", "virbr77")
    for each in root.findall("mac") + root.findall("ip"):
        root.remove(each)
    copy = connect.networkDefineXML(ET.tostring(root, encoding="unicode"))
    try:
        assert [each.key for each in await driver.observe(bench.tag.cluster)] == before
    finally:
        copy.undefine()
