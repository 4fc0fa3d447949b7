"""The connection keeps its promises, at a cloud in memory."""

from __future__ import annotations

import pytest

from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.networks import Link
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Image
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.testing.cloud_connection import AT
from nospoon.testing.conformance import DriverPromises
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.fake_neutron import PROJECT
from nospoon.testing.racks import Bench, Stranger, any_rack, make

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")


@pytest.fixture
def bench(cloud: FakeCloud, connection: OpenStackConnection) -> Bench:
    async def stranger(resource: Resource) -> Stranger | None:
        """A network of that name; servers of one name are several."""
        if not isinstance(resource.shape, Link):
            return None
        record = {
            "id": "other", "name": resource.shape.name, "subnets": [], "mtu": 1500,
            "project_id": PROJECT, "description": "mine",
        }  # fmt: skip
        cloud.networks["other"] = dict(record)

        async def untouched() -> bool:
            return cloud.networks.get("other") == record

        async def remove() -> None:
            del cloud.networks["other"]

        return Stranger(untouched, remove)

    cloud.own_server("theirs")

    async def remove_machine(resource: Resource) -> None:
        (server,) = [s for s in cloud.servers.values() if s["name"].endswith(resource.key.name)]
        cloud.remove(server["id"])

    return Bench(
        connection=connection,
        place=AT,
        deployment="kit",
        pool_root="",
        image=Image("", "ab" * 32, "raw", 1 << 20),
        make_stranger=stranger,
        remove_machine=remove_machine,
        flavor="metal.512",
        network="external",
        foreign="theirs",
    )


class TestPromises(DriverPromises):
    pass


def test_its_kinds_are_those_of_a_cloud(connection: OpenStackConnection) -> None:
    kinds = {
        Kind.NETWORK, Kind.PORT, Kind.TRUNK, Kind.FLOATING_IP, Kind.ROUTER, Kind.RELAY,
        Kind.SERVER_GROUP, Kind.KEY_PAIR, Kind.BOOT_IMAGE, Kind.IMAGE, Kind.MACHINE, Kind.SNAPSHOT,
    }  # fmt: skip
    assert set(connection.drivers) == kinds
    assert Key(Kind.PORT, "cloud", "n-0") in {Key(kind, "cloud", "n-0") for kind in kinds}


async def test_a_port_that_was_replaced_is_plugged_in_again(
    cloud: FakeCloud, connection: OpenStackConnection, bench: Bench
) -> None:
    rack = any_rack(bench)
    await make(bench, *rack.all)
    (server,) = (each for each in cloud.servers if cloud.servers[each]["name"] != "theirs")
    (port,) = (each for each in cloud.ports if cloud.ports[each]["device_id"] == server)
    del cloud.ports[port]
    (seen,) = await connection.drivers[Kind.MACHINE].observe(bench.cluster)
    assert isinstance(seen.shape, Machine)
    assert not seen.shape.nics
    await make(bench, *rack.all[:-1])
    await connection.drivers[Kind.MACHINE].change(seen, rack.machine, bench.tag)
    theirs = {each["device_id"] for each in cloud.ports.values()} - {server}
    assert len(cloud.ports) == 3
    assert len(theirs) == 1
    (seen,) = await connection.drivers[Kind.MACHINE].observe(bench.cluster)
    assert seen.shape == rack.machine.shape


async def test_a_blank_disk_has_no_boot_sector(cloud: FakeCloud, bench: Bench) -> None:
    """Nova formats ephemeral disks, by default with VFAT, whose boot sector waits for a key."""
    await make(bench, *any_rack(bench).all)
    (requested,) = cloud.requested
    devices = requested["block_device_mapping_v2"]
    formats = [each["guest_format"] for each in devices if each["source_type"] == "blank"]
    assert formats == ["ext4"]
