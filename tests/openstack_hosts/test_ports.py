"""Virtual IPs of ports: Neutron's allowed address pairs."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from nospoon.errors import Conflict
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.networks import Link, Port
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.testing.fake_cloud import FakeCloud

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
MAC = "02:00:00:00:00:01"
PLAIN = Port("wire", MAC, guarded=True)
VIRTUAL = replace(PLAIN, virtual_ips=("10.9.0.9", "fd00::9"))


def resource(shape: Port) -> Resource:
    return Resource(Key(Kind.PORT, "cloud", "n-0"), shape)


@pytest.fixture
async def tag(connection: OpenStackConnection) -> OwnerTag:
    tag = OwnerTag("kit", UUID(int=7))
    link = Resource(Key(Kind.NETWORK, "cloud", "wire"), Link("wire"))
    await connection.drivers[Kind.NETWORK].create(link, tag)
    return tag


async def only(connection: OpenStackConnection) -> Observed:
    (seen,) = await connection.drivers[Kind.PORT].observe(None)
    return seen


async def test_they_come_and_go_while_the_port_stays(
    cloud: FakeCloud, connection: OpenStackConnection, tag: OwnerTag
) -> None:
    driver = connection.drivers[Kind.PORT]
    await driver.create(resource(PLAIN), tag)
    (port,) = cloud.ports.values()
    assert "allowed_address_pairs" not in port, "a cloud may be without the extension"
    assert (await only(connection)).shape == PLAIN
    for shape in (VIRTUAL, PLAIN):
        await driver.change(await only(connection), resource(shape), tag)
        assert (await only(connection)).shape == shape
    assert list(cloud.ports) == [port["id"]]


async def test_one_is_made_with_them(
    cloud: FakeCloud, connection: OpenStackConnection, tag: OwnerTag
) -> None:
    await connection.drivers[Kind.PORT].create(resource(VIRTUAL), tag)
    assert (await only(connection)).shape == VIRTUAL
    (port,) = cloud.ports.values()
    pairs = [{"ip_address": "10.9.0.9"}, {"ip_address": "fd00::9"}]
    assert port["allowed_address_pairs"] == pairs


async def test_pairs_that_others_added_are_seen(
    cloud: FakeCloud, connection: OpenStackConnection, tag: OwnerTag
) -> None:
    await connection.drivers[Kind.PORT].create(resource(PLAIN), tag)
    (port,) = cloud.ports.values()
    port["allowed_address_pairs"] = [
        {"ip_address": "10.9.0.9", "mac_address": MAC.upper()},
        {"ip_address": "10.9.0.8", "mac_address": "02:66:66:66:66:66"},
    ]
    shape = (await only(connection)).shape
    assert isinstance(shape, Port)
    assert shape.virtual_ips == ("10.9.0.8 from 02:66:66:66:66:66", "10.9.0.9")


LINK = Link("wire", "10.9.0.1/24", nat=True)
RELAYED = replace(LINK, relayed=True, nameservers=("192.0.2.53", "192.0.2.54"))
SILENT = replace(RELAYED, relayed=False, silent=True)


async def test_a_network_changes_to_addresses_of_a_relay_and_back(
    cloud: FakeCloud, connection: OpenStackConnection, tag: OwnerTag
) -> None:
    driver = connection.drivers[Kind.NETWORK]
    key = Key(Kind.NETWORK, "cloud", "wire")
    for link, serves in (
        (LINK, True), (RELAYED, False), (SILENT, False), (LINK, True),
        (replace(SILENT, nameservers=()), False), (LINK, True), (SILENT, False),
    ):  # fmt: skip
        (seen,) = await driver.observe(None)
        await driver.change(seen, Resource(key, link), tag)
        (seen,) = await driver.observe(None)
        assert seen.shape == link
        (subnet,) = (each for each in cloud.subnets.values() if each["cidr"] == "10.9.0.0/24")
        assert subnet["enable_dhcp"] is serves
    assert subnet["dns_nameservers"] == ["192.0.2.53", "192.0.2.54"]
    for name, link in (("other", RELAYED), ("third", SILENT)):
        await driver.create(Resource(replace(key, name=name), replace(link, name=name)), tag)
        made = next(each for each in cloud.subnets.values() if each["name"] == name)
        served = made["enable_dhcp"], made["dns_nameservers"]
        assert served == (False, ["192.0.2.53", "192.0.2.54"])


async def test_a_port_gets_an_address_that_its_cluster_does_not_need(
    cloud: FakeCloud, connection: OpenStackConnection, tag: OwnerTag
) -> None:
    """Ports had those of Neutron's choice before, and change one after the other."""
    networks, driver = connection.drivers[Kind.NETWORK], connection.drivers[Kind.PORT]
    await networks.create(Resource(Key(Kind.NETWORK, "cloud", "wire"), LINK), tag)
    usual = replace(PLAIN, guarded=False, range="10.9.0.0/24")
    macs = (MAC, "02:00:00:00:00:02")
    keys = [Key(Kind.PORT, "cloud", f"n-{number}") for number in range(2)]
    for key, mac in zip(keys, macs, strict=True):
        await driver.create(Resource(key, replace(usual, mac=mac)), tag)
    first, second = cloud.ports.values()
    for port, address in ((first, "10.9.0.3"), (second, "10.9.0.2")):
        port["fixed_ips"] = [{**port["fixed_ips"][0], "ip_address": address}]
    wanted = [replace(usual, mac=mac, address=f"10.9.0.{2 + n}") for n, mac in enumerate(macs)]
    for key, shape in zip(keys, wanted, strict=True):
        seen = next(each for each in await driver.observe(None) if each.key == key)
        await driver.change(seen, Resource(key, shape), tag)
    assert [each.shape for each in await driver.observe(None)] == wanted

    stranger = {**second, "id": "x", "mac_address": "02:66:00:00:00:66", "description": ""}
    cloud.ports["x"] = {**stranger, "fixed_ips": [{"ip_address": "10.9.0.9"}]}
    (seen, _) = await driver.observe(None)
    with pytest.raises(Conflict, match="already allocated"):
        await driver.change(seen, Resource(keys[0], replace(wanted[0], address="10.9.0.9")), tag)
    assert cloud.ports["x"]["fixed_ips"] == [{"ip_address": "10.9.0.9"}]
