"""What containers of every connection are held to: CPU, memory, processes and disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nospoon.model.machine import PowerCommand
from nospoon.model.resources.machines import Machine
from nospoon.model.seed import Seed
from nospoon.testing.racks import MEBI, PLAN, SEEDS, Bench, Rack, found, make, rack_for

PIDS = 4096
NEAR = 96
"""Podman counts those of its user as well, and refuses some before."""
SHELL = ("/bin/busybox", "sh", "-c")
BOMB = "(while :; do /bin/busybox sleep 600 & done) >/dev/null 2>&1 </dev/null &"
"""Shell: processes, until the kernel refuses one."""
FILL = "/bin/busybox cat /dev/zero >/full; while echo x >>/full; do :; done"
"""Shell: no block of its root is free."""

Inside = Callable[..., "tuple[int, str]"]
"""Runs words in the container: the status, and what is said."""


def group_of(pid: int, controller: str) -> Path:
    """Of a process, in version 1 or 2 (cgroups(7), /proc/pid/cgroup)."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    paths = {kinds: path for _, kinds, path in (line.split(":", 2) for line in lines)}
    if controller in paths:
        return Path(f"/sys/fs/cgroup/{controller}{paths[controller]}")
    return Path(f"/sys/fs/cgroup{paths['']}")


def limits_of(pid: int) -> dict[str, float]:
    """CPUs, bytes of memory and of swap beside it, and processes that the kernel gives it."""

    def read(controller: str, name: str) -> str:
        return (group_of(pid, controller) / name).read_text()

    if (group_of(pid, "cpu") / "cpu.max").exists():
        quota, period = map(int, read("cpu", "cpu.max").split())
        memory = read("memory", "memory.max")
    else:
        quota = int(read("cpu", "cpu.cfs_quota_us"))
        period = int(read("cpu", "cpu.cfs_period_us"))
        memory = read("memory", "memory.limit_in_bytes")
    return {
        "cpus": quota / period,
        "memory": int(memory),
        "pids": int(read("pids", "pids.max")),
    }


def swap_of(pid: int) -> str:
    """What it may swap out, "" where the kernel does not count that."""
    file = group_of(pid, "memory") / "memory.swap.max"
    return file.read_text().strip() if file.exists() else ""


async def running(bench: Bench, *, memory: int = 64 * MEBI, seed: Seed | None = None) -> Rack:
    """A container with two CPUs that is on."""
    rack = rack_for(bench)
    assert isinstance(rack.machine.shape, Machine)
    shape = replace(rack.machine.shape, memory=memory, cpus=2, seed=seed.digest if seed else "")
    rack = replace(rack, machine=replace(rack.machine, shape=shape))
    await make(bench, rack.pool, rack.image, rack.blank, rack.machine)
    await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    return rack


async def expect_limits(bench: Bench, init: Callable[[], int]) -> None:
    await running(bench)
    assert limits_of(init()) == {"cpus": 2, "memory": 64 * MEBI, "pids": PIDS}
    assert swap_of(init()) in ("", "0")


async def expect_end_of_a_fork_bomb(bench: Bench, init: Callable[[], int], inside: Inside) -> None:
    """The kernel begins no more processes than its limit, and power-off ends them all. They need
    half a gibibyte: where memory ends first, the kernel may kill the init.
    """
    rack = await running(bench, memory=1024 * MEBI)
    group = group_of(init(), "pids")
    inside(*SHELL, BOMB)
    async with asyncio.timeout(300):
        while (count := int((group / "pids.current").read_text())) < PIDS - NEAR:  # noqa: ASYNC110  (a file of the kernel)
            await asyncio.sleep(0.05)
    assert count <= PIDS
    await bench.connection.machine_driver.power(rack.uuid, PowerCommand.OFF, PLAN)
    assert not (await found(bench, rack.machine)).running
    assert not group.exists()
    await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    assert inside(*SHELL, "echo works")[1].strip() == "works"


async def expect_start_of_a_full_root(
    bench: Bench, init: Callable[[], int], inside: Inside
) -> None:
    """A container whose root is full starts again, with other data for cloud-init as well."""
    first, second = SEEDS
    rack = await running(bench, seed=first)
    inside(*SHELL, FILL)
    for command in (PowerCommand.RESET, PowerCommand.CYCLE):
        assert inside(*SHELL, "echo x >/more")[0] != 0, "it is full"
        await bench.connection.machine_driver.power(rack.uuid, command, PLAN)
        assert inside(*SHELL, "echo works")[1].strip() == "works"
    assert isinstance(rack.machine.shape, Machine)
    shape = replace(rack.machine.shape, seed=second.digest)
    await bench.connection.machine_driver.power(rack.uuid, PowerCommand.OFF, PLAN)
    await make(bench, replace(rack.machine, shape=shape))
    await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    assert inside(*SHELL, "echo works")[1].strip() == "works"
    # as the host sees it: an engine may lose what a short command says
    seed = Path(f"/proc/{init()}/root/var/lib/cloud/seed/nocloud/user-data")
    assert seed.read_text() == second.user_data
