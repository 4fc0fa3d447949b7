"""What is in front of a cloud says that a thing is gone which is there: a removal believes the list
of such things.
"""

from __future__ import annotations

import pytest
from tests.openstack_hosts import (
    test_floating_ips,
    test_key_pairs,
    test_routers,
    test_server_groups,
    test_trunks,
)

from nospoon.errors import HostUnreachable
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.networks import FloatingIp
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.fake_neutron import PROJECT
from nospoon.testing.racks import Bench, any_rack, make

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
TAG = test_routers.TAG


async def seen(connection: OpenStackConnection, kind: Kind) -> Observed:
    (only,) = await connection.drivers[kind].observe(None)
    return only


@pytest.mark.parametrize(
    ("call", "tag", "resources"),
    [
        ("DELETE /network/v2.0/routers/", TAG, (test_routers.LINK, test_routers.ROUTER)),
        (
            "PUT /network/v2.0/routers/.*/remove_router_interface", TAG,
            (test_routers.LINK, test_routers.ROUTER),
        ),
        ("DELETE /network/v2.0/trunks/", test_trunks.TAG, (*test_trunks.PARTS, test_trunks.BOTH)),
        ("DELETE /compute/v2.1/os-keypairs/", test_key_pairs.TAG, (test_key_pairs.RESOURCE,)),
        (
            "DELETE /compute/v2.1/os-server-groups/", test_server_groups.TAG,
            (test_server_groups.GROUP,),
        ),
    ],
)  # fmt: skip
async def test_a_thing_that_is_listed_is_not_gone(
    cloud: FakeCloud,
    connection: OpenStackConnection,
    call: str,
    tag: OwnerTag,
    resources: tuple[Resource, ...],
) -> None:
    for each in resources:
        await connection.drivers[each.key.kind].create(each, tag)
    kind = resources[-1].key.kind
    there = await seen(connection, kind)
    cloud.fail(call, 404)
    with pytest.raises(HostUnreachable, match=r"404: .*, though /[a-z-]+ lists it"):
        await connection.drivers[kind].delete(there)
    assert (await seen(connection, kind)).key == there.key
    await connection.drivers[kind].delete(there)
    assert await connection.drivers[kind].observe(None) == []


@pytest.mark.parametrize("address", ["", "203.0.113.50"])
async def test_a_floating_ip_that_is_listed_is_not_gone(
    cloud: FakeCloud, connection: OpenStackConnection, address: str
) -> None:
    """Also one that was there before, and is given back."""
    await test_floating_ips.with_ports(connection, test_floating_ips.MAC)
    if address:
        cloud.floatingips["kept"] = {
            "id": "kept", "project_id": PROJECT, "floating_network_id": "n0",
            "floating_ip_address": address, "port_id": None, "description": "",
        }  # fmt: skip
    driver = connection.drivers[Kind.FLOATING_IP]
    shape = FloatingIp("external", test_floating_ips.MAC, address)
    await driver.create(Resource(test_floating_ips.WANTED.key, shape), TAG)
    there = await seen(connection, Kind.FLOATING_IP)
    cloud.fail("(DELETE|PUT) /network/v2.0/floatingips/", 404)
    with pytest.raises(HostUnreachable, match=r"404: .*, though /floatingips lists it"):
        await driver.delete(there)
    await driver.delete(there)
    assert await driver.observe(None) == []


async def test_a_list_that_is_not_there_either_is_not_believed(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    group, driver = test_server_groups.GROUP, connection.drivers[Kind.SERVER_GROUP]
    await driver.create(group, test_server_groups.TAG)
    there = await seen(connection, Kind.SERVER_GROUP)
    cloud.fail("GET /compute/v2.1/os-server-groups", 404, skip=2)
    cloud.fail("DELETE /compute/v2.1/os-server-groups/", 404)
    with pytest.raises(HostUnreachable, match=r"404: .*, and so is /os-server-groups"):
        await driver.delete(there)


async def test_a_server_that_is_not_shown_is_removed_all_the_same(
    cloud: FakeCloud, connection: OpenStackConnection, bench: Bench
) -> None:
    rack = any_rack(bench)
    await make(bench, *rack.all)
    there = await seen(connection, Kind.MACHINE)
    cloud.fail("GET /compute/v2.1/servers/", 404)
    await connection.drivers[Kind.MACHINE].delete(there)
    assert cloud.servers == {}
