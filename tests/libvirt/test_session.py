"""An unprivileged user's libvirt (`qemu:///session`): a real one, run by a user without rights."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import libvirt
import pytest

from nospoon.errors import ProviderError
from nospoon.model.boot import BootDevice, BootMethod, BootPlan
from nospoon.model.cluster import Host
from nospoon.model.connections import Libvirt
from nospoon.model.machine import MachineChange, PowerCommand, PowerState
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Image
from nospoon.providers.base import Medium
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.runtime.runner import LocalRunner
from nospoon.testing import guests
from nospoon.testing.racks import Bench, Rack, events_of, found, make, rack_for, remove_all
from nospoon.testing.racks import until as next_event
from nospoon.testing.trees import remove_tree

pytestmark = [pytest.mark.libvirt, pytest.mark.boots]
NOBODY = 65534
PLAN = BootPlan((BootDevice.NETWORK,), (BootDevice.DISK,))


@dataclass(frozen=True, slots=True)
class Session:
    """A user's libvirtd, and the user's home."""

    home: Path

    @property
    def uri(self) -> str:
        return f"qemu+unix:///session?socket={self.home}/run/libvirt/libvirt-sock"


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    if os.geteuid() != 0 or shutil.which("libvirtd") is None:
        pytest.skip("needs root and libvirtd")
    home = Path(tempfile.mkdtemp(prefix="nospoon-session-"))
    for place in (home, home / "run"):
        place.mkdir(exist_ok=True)
        os.chown(place, NOBODY, NOBODY)
        place.chmod(0o755)
    environment = {"HOME": str(home), "XDG_RUNTIME_DIR": f"{home}/run", "PATH": os.environ["PATH"]}
    log = (home / "log").open("wb")
    daemons = [
        subprocess.Popen(
            [*command, "-p", f"{home}/run/{command[0]}.pid"],
            user=NOBODY, group=NOBODY, extra_groups=[], env=environment, stdout=log, stderr=log,
        )
        for command in (["virtlogd"], ["libvirtd"])
    ]  # fmt: skip
    log.close()
    end = time.monotonic() + 60
    while not (home / "run/libvirt/libvirt-sock").is_socket():
        assert time.monotonic() < end, (home / "log").read_text()
        time.sleep(0.02)
    yield Session(home)
    for daemon in reversed(daemons):
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(60)
    remove_tree(home)


async def nothing(resource: Resource) -> None:
    del resource


@pytest.fixture
async def bench(session: Session, tmp_path: Path) -> AsyncIterator[Bench]:
    content = b"an image".ljust(1 << 20, b"\0")
    sha256 = hashlib.sha256(content).hexdigest()
    (tmp_path / "image.raw").write_bytes(content)

    async def open_image(wanted: str) -> str:
        assert wanted == sha256
        return str(tmp_path / "image.raw")

    iso = await guests.speaking_cd(tmp_path)

    async def boot_iso() -> Path:
        return iso

    connection = LibvirtConnection(
        Host("mine", Libvirt(session.uri)),
        "kit",
        LocalRunner(),
        open_image,
        records=str(session.home / "records"),
        verdicts=tmp_path,
        boot_iso=boot_iso,
        opened=session.uri,
    )
    (session.home / "records").mkdir(exist_ok=True)
    os.chown(session.home / "records", NOBODY, NOBODY)
    bench = Bench(
        connection=connection,
        place=connection.host,
        deployment="kit",
        pool_root=str(session.home),
        image=Image("", sha256, "raw", 1 << 20),
        make_stranger=nothing,
        remove_machine=nothing,
    )
    yield bench
    await remove_all(bench)
    await connection.close()


@pytest.fixture
def rack(bench: Bench) -> Rack:
    """A machine with user-mode networking that boots our ISO."""
    return rack_for(bench)


async def test_a_session_makes_no_networks(bench: Bench) -> None:
    can = await bench.connection.capabilities()
    assert Kind.NETWORK not in can.kinds
    assert " " in can.identity  # no host of a file is called so


async def test_a_machine_of_an_unprivileged_user_boots_our_iso_always(
    bench: Bench, rack: Rack
) -> None:
    await make(bench, *rack.all)
    assert (await found(bench, rack.machine)).shape == rack.machine.shape
    assert isinstance(bench.connection, LibvirtConnection)
    machines = bench.connection.machine_driver
    listener = guests.Listener(machines.console_record(rack.uuid))
    async with events_of(bench, rack.uuid) as queue:
        await machines.power(rack.uuid, PowerCommand.ON, PLAN)
        assert await listener.hears(guests.BOOTED) == guests.BOOTED
        await machines.boot_order.set_boot(rack.uuid, PLAN)
        await machines.power(rack.uuid, PowerCommand.RESET, PLAN)
        assert await listener.hears(guests.BOOTED) == guests.BOOTED
        await next_event(queue, MachineChange.RESET, 60)
        await machines.power(rack.uuid, PowerCommand.OFF, PLAN)
        stopped = await next_event(queue, MachineChange.STOPPED, 60)
    assert stopped.power is PowerState.OFF


THEIRS = """<domain type='qemu'><name>theirs</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='pc'>hvm</type><boot dev='hd'/><bios useserial='yes'/></os>
<devices>
<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{disk}'/>
<target dev='sda' bus='scsi'/></disk>
<controller type='scsi' model='virtio-scsi'/>
<interface type='user'><model type='virtio'/></interface>
<serial type='pty'><log file='{log}' append='on'/></serial><console type='pty'/>
</devices></domain>"""
"""What a user made: a disk on SCSI, no CD drive."""
ONCE = BootPlan((BootDevice.NETWORK,), (BootDevice.DISK,))
DISK = BootPlan((BootDevice.DISK,), (BootDevice.DISK,))


async def test_a_users_own_machine_is_adopted_booted_and_given_back_as_it_was(
    session: Session, bench: Bench, rack: Rack, tmp_path: Path
) -> None:
    disk, log = session.home / "theirs.img", session.home / "theirs.log"
    disk.write_bytes(guests.speaking_disk())
    os.chown(disk, NOBODY, NOBODY)
    domain = libvirt.open(session.uri).defineXML(THEIRS.format(disk=disk, log=log))
    try:
        before = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
        await make(bench, rack.pool)
        (machine,) = [each.machine for each in await bench.connection.adoptable() or ()]
        theirs = Resource(Key(Kind.MACHINE, "mine", "theirs"), machine)
        assert isinstance(bench.connection, LibvirtConnection)
        machines = bench.connection.machine_driver
        await machines.adoption.claim(theirs, bench.tag)
        listener = guests.Listener(str(log))
        await machines.power(machine.uuid, PowerCommand.ON, ONCE)
        first = await listener.hears(b"iPXE", guests.BOOTED)
        assert first == b"iPXE", "the network comes first, once"
        await machines.boot_order.set_boot(machine.uuid, DISK)
        await machines.power(machine.uuid, PowerCommand.RESET, DISK)
        assert await listener.hears(guests.BOOTED) == guests.BOOTED
        await machines.power(machine.uuid, PowerCommand.OFF, DISK)
        (tmp_path / "disc").write_bytes(bytes(4096))
        await machines.drives.insert(machine.uuid, Medium(str(tmp_path / "disc"), "ab" * 32))
        assert "device='cdrom'" in domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
        await machines.adoption.release(await found(bench, theirs))
        assert domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE) == before
    finally:
        if domain.isActive():
            domain.destroy()
        domain.undefine()


async def test_a_new_boot_iso_shows_as_a_difference_and_is_put_in(
    bench: Bench, rack: Rack, tmp_path: Path
) -> None:
    await make(bench, *rack.all)
    iso = tmp_path / "cd.iso"
    await asyncio.to_thread(iso.write_bytes, await asyncio.to_thread(iso.read_bytes) + b"newer")
    observed = await found(bench, rack.machine)
    assert isinstance(observed.shape, Machine)
    assert observed.shape.boot is BootMethod.NATIVE
    driver = bench.connection.drivers[Kind.MACHINE]
    await driver.change(observed, rack.machine, bench.tag)
    assert (await found(bench, rack.machine)).shape == rack.machine.shape


async def test_a_machine_that_boots_an_iso_which_is_not_there_is_refused(
    session: Session, rack: Rack, bench: Bench, tmp_path: Path
) -> None:
    await make(bench, *rack.all[:-1])

    async def open_image(wanted: str) -> str:
        raise ProviderError(wanted)

    bare = LibvirtConnection(
        Host("mine", Libvirt(session.uri)), "kit", LocalRunner(), open_image,
        records=str(tmp_path / "records"), verdicts=tmp_path, opened=session.uri,
    )  # fmt: skip
    with pytest.raises(ProviderError, match="given none"):
        await bare.drivers[Kind.MACHINE].create(rack.machine, bench.tag)
    await bare.close()
