"""Containers that are killed, reboot, or have a root that is not there."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from tests.lxc.conftest import image_of

from nospoon.errors import ProviderError
from nospoon.model.machine import MachineChange, PowerCommand, PowerState
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Pool
from nospoon.model.seed import Seed
from nospoon.plan.identity import pool_name
from nospoon.providers.lxc import LxcConnection
from nospoon.runtime.runner import LocalRunner
from nospoon.testing.container_root import busybox_root
from nospoon.testing.racks import (
    PLAN,
    Bench,
    events_of,
    found,
    make,
    observe_all,
    rack_for,
    remove_all,
    until,
)
from nospoon.testing.trees import control_groups

pytestmark = pytest.mark.lxc

REBOOTS = """\
#!/bin/busybox sh
echo 'container: init runs'
/bin/busybox sleep 2
exec /bin/busybox reboot -f
"""


def monitors(place: Path) -> list[int]:
    done = subprocess.run(
        ["pgrep", "-f", rf"^\[lxc monitor\] {place}/"], text=True, capture_output=True, check=False
    )
    return [int(pid) for pid in done.stdout.split()]


def left(place: Path, bench: Bench) -> list[str]:
    name = f"kit-{bench.cluster.hex[:8]}"
    losetup = subprocess.run(["losetup", "-a"], text=True, capture_output=True, check=True)
    groups = [str(path) for path in control_groups(name)]
    return groups + [line for line in losetup.stdout.splitlines() if str(place) in line]


async def nothing_left(place: Path, bench: Bench) -> None:
    """The kernel gives loop devices back a moment after the last mount has ended."""
    await eventually(lambda: left(place, bench) == [])


async def test_a_container_ends_with_its_monitor_and_starts_again(
    bench: Bench, place: Path
) -> None:
    rack = rack_for(bench)
    await make(bench, *rack.all)
    machines = bench.connection.machine_driver
    await machines.power(rack.uuid, PowerCommand.ON, PLAN)
    async with events_of(bench, rack.uuid) as queue:
        os.kill(monitors(place)[0], signal.SIGKILL)
        ended = await until(queue, MachineChange.SHUTDOWN, bench.patience)
        assert ended.power is PowerState.OFF
    assert not (await found(bench, rack.machine)).running
    await machines.power(rack.uuid, PowerCommand.ON, PLAN)
    assert (await found(bench, rack.machine)).running
    os.kill(monitors(place)[0], signal.SIGKILL)
    await remove_all(bench)
    await nothing_left(place, bench)


async def test_a_guest_that_reboots_is_told_as_a_reset(
    bench: Bench, place: Path, images: dict[str, Path]
) -> None:
    image = image_of(busybox_root(init=REBOOTS), place, images)
    rack = rack_for(replace(bench, image=image))
    await make(bench, *rack.all)
    async with events_of(bench, rack.uuid) as queue:
        await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
        assert (await until(queue, MachineChange.RESET, bench.patience)).power is PowerState.ON


async def test_reboots_of_a_guest_fill_no_log(
    bench: Bench, place: Path, images: dict[str, Path]
) -> None:
    image = image_of(busybox_root(init=REBOOTS.replace("sleep 2", "true")), place, images)
    rack = rack_for(replace(bench, image=image))
    await make(bench, *rack.all)
    (directory,) = Path(bench.pool_root).glob("*/*-m0")
    (directory / "log").write_text("of another start")
    await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    console = console_of(place, rack.uuid)
    await eventually(lambda: console.exists() and console.read_text().count("init runs") > 5)
    assert not (directory / "log").exists()
    monitor = int((directory / "pid").read_text())
    mounts = Path(f"/proc/{monitor}/mountinfo").read_text().splitlines()
    (log,) = (each for each in mounts if f" {directory}/said " in each)
    assert " tmpfs " in log
    assert "size=1024k" in log
    assert list((directory / "said").iterdir()) == [], "on the host it is not mounted"


async def test_a_start_that_fails_says_why_and_leaves_nothing(bench: Bench, place: Path) -> None:
    rack = rack_for(bench)
    await make(bench, *rack.all)
    assert isinstance(rack.machine.shape, Machine)
    bridged = replace(rack.machine.shape.nics[0], network="nsnot-there", port="nsx-0")
    machine = replace(rack.machine, shape=replace(rack.machine.shape, nics=(bridged,)))
    await make(bench, machine)
    with pytest.raises(ProviderError, match="container m0 does not start"):
        await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    assert not (await found(bench, machine)).running
    (log,) = Path(bench.pool_root).glob("*/*-m0/log")
    assert "nsnot-there" in log.read_text()
    assert monitors(place) == []
    await nothing_left(place, bench)


async def test_a_root_whose_file_is_gone_is_at_fault_and_made_again(
    bench: Bench, connection: LxcConnection
) -> None:
    rack = rack_for(bench)
    await make(bench, *rack.all)
    (volume,) = Path(bench.pool_root).glob("*/m0-0.volume")
    volume.unlink()
    assert (await found(bench, rack.blank)).fault == "its file is gone"
    with pytest.raises(ProviderError, match=r"its root .* is gone"):
        await connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    await make(bench, rack.blank)
    await connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    assert (await found(bench, rack.blank)).fault == ""


async def test_what_an_interrupted_creation_left_goes_with_the_next_one(bench: Bench) -> None:
    rack = rack_for(bench)
    await make(bench, rack.pool, rack.image)
    pool = Path(bench.pool_root, rack.pool.key.name)
    (pool / ".making-m0-0.volume").mkdir()
    (pool / ".making-m0-0.volume" / "root").write_bytes(b"half")
    (pool / "m0-0.volume").write_bytes(b"whole, and not noted yet")
    (pool / f"{rack.image.key.name}.image.part").write_bytes(b"half")
    (pool / f".making-{rack.pool.key.name.removeprefix('nospoon-')}-m0").mkdir()
    assert rack.blank.key not in await observe_all(bench)
    await make(bench, *rack.all)
    await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    await remove_all(bench)
    assert not pool.exists()
    assert Kind.POOL not in {key.kind for key in await observe_all(bench)}


async def test_a_container_is_in_the_pool_that_has_its_clusters_name(bench: Bench) -> None:
    rack = rack_for(bench)
    pool = pool_name(bench.cluster, "b")
    there = Path(bench.pool_root, pool)
    await make(bench, *rack.all[:-1], Resource(Key(Kind.POOL, bench.host, pool), Pool(str(there))))
    driver = bench.connection.machine_driver
    await driver.create(rack.machine, replace(bench.tag, name="b"))
    assert (there / f"{pool.removeprefix('nospoon-')}-m0" / "machine.json").exists()
    await driver.delete(await found(bench, rack.machine))
    assert list(there.iterdir()) == [there / "pool.json"]


HOLDS_UP = """\
#!/bin/busybox sh
place=/var/lib/cloud/seed/nocloud
/bin/busybox rm -rf $place
/bin/busybox mkdir -p $place
/bin/busybox mkfifo $place/user-data
echo 'container: init runs'
trap 'exit 0' PWR
while :; do /bin/busybox sleep 1 & wait $!; done
"""


async def test_a_root_cannot_hold_up_its_next_start(
    bench: Bench, place: Path, images: dict[str, Path], connection: LxcConnection
) -> None:
    async def open_seed(digest: str) -> Seed:
        return Seed("m0", "m0", (), digest, "")

    seeded = LxcConnection(
        connection.host,
        "kit",
        LocalRunner(),
        connection.drivers[Kind.IMAGE]._open,  # type: ignore[attr-defined]
        root=bench.pool_root,
        records=str(place / "records"),
        open_seed=open_seed,
    )
    image = image_of(busybox_root(init=HOLDS_UP), place, images)
    seeded_bench = replace(bench, connection=seeded, image=image)
    rack = rack_for(seeded_bench)
    assert isinstance(rack.machine.shape, Machine)
    machine = replace(rack.machine, shape=replace(rack.machine.shape, seed="#cloud-config"))
    await make(seeded_bench, rack.pool, rack.image, rack.blank, machine)
    try:
        for command in (PowerCommand.ON, PowerCommand.RESET):
            async with asyncio.timeout(60):
                await seeded.machine_driver.power(rack.uuid, command, PLAN)
            await eventually(console_of(place, rack.uuid).exists)
            await eventually(lambda: "init runs" in console_of(place, rack.uuid).read_text())
            console_of(place, rack.uuid).write_text("")
    finally:
        await seeded.close()


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  (a file of liblxc's)
            await asyncio.sleep(0.05)


def console_of(place: Path, machine: UUID) -> Path:
    return place / "records" / f"{machine}.log"


def sleeps() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"])


async def test_processes_that_outlive_their_monitor_end_with_the_container(
    bench: Bench, place: Path
) -> None:
    """prctl(PR_SET_PDEATHSIG, 0) of init keeps it; so does a process that is in its control group
    and not in its PID namespace, which stands for it here. Names of control groups are those that
    root in the container chose.
    """
    outlives, another = sleeps(), sleeps()
    (place / "cgroup.procs").write_text(str(another.pid))
    rack = rack_for(bench)
    await make(bench, *rack.all)
    await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    for group in [path for path in left(place, bench) if "lxc.payload" in path]:
        Path(group, f"x {place}").mkdir(parents=True)
        Path(group, "cgroup.procs").write_text(str(outlives.pid))
    os.kill(monitors(place)[0], signal.SIGKILL)
    await remove_all(bench)
    assert outlives.wait(timeout=60) == -signal.SIGKILL
    assert another.poll() is None, "it is not of the container"
    another.kill()
    another.wait()
    await nothing_left(place, bench)


async def test_a_host_is_looked_at_by_its_own_python(
    bench: Bench, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A python3 that a user has before it in the path may take five times as long (pyenv)."""
    (place / "python3").write_text("#!/bin/sh\nexit 1\n")
    (place / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    rack = rack_for(bench)
    await make(bench, *rack.all)
    assert (await found(bench, rack.machine)).shape == rack.machine.shape
