"""The connection keeps its promises, at a cloud in memory; tests/cloud has a real one."""

from __future__ import annotations

import pytest

from nospoon.model.resources import Image, Key, Kind, Link, Resource
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.testing.conformance import Bench, DriverPromises, Stranger
from nospoon.testing.fake_cloud import PROJECT, FakeCloud

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")


@pytest.fixture
def bench(cloud: FakeCloud, connection: OpenStackConnection) -> Bench:
    async def stranger(resource: Resource) -> Stranger | None:
        """A network of that name; servers of one name are several."""
        if not isinstance(resource.shape, Link):
            return None
        record = {
            "id": "other", "name": resource.shape.bridge, "subnets": [], "mtu": 1500,
            "project_id": PROJECT, "description": "mine",
        }  # fmt: skip
        cloud.networks["other"] = dict(record)

        async def untouched() -> bool:
            return cloud.networks.get("other") == record

        async def remove() -> None:
            del cloud.networks["other"]

        return Stranger(untouched, remove)

    async def remove_machine(resource: Resource) -> None:
        (server,) = [s for s in cloud.servers.values() if s["name"].endswith(resource.key.name)]
        cloud.remove(server["id"])

    return Bench(
        connection=connection,
        host="cloud",
        deployment="kit",
        pool_root="",
        image=Image("", "ab" * 32, "raw", 1 << 20),
        make_stranger=stranger,
        remove_machine=remove_machine,
        flavor="metal.512",
    )


class TestPromises(DriverPromises):
    pass


def test_its_kinds_are_those_of_a_cloud(connection: OpenStackConnection) -> None:
    kinds = {Kind.NETWORK, Kind.PORT, Kind.BOOT_IMAGE, Kind.MACHINE}
    assert set(connection.drivers) == kinds
    assert Key(Kind.PORT, "cloud", "n-0") in {Key(kind, "cloud", "n-0") for kind in kinds}
