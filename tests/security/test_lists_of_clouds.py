"""Clouds that members' files name may list 20,000 things of a kind, and a million references of
clusters with them: they are looked at while others have their turns. A plan took 4.3 s of the event
loop, in which no BMC answered.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.security.test_many_nodes import Paced

from nospoon.errors import ProviderError
from nospoon.model.resources import Kind, OwnerTag
from nospoon.providers.openstack import (
    adopted,
    connection,
    floating_ips,
    roots,
    routers,
    trunks,
)
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.providers.openstack.tags import Tagged, described, of_description
from nospoon.testing.fake_cloud import FakeCloud, connected, fake_cloud

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
COUNT = 300


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    async with fake_cloud() as made:
        yield made


@pytest.fixture
async def there(cloud: FakeCloud, tmp_path: Path) -> AsyncIterator[OpenStackConnection]:
    async with connected(cloud, tmp_path) as made:
        yield made


def note(cluster: int, name: str) -> str:
    return described(Tagged(OwnerTag("kit", UUID(int=cluster), name="c"), name))


def image(number: int, *, users: int) -> dict[str, Any]:
    made = {
        "id": f"i{number}",
        "status": "active",
        roots.DEPLOYMENT: "kit",
        roots.SHA256: f"{number:064}",
        roots.FORMAT: "qcow2",
        roots.SIZE: "1",
        roots.FIRMWARE: "uefi",
    }
    for each in range(users):
        cluster = number * users + each
        made[f"{roots.OF}{UUID(int=cluster).hex}"] = note(cluster, "image")
    return made


async def test_long_lists_of_a_cloud_give_others_turns(
    cloud: FakeCloud, there: OpenStackConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Paced(monkeypatch, roots, floating_ips, routers, connection)
    for n in range(COUNT):
        key = f"x{n}"
        cloud.images[key] = image(n, users=1)
        cloud.networks[key] = {"id": key, "name": key}
        cloud.floatingips[key] = {
            "id": key, "floating_network_id": "n0", "floating_ip_address": "192.0.2.1",
            "description": note(7, key),
        }  # fmt: skip
        cloud.routers[key] = {
            "id": key, "name": key, "description": "" if n else note(7, key),
        }  # fmt: skip
    seen = {
        kind: len(await there.drivers[kind].observe(None))
        for kind in (Kind.IMAGE, Kind.FLOATING_IP, Kind.ROUTER)
    }
    assert seen == {Kind.IMAGE: COUNT, Kind.FLOATING_IP: COUNT, Kind.ROUTER: 1}
    facts = await there.survey("", ())
    assert facts.networks is not None
    assert {"x0", "x299"} < facts.networks
    modules = ("roots", "floating_ips", "routers", "connection")
    assert {name: counted.most[name] >= COUNT for name in modules} == dict.fromkeys(modules, True)


async def test_servers_that_may_be_adopted_give_others_turns(
    cloud: FakeCloud, there: OpenStackConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20,000 of one name took 0.24 s."""
    counted = Paced(monkeypatch, adopted)
    for _ in range(COUNT):
        cloud.own_server("same")
    assert len(await there.adoptable()) == COUNT
    assert counted.most["adopted"] == COUNT


async def test_references_of_images_are_read_beside_the_event_loop(
    cloud: FakeCloud, there: OpenStackConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set[int]()

    def noted(text: object) -> Tagged | None:
        threads.add(threading.get_ident())
        return of_description(text)

    monkeypatch.setattr("nospoon.providers.openstack.roots.of_description", noted)
    cloud.images["x"] = image(1, users=3)
    assert len(await there.drivers[Kind.IMAGE].observe(None)) == 3
    assert threads
    assert threading.get_ident() not in threads


async def test_more_references_of_images_than_there_can_be_are_an_error(
    cloud: FakeCloud, there: OpenStackConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roots, "MOST_REFERENCES", 10)
    cloud.images = {str(n): image(n, users=5) for n in range(2)}
    assert len(await there.drivers[Kind.IMAGE].observe(None)) == 10
    cloud.images["2"] = image(2, users=1)
    with pytest.raises(ProviderError, match="more than 10 references of clusters"):
        await there.drivers[Kind.IMAGE].observe(None)


async def test_trunks_have_no_more_ports_than_a_cloud_has(
    cloud: FakeCloud, there: OpenStackConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight clouds with three million of them each took gigabytes of memory with one plan."""
    monkeypatch.setattr(trunks, "MOST_LISTED", 10)
    for n in range(3):
        ports = [{"port_id": f"p{n}-{vlan}", "segmentation_id": vlan} for vlan in range(1, 6)]
        cloud.trunks[f"t{n}"] = {"id": f"t{n}", "port_id": f"p{n}", "sub_ports": ports}
        if n < 2:
            assert await there.drivers[Kind.TRUNK].observe(None) == []
    with pytest.raises(ProviderError, match="lists trunks with more than 10 ports"):
        await there.drivers[Kind.TRUNK].observe(None)
