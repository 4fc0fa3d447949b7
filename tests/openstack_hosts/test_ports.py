"""Virtual IPs of ports: Neutron's allowed address pairs."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from nospoon.model.resources import Key, Kind, Link, Observed, OwnerTag, Port, Resource
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
