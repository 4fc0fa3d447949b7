"""What simulated machines boot from network and media: when it runs, when it ends, what it does."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

from nospoon.model.agent import Agents
from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.cluster import Host
from nospoon.model.connections import Simulated, Simulation
from nospoon.model.machine import PowerCommand, PowerState
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Image
from nospoon.probe.compare import compare
from nospoon.probe.record import find
from nospoon.providers.base import Medium
from nospoon.providers.simulated import SimulatedConnection, World
from nospoon.providers.simulated.guests import Guest, hardware
from nospoon.testing.due import forward
from nospoon.testing.racks import Bench, Rack, make, rack_for

NETWORK = BootPlan(now=(BootDevice.NETWORK, BootDevice.DISK), after=(BootDevice.DISK,))
DISK = BootPlan(now=(BootDevice.DISK,), after=(BootDevice.DISK,))
CDROM = BootPlan(now=(BootDevice.CDROM, BootDevice.DISK), after=(BootDevice.DISK,))
MENU = "linux /vmlinuz ipa-api-url=http://h --\n"


@dataclass
class Noted:
    """Guests that only remember."""

    began: asyncio.Queue[Guest] = field(default_factory=asyncio.Queue)
    gone: list[UUID] = field(default_factory=list)

    def booted(self, guest: Guest) -> None:
        self.began.put_nowait(guest)

    def ended(self, machine: UUID) -> None:
        self.gone.append(machine)


@dataclass
class Place:
    connection: SimulatedConnection
    rack: Rack
    guests: Noted

    async def power(self, command: PowerCommand, boot: BootPlan = NETWORK) -> None:
        await self.connection.machine_driver.power(self.rack.uuid, command, boot)

    async def guest(self) -> Guest:
        async with asyncio.timeout(20):
            return await self.guests.began.get()

    @property
    def said(self) -> str:
        record = self.connection.machine_driver.console_record(self.rack.uuid)
        return Path(record).read_bytes().decode()


async def nothing(resource: Resource) -> None:
    del resource


@asynccontextmanager
async def place(
    records: Path, *, boot: float = 0.0, world: World | None = None
) -> AsyncIterator[Place]:
    guests, how = Noted(), Simulation(boot=boot, agents=Agents(api="http://h"))
    connection = SimulatedConnection(
        "sim", "kit", lambda: 0.0, simulation=how, records=records, guests=guests,
        world=world, resumes=world is not None,
    )  # fmt: skip
    image = Image("", "ab" * 32, "raw", 1 << 20)
    bench = Bench(
        connection=connection, place=Host("sim", Simulated()), deployment="kit",
        pool_root="/pools", image=image,
        make_stranger=nothing, remove_machine=nothing, patience=20.0,
    )  # fmt: skip
    rack = rack_for(bench)
    await make(bench, *rack.all)
    try:
        yield Place(connection, rack, guests)
    finally:
        await connection.close()


async def test_a_guest_of_the_network_finds_the_machines_hardware(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        await here.power(PowerCommand.ON)
        guest = await here.guest()
        shape = here.rack.machine.shape
        assert isinstance(shape, Machine)
        assert guest.cmdline is None
        assert guest.hardware.macs == tuple(nic.mac for nic in shape.nics)
        assert (guest.hardware.cpus, guest.hardware.memory) == (shape.cpus, shape.memory)
        assert all(disk.size > 0 for disk in guest.hardware.disks)
        assert len(guest.hardware.disks) == len(shape.disks)
        turning = replace(shape.disks[0], rotation_rate=7200)
        machine = replace(shape, disks=(turning, *shape.disks[1:]))
        found = hardware(machine, here.connection.world, medium=False)
        assert [disk.rotational for disk in found.disks] == [True, False]


async def test_a_guest_that_is_not_up_yet_never_is_when_its_machine_is_switched_off(
    tmp_path: Path,
) -> None:
    async with place(tmp_path, boot=600.0) as here:
        await here.power(PowerCommand.ON)
        await here.power(PowerCommand.OFF)
        await here.power(PowerCommand.ON, DISK)
        forward(600.0)
        await asyncio.sleep(0.001)  # it is due after what was to begin by now
        assert here.guests.began.empty()
        assert here.rack.uuid in here.guests.gone


async def seen(here: Place) -> None:
    """The daemon begins to watch."""
    async for _ in here.connection.machine_driver.watch():
        break


async def test_a_guest_of_the_network_boots_again_with_the_next_daemon_and_another_does_not(
    tmp_path: Path,
) -> None:
    async with place(tmp_path, boot=60) as here:
        await here.power(PowerCommand.ON)
        first, killed = here.rack.uuid, here.connection.world.dump()
    async with place(tmp_path, world=World.load(killed)) as here:
        await seen(here)
        assert (await here.guest()).machine == first
        await seen(here)  # the watch begins again after an error
        await here.connection.machine_driver.power(first, PowerCommand.CYCLE, DISK)
        on_disk = here.connection.world.dump()
        await here.power(PowerCommand.ON)
        assert (await here.guest()).machine == here.rack.uuid, "and none before it"
    async with place(tmp_path, world=World.load(on_disk)) as here:
        await seen(here)
        await here.power(PowerCommand.ON)
        assert (await here.guest()).machine == here.rack.uuid, "and none before it"


async def test_a_guest_tells_and_changes_its_machine(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        await here.power(PowerCommand.ON)
        guest = await here.guest()
        guest.hands.say(guest.machine, "hello")
        guest.hands.write(guest.machine, "http://f/image")
        guest.hands.power_off_by_guest(guest.machine)
        (event,) = await here.connection.machine_driver.machines()
        assert event.power is PowerState.OFF
        again = World.load(here.connection.world.dump())
        assert again.running[here.rack.uuid].image == "http://f/image"
        await here.power(PowerCommand.ON, DISK)
        assert "hello\r\n" in here.said
        assert here.said.endswith("boots disk: http://f/image\r\n")
        assert here.guests.began.empty()


async def test_a_guest_that_resets_its_machine_boots_what_comes_after(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        await here.power(PowerCommand.ON)
        guest = await here.guest()
        before = len(here.guests.gone)
        guest.hands.reset_by_guest(guest.machine)
        assert len(here.guests.gone) == before + 1
        assert here.connection.machine_driver.booted(here.rack.uuid) is BootDevice.DISK


async def test_a_guest_of_a_machine_that_is_no_more_does_nothing(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        await here.power(PowerCommand.ON)
        guest = await here.guest()
        here.connection.machine_driver.lose(guest.machine)
        assert here.guests.gone[-1] == guest.machine
        guest.hands.say(guest.machine, "nobody hears it")
        guest.hands.write(guest.machine, "x")
        guest.hands.power_off_by_guest(guest.machine)
        guest.hands.reset_by_guest(guest.machine)
        guest.hands.boot_disk(guest.machine)


def made_medium(directory: Path) -> Path:
    """An ISO as Ironic makes them, but for kernel and ramdisk."""
    files, iso = directory / "files", directory / "agent.iso"
    files.mkdir()
    (files / "grub.cfg").write_text(MENU)
    argv = ["xorriso", "-as", "mkisofs", "-quiet", "-r", "-o", str(iso), str(files)]
    subprocess.run(argv, check=True, capture_output=True)
    return iso


async def test_a_guest_of_a_medium_is_told_what_is_written_there(tmp_path: Path) -> None:
    iso = made_medium(tmp_path)
    async with place(tmp_path) as here:
        machines = here.connection.machine_driver
        await machines.drives.insert(here.rack.uuid, Medium(str(iso), "ab" * 32))
        iso.unlink()
        await here.power(PowerCommand.ON, CDROM)
        assert (await here.guest()).cmdline == "/vmlinuz ipa-api-url=http://h --"
        await machines.drives.eject(here.rack.uuid)
        await here.power(PowerCommand.CYCLE, CDROM)
        assert here.said.endswith("boots disk\r\n")


async def test_a_guest_of_a_medium_boots_again_with_the_next_daemon(tmp_path: Path) -> None:
    async with place(tmp_path, boot=60) as here:
        machine = here.rack.uuid
        medium = Medium(str(made_medium(tmp_path)), "ab" * 32)
        await here.connection.machine_driver.drives.insert(machine, medium)
        await here.power(PowerCommand.ON, CDROM)
        killed = here.connection.world.dump()
    async with place(tmp_path, world=World.load(killed)) as here:
        await seen(here)
        guest = await here.guest()
        assert (guest.machine, guest.cmdline) == (machine, "/vmlinuz ipa-api-url=http://h --")


async def test_the_probe_reports_what_a_machine_has(tmp_path: Path) -> None:
    """On its console, where it was given the probe by the network, and at no other boot."""
    connection = SimulatedConnection(
        "sim", "kit", lambda: 0.0, records=tmp_path, is_probed=lambda _: True
    )
    image = Image("", "ab" * 32, "raw", 1 << 20)
    bench = Bench(
        connection=connection, place=Host("sim", Simulated()), deployment="kit",
        pool_root="/pools", image=image,
        make_stranger=nothing, remove_machine=nothing, patience=20.0,
    )  # fmt: skip
    rack = rack_for(bench)
    await make(bench, *rack.all)
    machine = rack.machine.shape
    assert isinstance(machine, Machine)
    driver = connection.machine_driver
    await driver.power(rack.uuid, PowerCommand.CYCLE, DISK)
    console = await driver.console(rack.uuid)
    await driver.power(rack.uuid, PowerCommand.CYCLE, NETWORK)
    said, found = b"", None
    async with asyncio.timeout(20):
        while found is None:
            said += await console.read()
            found = find(said)
    assert (
        find(Path(driver.console_record(rack.uuid)).read_bytes().split(b"boots network")[0]) is None
    )
    sizes = {disk.volume: seen.size for disk, seen in zip(machine.disks, found.disks, strict=True)}
    assert all(each.ok for each in compare(machine, sizes, found))
    other = compare(replace(machine, cpus=machine.cpus + 1, nics=()), sizes, found)
    assert {each.field for each in other if not each.ok} == {"cpus", "nic eth0"}
    await connection.close()
