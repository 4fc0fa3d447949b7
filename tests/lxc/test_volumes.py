"""Volumes of data in containers: kept when the root changes, and never led out of the container."""

from __future__ import annotations

import contextlib
import io
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.lxc.conftest import image_of
from tests.lxc.test_machines import monitors, nothing_left

from nospoon.errors import ProviderError
from nospoon.model.machine import PowerCommand
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine, MachineDisk
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Volume
from nospoon.testing.container_root import busybox_root
from nospoon.testing.racks import MEBI, PLAN, Bench, found, make, rack_for, remove_all

pytestmark = pytest.mark.lxc

DATA = "/var/lib/data"
Run = Callable[..., str]


def with_data(root: bytes, *more: tarfile.TarInfo) -> bytes:
    """A root with a file that has a user of its own, and these."""
    written = io.BytesIO(root)
    with tarfile.open(fileobj=written, mode="a") as archive:
        for name, mode in ((DATA, 0o750), (f"{DATA}/sub", 0o700)):
            directory = tarfile.TarInfo(name.lstrip("/"))
            directory.type, directory.mode, directory.uid, directory.gid = (
                tarfile.DIRTYPE, mode, 105, 106,
            )  # fmt: skip
            archive.addfile(directory)
        first = tarfile.TarInfo(f"{DATA.lstrip('/')}/sub/first")
        first.size, first.uid, first.gid, first.mode = 6, 105, 106, 0o640
        archive.addfile(first, io.BytesIO(b"image\n"))
        for each in more:
            archive.addfile(each)
    return written.getvalue()


def link(name: str, target: str) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = tarfile.SYMTYPE, target
    return made


def rack_with_data(bench: Bench, mount: str = DATA) -> tuple[Resource, ...]:
    """Its volume has the number of a second disk."""
    rack = rack_for(bench)
    assert isinstance(rack.machine.shape, Machine)
    assert isinstance(rack.pool.shape.path, str)  # type: ignore[union-attr]
    data = Resource(replace(rack.cloned.key, name="m0-1"), Volume(rack.pool.key.name, 16 * MEBI))
    disks = (*rack.machine.shape.disks, MachineDisk("m0-1", "virtio", "", mount=mount))
    machine = replace(rack.machine, shape=replace(rack.machine.shape, disks=disks))
    return rack.pool, rack.image, rack.blank, data, machine


@contextlib.contextmanager
def attached(file: Path) -> Iterator[None]:
    """As a file system is that has not ended yet."""
    attach = ["losetup", "--find", "--show", str(file)]
    loop = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
    try:
        yield
    finally:
        subprocess.run(["losetup", "--detach", loop], check=True)


def superblock(file: Path) -> bytes:
    """Of ext4 (ext4(5), disk layout: 1,024 bytes at 1,024)."""
    return file.read_bytes()[1024:2048]


async def upgrade(bench: Bench, machine: Resource, place: Path, images: dict[str, Path]) -> None:
    """The same machine on a root of another image."""
    assert isinstance(machine.shape, Machine)
    other = image_of(with_data(busybox_root(), link("etc/other", "x")), place, images)
    rack = rack_for(replace(bench, image=other))
    assert isinstance(rack.blank.shape, Volume)
    root = Resource(
        replace(rack.blank.key, name="m0-1000"),
        replace(rack.blank.shape, image=rack.image.key.name),
    )
    disks = (replace(machine.shape.disks[0], volume="m0-1000"), *machine.shape.disks[1:])
    await make(bench, rack.image, root)
    await make(bench, replace(machine, shape=replace(machine.shape, disks=disks)))


class VolumePromises:
    """`run`: a command in the only container."""

    async def test_a_volume_begins_with_what_the_image_has_and_is_kept_when_the_root_changes(
        self, bench: Bench, place: Path, images: dict[str, Path], run: Run
    ) -> None:
        bench = replace(bench, image=image_of(with_data(busybox_root()), place, images))
        everything = rack_with_data(bench)
        await make(bench, *everything)
        machines, machine = bench.connection.machine_driver, everything[-1]
        assert isinstance(machine.shape, Machine)
        await machines.power(machine.shape.uuid, PowerCommand.ON, PLAN)
        assert run("stat", "-c", "%u %g %a", DATA, f"{DATA}/sub/first").split("\n")[:2] == [
            "105 106 750", "105 106 640",
        ]  # fmt: skip
        assert run("cat", f"{DATA}/sub/first") == "image\n"
        assert run("ls", DATA) == "sub\n"
        mounts = [line for line in run("cat", "/proc/mounts").splitlines() if f" {DATA} " in line]
        assert [set(line.split()[3].split(",")) >= {"nosuid", "nodev"} for line in mounts] == [True]
        run("sh", "-c", f"echo mine >{DATA}/sub/mine; echo changed >{DATA}/sub/first; sync")
        await machines.power(machine.shape.uuid, PowerCommand.OFF, PLAN)
        await upgrade(bench, machine, place, images)
        await machines.power(machine.shape.uuid, PowerCommand.ON, PLAN)
        assert run("cat", f"{DATA}/sub/mine", f"{DATA}/sub/first") == "mine\nchanged\n"
        assert run("readlink", "/etc/other") == "x\n", "it has the other root"
        await machines.power(machine.shape.uuid, PowerCommand.RESET, PLAN)
        assert run("cat", f"{DATA}/sub/mine") == "mine\n"
        await remove_all(bench)
        await nothing_left(place, bench)

    async def test_a_link_in_its_root_leads_a_volume_to_no_place_of_the_host(
        self, bench: Bench, place: Path, images: dict[str, Path], run: Run
    ) -> None:
        name = place.name
        root = with_data(busybox_root(), link("var/out", "../../../../tmp"))
        bench = replace(bench, image=image_of(root, place, images))
        everything = rack_with_data(bench, f"/var/out/{name}/data")
        await make(bench, *everything)
        machines, machine = bench.connection.machine_driver, everything[-1]
        assert isinstance(machine.shape, Machine)
        await machines.power(machine.shape.uuid, PowerCommand.ON, PLAN)
        run("sh", "-c", f"echo mine >/var/out/{name}/data/mine")
        assert run("ls", f"/tmp/{name}/data") == "mine\n", "the place is in its root"
        assert not (place / "data").exists()
        assert str(place / "data") not in Path("/proc/mounts").read_text()
        await machines.power(machine.shape.uuid, PowerCommand.OFF, PLAN)

    async def test_no_link_of_the_kernel_leads_to_what_its_starter_has_open(
        self, bench: Bench, place: Path, images: dict[str, Path]
    ) -> None:
        """liblxc's process has its host's control groups open, above which is the host's root."""
        root = with_data(busybox_root(), link("var/out", "/proc/1/root/tmp"))
        bench = replace(bench, image=image_of(root, place, images))
        everything = rack_with_data(bench, "/var/out/data")
        await make(bench, *everything)
        machine = everything[-1]
        assert isinstance(machine.shape, Machine)
        with pytest.raises(ProviderError, match=r"m0-1 at /var/out/data: .*: 'out'"):
            await bench.connection.machine_driver.power(machine.shape.uuid, PowerCommand.ON, PLAN)

    async def test_content_that_was_not_wholly_copied_is_copied_again(
        self, bench: Bench, place: Path, images: dict[str, Path], run: Run
    ) -> None:
        bench = replace(bench, image=image_of(with_data(busybox_root()), place, images))
        everything = rack_with_data(bench)
        await make(bench, *everything)
        machines, machine = bench.connection.machine_driver, everything[-1]
        assert isinstance(machine.shape, Machine)
        await machines.power(machine.shape.uuid, PowerCommand.ON, PLAN)
        run(
            "sh", "-c", f"rm {DATA}/sub/first; mkdir {DATA}/half; touch {DATA}/.nospoon-begun; sync"
        )
        await machines.power(machine.shape.uuid, PowerCommand.RESET, PLAN)
        assert run("ls", "-A", DATA) == "sub\n"
        assert run("cat", f"{DATA}/sub/first") == "image\n"
        await machines.power(machine.shape.uuid, PowerCommand.OFF, PLAN)

    async def test_what_a_guest_writes_is_not_taken_for_another_kind_of_file_system(
        self, bench: Bench
    ) -> None:
        everything = rack_with_data(bench)
        await make(bench, *everything)
        machine = everything[-1]
        assert isinstance(machine.shape, Machine)
        files = list(Path(bench.pool_root).glob("*/*.volume"))
        assert len(files) == 2
        for each in files:
            with each.open("r+b") as file:
                file.seek(-1024, io.SEEK_END)
                file.write(b"Intel Raid ISM Cfg Sig. 1.0.00")
        power = bench.connection.machine_driver.power
        await power(machine.shape.uuid, PowerCommand.ON, PLAN)
        await power(machine.shape.uuid, PowerCommand.OFF, PLAN)

    async def test_a_root_that_grows_is_not_repaired_before_it_has_ended_elsewhere(
        self, bench: Bench
    ) -> None:
        everything = rack_with_data(bench)
        await make(bench, *everything)
        root, machine = everything[2], everything[-1]
        assert isinstance(root.shape, Volume)
        assert isinstance(machine.shape, Machine)
        (file,) = Path(bench.pool_root).glob(f"*/{root.key.name}.volume")
        power = bench.connection.machine_driver.power
        with attached(file):
            before = superblock(file)
            larger = replace(root, shape=replace(root.shape, size=root.shape.size + 8 * MEBI))
            driver = bench.connection.drivers[Kind.VOLUME]
            await driver.change(await found(bench, root), larger, bench.tag)
            with pytest.raises(ProviderError, match="mounted elsewhere"):
                await power(machine.shape.uuid, PowerCommand.ON, PLAN)
            assert superblock(file) == before
        await power(machine.shape.uuid, PowerCommand.ON, PLAN)
        assert superblock(file) != before
        await power(machine.shape.uuid, PowerCommand.OFF, PLAN)

    async def test_a_volume_that_is_lost_or_too_small_is_said_at_the_start(
        self, bench: Bench, place: Path, images: dict[str, Path]
    ) -> None:
        big = tarfile.TarInfo(f"{DATA.lstrip('/')}/big")
        written = io.BytesIO(with_data(busybox_root()))
        big.size = 3 * MEBI
        with tarfile.open(fileobj=written, mode="a") as archive:
            archive.addfile(big, io.BytesIO(b"x" * big.size))
        bench = replace(bench, image=image_of(written.getvalue(), place, images))
        pool, image, root, data, machine = rack_with_data(bench)
        assert isinstance(data.shape, Volume)
        assert isinstance(machine.shape, Machine)
        small = replace(data, shape=replace(data.shape, size=2 * MEBI))
        await make(bench, pool, image, root, small, machine)
        power = bench.connection.machine_driver.power
        with pytest.raises(
            ProviderError, match=rf"volume m0-1 at {DATA}: .*No space left on device"
        ):
            await power(machine.shape.uuid, PowerCommand.ON, PLAN)
        await bench.connection.drivers[Kind.VOLUME].change(
            await found(bench, small), data, bench.tag
        )
        await power(machine.shape.uuid, PowerCommand.ON, PLAN)
        with pytest.raises(ProviderError, match="m0"):
            await bench.connection.drivers[Kind.VOLUME].delete(await found(bench, data))
        await power(machine.shape.uuid, PowerCommand.OFF, PLAN)
        (file,) = Path(bench.pool_root).glob("*/m0-1.volume")
        file.unlink()
        assert (await found(bench, data)).fault
        with pytest.raises(ProviderError, match=r"volume m0-1 at .*: the file .* is gone"):
            await power(machine.shape.uuid, PowerCommand.ON, PLAN)
        gone = await found(bench, data)
        await bench.connection.drivers[Kind.VOLUME].change(gone, data, bench.tag)
        assert not (await found(bench, data)).fault
        await power(machine.shape.uuid, PowerCommand.ON, PLAN)
        await remove_all(bench)
        await nothing_left(place, bench)


class TestLxc(VolumePromises):
    @pytest.fixture
    def run(self, place: Path) -> Run:
        def run(*argv: str) -> str:
            (monitor,) = monitors(place)
            children = Path(f"/proc/{monitor}/task/{monitor}/children").read_text().split()
            command = ["nsenter", "-t", children[0], "-U", "-m", "-p", "/bin/busybox", *argv]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout

        return run
