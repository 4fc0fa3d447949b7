"""Containers of a network with `anti_spoofing` send from their own MAC and address alone."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from tests.lxc.conftest import image_of

from nospoon.errors import ProviderError
from nospoon.model.machine import PowerCommand
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine, MachineNic
from nospoon.model.resources.resource import Resource
from nospoon.providers.containers import filters
from nospoon.providers.lxc import LxcConnection
from nospoon.testing.container_root import busybox_root
from nospoon.testing.racks import PLAN, Bench, Rack, found, make, rack_for, remove_all

pytestmark = [pytest.mark.lxc, pytest.mark.libvirt]

PORT, MAC, OTHER = f"nsv-{uuid4().hex[:6]}", "02:00:00:00:07:05", "02:66:66:66:66:66"
PROBE = bytes([10, 99, 7, 9])
"""What the container looks for at last, from its own MAC and address."""
SENDS = f"""\
#!/bin/busybox sh
trap 'exit 0' PWR
b=/bin/busybox
$b ip link set eth0 address {OTHER}
$b ip link set eth0 up
$b ip addr add 10.99.7.5/24 dev eth0
$b arping -c 2 -w 2 -I eth0 10.99.7.1
$b ip link set eth0 down
$b ip link set eth0 address {MAC}
$b ip link set eth0 up
$b ip addr add 10.99.7.66/24 dev eth0
$b arping -c 2 -w 2 -I eth0 -s 10.99.7.66 10.99.7.2
$b ip addr del 10.99.7.66/24 dev eth0
while :; do $b arping -c 1 -w 1 -I eth0 -s 10.99.7.5 10.99.7.9; done
"""


def run(*argv: str) -> str:
    done = subprocess.run(argv, text=True, capture_output=True, check=False)
    assert done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout


def bindings() -> str:
    return run("virsh", "-q", "-c", "qemu:///system", "nwfilter-binding-list")


@pytest.fixture
def bridge() -> Iterator[str]:
    """One of its own for each test."""
    name = f"nsf-{uuid4().hex[:8]}"
    run("ip", "link", "add", name, "type", "bridge")
    run("ip", "link", "set", name, "up")
    yield name
    run("ip", "link", "del", name)


@pytest.fixture
async def rack(
    bench: Bench, place: Path, images: dict[str, Path], bridge: str
) -> AsyncIterator[Rack]:
    """A container that has a filter, on a bridge."""
    image = image_of(busybox_root(init=SENDS), place, images)
    made = rack_for(replace(bench, image=image))
    yield replace(made, machine=on_bridge(made.machine, bridge, "10.99.7.5"))
    await remove_all(bench)
    assert PORT not in bindings()


def on_bridge(machine: Resource, bridge: str, sends_from: str | None) -> Resource:
    assert isinstance(machine.shape, Machine)
    nic = MachineNic(MAC, bridge, "virtio", port=PORT, sends_from=sends_from)
    return replace(machine, shape=replace(machine.shape, nics=(nic,)))


def listening_at(bridge: str) -> socket.socket:
    """It has what is sent from now on."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806))
    made.bind((bridge, 0))
    made.settimeout(60)
    return made


def senders(listening: socket.socket) -> set[tuple[str, str]]:
    """MAC and IPv4 address of each ARP request until the last probe comes."""
    seen = set()
    while True:
        frame = listening.recv(1500)
        seen.add((frame[6:12].hex(":"), socket.inet_ntoa(frame[28:32])))
        if frame[38:42] == PROBE:
            return seen


@pytest.mark.parametrize("filtered", [True, False])
async def test_a_container_sends_from_its_own_mac_and_address_alone(
    bench: Bench, rack: Rack, bridge: str, *, filtered: bool
) -> None:
    machine = rack.machine if filtered else on_bridge(rack.machine, bridge, None)
    await make(bench, rack.pool, rack.image, rack.blank, machine)
    own = (MAC, "10.99.7.5")
    everything = {own, (OTHER, "10.99.7.5"), (MAC, "10.99.7.66")}
    with listening_at(bridge) as listening:
        await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
        assert senders(listening) == ({own} if filtered else everything)
    assert (PORT in bindings()) == filtered
    await bench.connection.machine_driver.power(rack.uuid, PowerCommand.OFF, PLAN)
    assert PORT not in bindings()


async def test_a_filter_that_another_program_removed_is_drift(bench: Bench, rack: Rack) -> None:
    await make(bench, rack.pool, rack.image, rack.blank, rack.machine)
    machines = bench.connection.machine_driver
    await machines.power(rack.uuid, PowerCommand.ON, PLAN)
    assert (await found(bench, rack.machine)).live is None
    run("virsh", "-c", "qemu:///system", "nwfilter-binding-delete", PORT)
    live = (await found(bench, rack.machine)).live
    assert isinstance(live, Machine)
    assert live.nics[0].sends_from is None
    await machines.power(rack.uuid, PowerCommand.CYCLE, PLAN)
    assert (await found(bench, rack.machine)).live is None
    assert PORT in bindings()


async def test_a_container_whose_filter_cannot_be_made_does_not_start(
    bench: Bench, rack: Rack, tmp_path: Path
) -> None:
    await make(bench, rack.pool, rack.image, rack.blank, rack.machine)
    assert isinstance(rack.machine.shape, Machine)
    taken = tmp_path / "binding.xml"
    taken.write_bytes(filters.render(rack.machine.shape, "m0", rack.machine.shape.nics[0]))
    run("ip", "link", "add", PORT, "type", "bridge")
    run("virsh", "-c", "qemu:///system", "nwfilter-binding-create", str(taken))
    run("ip", "link", "del", PORT)
    with pytest.raises(ProviderError, match="container m0 does not start"):
        await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    assert not (await found(bench, rack.machine)).running
    await bench.connection.drivers[Kind.MACHINE].delete(await found(bench, rack.machine))
    assert PORT not in bindings()


async def test_the_connection_reports_that_it_filters(connection: LxcConnection) -> None:
    can = await connection.capabilities()
    assert can.anti_spoofing
    assert " " in can.identity  # no host of a file is called so
