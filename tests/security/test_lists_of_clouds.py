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
from structlog.testing import capture_logs
from tests.security.test_many_nodes import Paced

from nospoon.errors import ProviderError
from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine, MachineDisk, MachineNic
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.identity import node_uuid
from nospoon.providers.answers import LARGEST_NUMBER
from nospoon.providers.openstack import (
    adopted,
    api,
    connection,
    floating_ips,
    images,
    key_pairs,
    named_images,
    quotas,
    roots,
    roster,
    routers,
    server_groups,
    trunks,
)
from nospoon.providers.openstack.around import PAIRS
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.providers.openstack.images import FIRMWARE, URL
from nospoon.providers.openstack.roster import metadata
from nospoon.providers.openstack.tags import Tagged, described, of_description, properties
from nospoon.runtime.log_rate import LINES
from nospoon.testing.cloud_connection import connected, fake_cloud
from nospoon.testing.fake_cloud import FakeCloud

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


def server(number: int, *, disks: int = 0, vlans: int = 0) -> dict[str, Any]:
    """One whose metadata says that nospoon made it so."""
    tag, name = OwnerTag("kit", UUID(int=7), name="c"), f"s{number}"
    nic = MachineNic("02:00:00:00:00:01", "n0", "virtio", trunk=(1,) * vlans)
    shape = Machine(
        uuid=node_uuid(tag.cluster, name), cpus=1, memory=1, arch=Arch.X86_64,
        firmware=Firmware.BIOS, tpm=False, nics=(nic,) if vlans else (),
        disks=(MachineDisk("", "", ""),) * disks, boot_order=(BootDevice.DISK,),
        boot=BootMethod.NONE,
    )  # fmt: skip
    return {
        "id": str(UUID(int=number)), "name": name, "status": "SHUTOFF", "image": {"id": "i"},
        "metadata": metadata(name, shape, tag), "updated": "2026-01-01T00:00:00Z", "flavor": {},
        "OS-EXT-STS:task_state": None,
    }  # fmt: skip


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


@pytest.mark.parametrize("parts", [{"disks": 40}, {"vlans": 38}])
async def test_servers_of_a_cloud_have_no_more_parts_than_a_cluster(
    cloud: FakeCloud,
    there: OpenStackConnection,
    monkeypatch: pytest.MonkeyPatch,
    parts: dict[str, int],
) -> None:
    """Eight clouds with millions of disks in their tags each took gigabytes of memory with one
    plan, and a quarter of a second of the event loop when that was freed.
    """
    monkeypatch.setattr(api, "MOST_PARTS", 100)
    cloud.servers = {str(n): server(n, **parts) for n in range(2)}
    driver = there.drivers[Kind.MACHINE]
    assert len(await driver.observe(None)) == 2
    cloud.servers["2"] = server(2, **parts)
    with pytest.raises(ProviderError, match=r"lists /servers/detail with more than 100 parts"):
        await driver.observe(None)
    with pytest.raises(ProviderError, match=r"lists /servers/detail with more than 100 parts"):
        await there.adoptable()


async def test_ports_of_a_cloud_have_no_more_addresses_than_a_cluster(
    cloud: FakeCloud, there: OpenStackConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "MOST_PARTS", 10)
    pairs = [{"ip_address": f"192.0.2.{n}"} for n in range(5)]
    for n in range(3):
        cloud.ports[f"p{n}"] = {
            "id": f"p{n}", "network_id": "n0", "mac_address": "02:00:00:00:00:01", PAIRS: pairs,
        }  # fmt: skip
        if n < 2:
            assert await there.drivers[Kind.PORT].observe(None) == []
    with pytest.raises(ProviderError, match="lists /ports with more than 10 parts"):
        await there.drivers[Kind.PORT].observe(None)


async def test_boot_images_of_a_cloud_have_no_properties_without_number(
    cloud: FakeCloud, there: OpenStackConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "MOST_PARTS", 250)
    tag = properties(Tagged(OwnerTag("kit", UUID(int=7), name="c"), "uefi"))
    more = {f"nospoon_x{n}": "y" for n in range(1000)}
    for n in range(3):
        cloud.images[f"i{n}"] = {
            "id": f"i{n}", "status": "active", URL: "u", FIRMWARE: "uefi", **tag, **more,
        }  # fmt: skip
    with pytest.raises(ProviderError, match="lists /images with more than 250 parts"):
        await there.drivers[Kind.BOOT_IMAGE].observe(None)
    del cloud.images["i2"]
    cloud.images["i1"] = {key: cloud.images["i1"][key] for key in ("id", "status", URL, *tag)}
    cloud.images["i1"][FIRMWARE] = "bios"
    assert len(await there.drivers[Kind.BOOT_IMAGE].observe(None)) == 2


async def test_what_a_cloud_has_is_counted_in_turns(
    cloud: FakeCloud, there: OpenStackConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20,000 servers and ports took the event loop for 60 ms."""
    counted = Paced(monkeypatch, quotas)
    cloud.servers = {str(n): server(n) for n in range(COUNT)}
    cloud.limits = {"maxTotalInstances": 1000}
    await there.survey("", ())
    assert counted.most["quotas"] == COUNT


async def test_consoles_that_cannot_be_read_fill_no_log(
    cloud: FakeCloud, there: OpenStackConnection
) -> None:
    """20,000 servers whose consoles were refused had a megabyte written each second."""
    cloud.servers = {str(n): server(n) | {"status": "ACTIVE"} for n in range(1, 40)}
    driver = there.machine_driver
    machines = await driver.machines()
    assert len(machines) == 39
    cloud.fail("POST .*/action", 500, times=1000)
    with capture_logs() as lines:
        await driver._consoles.read_due(machines)
    assert cloud.calls["POST /compute/v2.1/servers/ID/action"] >= 39
    assert 1 <= sum(each["event"] == "console not read" for each in lines) <= LINES


async def test_server_groups_of_a_cloud_have_no_more_members_than_it_has_servers(
    cloud: FakeCloud, there: OpenStackConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of 20,000 could have as many, one a page: a plan took 25 MB of memory a second, without
    an end.
    """
    monkeypatch.setattr(server_groups, "MOST_MEMBERS", 10)
    monkeypatch.setattr(server_groups, "PAGE", 1)
    for n in range(9):
        members = [f"{n}-{each}" for each in range(5)]
        cloud.server_groups[f"g{n}"] = {
            "id": f"g{n}", "name": note(7, f"g{n}"), "policy": "affinity", "rules": {},
            "members": members if n < 2 else [],
        }  # fmt: skip
    driver = there.drivers[Kind.SERVER_GROUP]
    assert len(await driver.observe(None)) == 9
    cloud.server_groups["g8"]["members"] = ["one more"]
    with pytest.raises(ProviderError, match="or 10 servers in them"):
        await driver.observe(None)
    cloud.server_groups["g8"]["members"] = []
    monkeypatch.setattr(server_groups, "MOST_PAGES", 5, raising=False)
    with pytest.raises(ProviderError, match="lists server groups without an end"):
        await driver.observe(None)


async def test_images_that_a_file_names_are_no_more_than_a_cloud_has(
    cloud: FakeCloud, there: OpenStackConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cloud could list 20,000 of each name, of which a file has thousands: a plan with forty took
    a gigabyte of memory.
    """
    monkeypatch.setattr(named_images, "MOST_LISTED", 10, raising=False)
    for n in range(3):
        for each in range(5):
            cloud.images[f"{n}-{each}"] = {
                "id": f"{n}-{each}", "name": f"n{n}", "status": "active", "size": 10**300,
            }  # fmt: skip
    found = (await there.survey("", {"glance:n0", "glance:n1"})).cloud_images
    assert {name: len(some) for name, some in found.items()} == {"n0": 5, "n1": 5}
    assert found["n0"][0].least <= LARGEST_NUMBER
    with pytest.raises(ProviderError, match="lists more than 10 images of the names"):
        await there.survey("", {"glance:n0", "glance:n1", "glance:n2"})


async def test_servers_that_a_cloud_lists_are_told_from_twins_in_turns(
    cloud: FakeCloud, there: OpenStackConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20,000 were sorted in 100 ms of the event loop, at each look."""
    counted = Paced(monkeypatch, roster)
    cloud.servers = {str(n): server(n) for n in range(COUNT)}
    await there.machine_driver.machines()
    assert counted.most["roster"] == COUNT


async def test_boot_images_that_a_cloud_lists_are_not_remembered_without_end(
    cloud: FakeCloud, there: OpenStackConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cloud that listed other ids each time took 3 MB of memory with each plan and `status`."""
    monkeypatch.setattr(images, "MOST_LISTED", 10, raising=False)
    tag = properties(Tagged(OwnerTag("kit", UUID(int=7), name="c"), "uefi"))
    driver = there.drivers[Kind.BOOT_IMAGE]
    assert isinstance(driver, images.BootImageDriver)
    for look in range(8):
        cloud.images = {
            f"{look}-{n}": {
                "id": f"{look}-{n}", "status": "active", URL: "u", FIRMWARE: "uefi", **tag,
            }
            for n in range(8)
        }  # fmt: skip
        await driver.observe(None)
        assert {f"{look}-{n}" for n in range(7)} <= driver._earlier
    assert len(driver._earlier) <= 20


async def test_of_images_of_one_name_a_plan_goes_through_some(
    cloud: FakeCloud, there: OpenStackConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20,000 were sorted for each of 20,000 nodes, a plan of some minutes."""
    monkeypatch.setattr(named_images, "MOST_ALIKE", 3, raising=False)
    for n in range(5):
        cloud.images[f"{n}"] = {"id": f"{n}", "name": "twin", "status": "active"}
    found = (await there.survey("", {"glance:twin"})).cloud_images
    assert len(found["twin"]) == 3


class Unwritten(list[object]):
    """What a cloud has where a text is expected."""

    def __repr__(self) -> str:
        raise AssertionError("a list of a cloud is written as a text, in one go")


def test_no_list_becomes_a_text_where_a_cloud_has_one_in_its_place() -> None:
    """Python wrote 600,000 numbers as the public key of a pair, or in its own error about a policy
    that is none, which stopped the event loop for seconds with each plan.
    """
    pair = key_pairs._read({"keypair": {"name": "x", "public_key": Unwritten([1])}})  # type: ignore[typeddict-item]
    assert pair.shape.public_key == "True"
    group: Any = {"id": "g", "name": note(7, "g"), "members": [], "policy": Unwritten([1])}
    assert server_groups._read(group) is None
    group["policies"] = [group.pop("policy")]
    assert server_groups._read(group) is None


async def test_the_id_of_a_project_is_a_short_text(
    there: OpenStackConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await there.check()
    session = there._api._connected().session
    for said in (Unwritten([1]), "x" * 1000):
        monkeypatch.setattr(session, "get_project_id", lambda said=said: said)
        assert len(await there._api.project()) < 256
