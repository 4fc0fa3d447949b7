"""Servers of a real cloud that others made boot what their BMCs say, and then again their disks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import openstack
import pytest
from openstack.connection import Connection

from nospoon.model.cluster import Firmware
from nospoon.probe.build import build, command_line
from nospoon.testing import guests
from nospoon.testing.cloud import FULL, OwnCloud
from nospoon.testing.disks import uefi_disk
from nospoon.testing.ironic import until
from nospoon.testing.rack import CACHE, Rack

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
FILE = """
cluster: {name}
hosts: {{cloud: {{openstack: {{cloud: nospoon-cloud, boot_address: 172.24.5.1}}}}}}
nodes: [{{adopt: {id}, name: {name}}}]
"""
ENTRY = bytes.fromhex("80 000200 83 000000 01000000 FF070000")
"""Of a partition table: Glance takes nothing else for a disk (415)."""
GREETING = {Firmware.BIOS: guests.BOOTED.decode(), Firmware.UEFI: "the disk booted"}


@pytest.fixture
def member(cloud: OwnCloud) -> Connection:
    return openstack.connect(
        load_yaml_config=False, load_envvars=False, **cloud.login("nospoon-cloud")
    )


def disk(firmware: Firmware, place: Path) -> bytes:
    if firmware is Firmware.UEFI:
        return uefi_disk(place / "disk.raw").read_bytes()
    plain = guests.speaking_disk()
    return plain[:446] + ENTRY + plain[446 + len(ENTRY) :]


needs_time = pytest.mark.skipif(
    not FULL, reason="a server of others in UEFI takes minutes: make test-openstack-full"
)


@pytest.fixture(params=[Firmware.BIOS, pytest.param(Firmware.UEFI, marks=needs_time)])
def server(
    request: pytest.FixtureRequest, member: Connection, tmp_path: Path
) -> Iterator[tuple[str, Firmware]]:
    with theirs(member, request.param, tmp_path) as id_:
        yield id_, request.param


@contextmanager
def theirs(
    member: Connection, firmware: Firmware, tmp_path: Path, *, is_volume: bool = False
) -> Iterator[str]:
    """A server, by its id. Off; its root disk is one of Nova's virtio disks, or a volume, and says
    that it booted.
    """
    image = member.image.create_image(
        name=f"theirs-{uuid4()}",
        disk_format="raw",
        container_format="bare",
        data=disk(firmware, tmp_path),
        hw_firmware_type=str(firmware),
    )
    network = next(member.network.networks(name="rack"))
    port = member.network.create_port(network_id=network.id, port_security_enabled=False)
    flavor = member.compute.find_flavor("metal.tiny", ignore_missing=False)
    root = {
        "boot_index": 0, "uuid": image.id, "source_type": "image", "destination_type": "volume",
        "volume_size": 1, "delete_on_termination": True,
    }  # fmt: skip
    of_what = {"block_device_mapping": [root]} if is_volume else {"image_id": image.id}
    made = member.compute.create_server(
        name=f"theirs-{firmware}",
        **of_what,
        flavor_id=flavor.id,
        networks=[{"port": port.id}],
    )
    member.compute.wait_for_server(made, wait=600)
    member.compute.stop_server(made)
    member.compute.wait_for_server(made, status="SHUTOFF", wait=600)
    yield made.id
    member.compute.delete_server(made)
    member.compute.wait_for_delete(made, wait=600)
    member.network.delete_port(port)
    member.image.delete_image(image.id)


def said(rack: Rack, node: str, text: str) -> int:
    return rack.run("node", "console", node, "--log").stdout.count(text)


def says(rack: Rack, node: str, text: str, before: int) -> bool:
    return said(rack, node, text) > before


@pytest.mark.timeout(1800, func_only=True)
def test_a_server_of_others_boots_the_network_a_medium_and_its_disk(
    member: Connection, rack: Rack, server: tuple[str, Firmware], tmp_path: Path
) -> None:
    (id_, firmware), name = server, rack.name()
    before = member.compute.get_server(id_).metadata
    images = {each.id for each in member.image.images()}
    rack.run("up", "--yes", rack.file(FILE.format(name=name, id=id_) + rack.bmc()))
    bmc = rack.bmcs(name)[name]

    def is_(status: str) -> bool:
        return bool(member.compute.get_server(id_).status == status)

    # nothing answers on the network: it goes on to its disk, as it is without us
    rack.ipmitool(bmc, "chassis", "bootdev", "pxe")
    rack.power(name, "on")
    until(partial(says, rack, name, "nospoon: boot the network", 0), 600)
    until(partial(says, rack, name, "nospoon: boot the disk", 0), 600)
    until(partial(says, rack, name, GREETING[firmware], 0), 600)
    until(lambda: is_("ACTIVE"))

    # a medium, once: its guest reboots, and is on its disk again
    probe = asyncio.run(build(CACHE))
    cmdline = command_line(probe.arch, after="reboot")
    disc = asyncio.run(guests.linux_cd(tmp_path, probe.kernel, probe.initrd, cmdline=cmdline))
    rack.run("node", "media", "insert", name, str(disc))
    rack.ipmitool(bmc, "chassis", "bootdev", "cdrom")
    greeted = said(rack, name, GREETING[firmware])
    rack.power(name, "cycle")
    until(partial(says, rack, name, "nospoon: boot cdrom", 0), 600)
    until(partial(says, rack, name, "nospoon-probe: hello", 0), 600)
    until(partial(says, rack, name, GREETING[firmware], greeted), 600)
    until(lambda: is_("ACTIVE"))

    # off from within the boot image, and released there
    rack.ipmitool(bmc, "chassis", "bootdev", "cdrom", "options=persistent")
    rack.power(name, "cycle")
    until(lambda: is_("RESCUE"))
    rack.power(name, "off")
    until(lambda: "is off" in rack.ipmitool(bmc, "power", "status"))
    assert is_("SHUTOFF")
    rack.power(name, "on")
    until(lambda: is_("RESCUE"))
    rack.run("down", name, "--yes")
    now = member.compute.get_server(id_)
    assert (now.metadata, now.status) == (before, "ACTIVE")
    assert {each.id for each in member.image.images()} == images
