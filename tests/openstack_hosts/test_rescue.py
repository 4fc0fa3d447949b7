"""Servers that others made boot what their BMCs say, by Nova's rescue with the boot image."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from starlette.responses import JSONResponse

from nospoon.errors import NotOurs, ProviderError
from nospoon.model.boot import BootDevice, BootMethod, BootPlan
from nospoon.model.cluster import Firmware
from nospoon.model.machine import Outcome, PowerCommand, PowerState
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import BootImage, boot_image
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.testing.fake_cloud import FakeCloud, Rule

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
NETWORK = BootPlan((BootDevice.NETWORK, BootDevice.DISK), (BootDevice.DISK,))
DISK = BootPlan((BootDevice.DISK,), (BootDevice.DISK,))
TAG = OwnerTag("kit", uuid4(), 1, "t", name="theirs")
ON, OFF, CYCLE, RESET, SOFT = (
    PowerCommand.ON, PowerCommand.OFF, PowerCommand.CYCLE, PowerCommand.RESET, PowerCommand.SOFT,
)  # fmt: skip


async def claimed(connection: OpenStackConnection) -> Resource:
    """The one server, as a node that asks what to boot; its boot image is there."""
    asks = BootImage(Firmware.BIOS, "http://h:8069")
    image = Resource(boot_image("cloud", asks.firmware, asks.url), asks)
    await connection.drivers[Kind.BOOT_IMAGE].create(image, TAG)
    (found,) = await connection.adoptable()
    shape = replace(found.machine, boot=BootMethod.SCRIPT)
    resource = Resource(Key(Kind.MACHINE, "cloud", "theirs"), shape)
    await connection.machine_driver.claim(resource, TAG)
    return resource


@pytest.fixture
def server(cloud: FakeCloud) -> dict[str, Any]:
    return cloud.own_server("theirs")


async def test_what_was_claimed_asks_and_is_seen_so(
    connection: OpenStackConnection, server: dict[str, Any]
) -> None:
    resource = await claimed(connection)
    (seen,) = await connection.drivers[Kind.MACHINE].observe(TAG.cluster)
    assert seen.shape == resource.shape
    assert isinstance(resource.shape, Machine)
    await connection.machine_driver.power(resource.shape.uuid, ON, NETWORK)
    plain = Resource(resource.key, replace(resource.shape, boot=BootMethod.NONE))
    await connection.drivers[Kind.MACHINE].change(seen, plain, TAG)
    assert server["status"] == "ACTIVE", "it asks no more"
    (seen,) = await connection.drivers[Kind.MACHINE].observe(TAG.cluster)
    assert seen.shape == plain.shape
    assert server["metadata"]["team"] == "theirs"


async def test_it_is_rescued_to_boot_the_network_and_not_to_boot_its_disk(
    cloud: FakeCloud, connection: OpenStackConnection, server: dict[str, Any]
) -> None:
    resource = await claimed(connection)
    assert isinstance(resource.shape, Machine)
    steps: tuple[tuple[PowerCommand, BootPlan, str, list[str]], ...] = (
        (ON, NETWORK, "RESCUE", ["rescue"]),
        (ON, DISK, "RESCUE", []),
        (RESET, NETWORK, "RESCUE", ["unrescue", "rescue"]),
        (OFF, NETWORK, "SHUTOFF", ["unrescue", "os-stop"]),
        (OFF, NETWORK, "SHUTOFF", []),
        (ON, DISK, "ACTIVE", ["os-start"]),
        (CYCLE, NETWORK, "RESCUE", ["rescue"]),
        (RESET, DISK, "ACTIVE", ["unrescue"]),
        (RESET, NETWORK, "RESCUE", ["rescue"]),
        (SOFT, DISK, "SHUTOFF", ["unrescue", "os-stop"]),
    )
    for command, boot, status, done in steps:
        cloud.acted.clear()
        await connection.machine_driver.power(resource.shape.uuid, command, boot)
        assert (server["status"], cloud.acted) == (status, done), (command, boot)


async def test_one_that_was_put_away_is_started_before_it_is_rescued(
    cloud: FakeCloud, connection: OpenStackConnection, server: dict[str, Any]
) -> None:
    resource = await claimed(connection)
    assert isinstance(resource.shape, Machine)
    server["status"] = "SHELVED_OFFLOADED"
    await connection.machine_driver.power(resource.shape.uuid, ON, NETWORK)
    assert (server["status"], cloud.acted) == ("RESCUE", ["unshelve", "rescue"])


@pytest.mark.parametrize(
    ("command", "status", "done"),
    [
        (ON, "ACTIVE", ["unpause"]),
        (OFF, "SHUTOFF", ["unpause", "os-stop"]),
        (RESET, "ACTIVE", ["unpause", "reboot"]),
    ],
)
async def test_one_that_its_owner_paused_runs_on_before_it_obeys(
    cloud: FakeCloud,
    connection: OpenStackConnection,
    server: dict[str, Any],
    command: PowerCommand,
    status: str,
    done: list[str],
) -> None:
    """Nova stops no server that is paused."""
    resource = await claimed(connection)
    assert isinstance(resource.shape, Machine)
    server["status"] = "PAUSED"
    outcome = await connection.machine_driver.power(resource.shape.uuid, command, DISK)
    assert (server["status"], cloud.acted) == (status, done)
    assert outcome is (Outcome.CONTINUED if command is ON else Outcome.CHANGED)


async def test_a_guest_that_ended_in_its_rescue_is_off_and_can_be_started(
    cloud: FakeCloud, connection: OpenStackConnection, server: dict[str, Any]
) -> None:
    """Nova leaves its status as it is."""
    resource = await claimed(connection)
    assert isinstance(resource.shape, Machine)
    driver, uuid = connection.machine_driver, resource.shape.uuid
    await driver.power(uuid, ON, NETWORK)
    server["OS-EXT-STS:power_state"] = 4
    (event,) = await driver.machines()
    assert event.power is PowerState.OFF
    await driver.power(uuid, OFF, NETWORK)
    assert cloud.acted == ["rescue"]
    await driver.power(uuid, ON, NETWORK)
    assert cloud.acted == ["rescue", "unrescue", "rescue"]


@pytest.mark.parametrize(("status", "after"), [(None, "ACTIVE"), (4, "SHUTOFF")])
async def test_it_is_released_as_one_that_boots_its_disk(
    connection: OpenStackConnection,
    server: dict[str, Any],
    status: int | None,
    after: str,
) -> None:
    resource = await claimed(connection)
    assert isinstance(resource.shape, Machine)
    await connection.machine_driver.power(resource.shape.uuid, ON, NETWORK)
    server["OS-EXT-STS:power_state"] = status
    (seen,) = await connection.drivers[Kind.MACHINE].observe(TAG.cluster)
    with pytest.raises(NotOurs):
        await connection.machine_driver.release(replace(seen, tag=replace(TAG, cluster=uuid4())))
    assert server["status"] == "RESCUE"
    await connection.machine_driver.release(seen)
    assert server["status"] == after
    assert set(server["metadata"]) == {"team"}


async def test_one_whose_root_disk_is_a_volume_is_rescued_where_nova_can(
    cloud: FakeCloud, connection: OpenStackConnection, server: dict[str, Any]
) -> None:
    server["image"] = ""
    resource = await claimed(connection)
    assert isinstance(resource.shape, Machine)
    cloud.fail("POST .*/action", 400, skip=1)  # the first asks for the console log
    with pytest.raises(ProviderError, match="does not rescue it, whose root disk is a volume"):
        await connection.machine_driver.power(resource.shape.uuid, ON, NETWORK)
    await connection.machine_driver.power(resource.shape.uuid, ON, NETWORK)
    assert server["status"] == "RESCUE"


async def test_boot_images_of_an_older_nospoon_are_made_again(
    cloud: FakeCloud, connection: OpenStackConnection, server: dict[str, Any]
) -> None:
    del server
    await claimed(connection)
    (image,) = (each for each in cloud.images.values() if "nospoon_url" in each)
    (seen,) = await connection.drivers[Kind.BOOT_IMAGE].observe(TAG.cluster)
    assert (image["hw_rescue_device"], image["hw_rescue_bus"], seen.fault) == ("cdrom", "sata", "")
    del image["hw_rescue_bus"]
    (seen,) = await connection.drivers[Kind.BOOT_IMAGE].observe(TAG.cluster)
    assert "cannot be rescued" in seen.fault


async def test_boot_images_are_those_of_their_cluster_also_where_a_cloud_lists_more(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """Each cluster has one of the same name, and what is listed may be deleted."""
    shape = BootImage(Firmware.UEFI, "http://boot")
    wanted = Resource(boot_image("cloud", shape.firmware, shape.url), shape)
    driver = connection.drivers[Kind.BOOT_IMAGE]
    await driver.create(wanted, TAG)
    (own,) = cloud.images.values()
    of_other = own | {"id": "other", "nospoon_cluster": str(UUID(int=99))}
    of_another_deployment = own | {"id": "theirs", "nospoon_deployment": "theirs"}
    cloud.images |= {each["id"]: each for each in (of_other, of_another_deployment)}
    all_ = {"images": list(cloud.images.values())}
    cloud.rules.append(Rule("GET /image/v2/images", lambda: JSONResponse(all_), times=2))
    (seen,) = await driver.observe(TAG.cluster)
    await driver.delete(seen)
    assert set(cloud.images) == {"other", "theirs"}
