"""Snapshots of clusters by the command line, also when the daemon dies in the middle."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from nospoon.testing.rack import Rack

IO = 65536


def simulated(rack: Rack, count: int = 3, host: str = "simulated") -> str:
    name = rack.name()
    text = f"cluster: {name}\nhosts: {{s: {host}}}\n{rack.bmc()}nodes: [{{count: {count}}}]\n"
    rack.run("up", "--yes", rack.file(text, f"{name}.yaml"))
    return name


def power(rack: Rack, name: str) -> dict[str, str]:
    return {row["node"]: row["power"] for row in rack.json("status", name)}


def test_power_is_as_it_was_after_a_restore(shared: Rack) -> None:
    name = simulated(shared)
    for node in ("node-0", "node-1"):
        shared.power(f"{name}/{node}", "on")
    before = power(shared, name)
    assert shared.run("snapshot", "create", name, "first").stdout == "first\n"
    assert power(shared, name) == before
    shared.power(f"{name}/node-0", "off")
    shared.power(f"{name}/node-2", "on")
    (row,) = shared.json("snapshot", "list", name)
    assert (row["name"], row["state"], row["nodes"], row["on"]) == ("first", "complete", 3, 2)
    told = shared.run("snapshot", "restore", "--yes", name, "first").stderr
    assert "3 nodes, 2 of them on" in told
    assert power(shared, name) == before
    shared.run("snapshot", "delete", name, "first")
    assert shared.json("snapshot", "list", name) == []


def test_names_are_checked_taken_and_missed(shared: Rack) -> None:
    name = simulated(shared, 1)
    made = shared.run("snapshot", "create", name).stdout.strip()
    assert re.fullmatch(r"[0-9]{8}-[0-9]{6}", made)
    taken = shared.run("snapshot", "create", name, made, status=5)
    assert "has a snapshot" in taken.stderr
    missing = shared.run("snapshot", "restore", "--yes", name, "nope", status=2)
    assert f"it has: {made}" in missing.stderr
    shared.run("snapshot", "create", name, "a/b", status=2)
    shared.run("snapshot", "create", "nobody", "x", status=2)


def test_a_plan_tells_of_snapshots_that_are_lost_by_it(shared: Rack) -> None:
    name = shared.name()
    head = f"cluster: {name}\nhosts: {{s: simulated, t: simulated}}\n{shared.bmc()}nodes:\n"
    file = shared.file(head + "  - {name: a, host: s}\n  - {name: b, host: s}\n", f"{name}.yaml")
    shared.run("up", "--yes", file)
    shared.run("snapshot", "create", name, "first")
    moved = shared.file(head + "  - {name: a, host: s}\n  - {name: b, host: t}\n", f"{name}.yaml")
    lost = "snapshot first is lost: it cannot be restored without"
    assert f"Note: {lost} b" in shared.run("plan", moved).stdout
    assert f"{lost} b" in shared.json("plan", moved)["notes"]
    assert lost not in shared.run("plan", "-t", "a", moved).stdout
    fewer = shared.file(head + "  - {name: a, host: s, memory: 2GiB}\n", f"{name}.yaml")
    assert f"{lost} b\n" in f"{shared.run('plan', fewer).stdout}\n"


@pytest.mark.parametrize("power_now", ["off", "on"])
@pytest.mark.parametrize(
    "host", ["simulated", pytest.param("{libvirt: 'qemu:///system'}", marks=pytest.mark.libvirt)]
)
def test_a_snapshot_is_restored_to_the_disks_that_there_were_and_to_no_others(
    rack: Rack, host: str, power_now: str
) -> None:
    name, bmc = rack.name(), rack.bmc()

    def file(disks: str) -> str:
        node = f"{{name: a, firmware: bios, memory: 64MiB, disks: [{disks}]}}"
        return rack.file(f"cluster: {name}\nhosts: {{h: {host}}}\n{bmc}nodes: [{node}]\n")

    rack.run("up", "--yes", file("16MiB, 8MiB"))
    rack.run("snapshot", "create", name, "s")
    lost = "snapshot s is lost: it cannot be restored without a"
    assert lost not in rack.run("plan", file("16MiB, 8MiB, 4MiB")).stdout
    rack.run("up", "--yes", file("16MiB, 8MiB, 4MiB"))
    refused = rack.run("snapshot", "restore", "--yes", name, "s", status=5).stderr
    assert "snapshot 's' is older than disks: a (a-2)" in refused
    assert "Bring the file of that time up first" in refused
    assert lost not in rack.run("plan", file("16MiB, 8MiB")).stdout
    rack.run("up", "--yes", file("16MiB, 8MiB"))
    rack.run("snapshot", "restore", "--yes", name, "s")
    rack.power(f"{name}/a", power_now)
    assert lost in rack.run("plan", file("16MiB")).stdout
    rack.run("up", "--yes", file("16MiB"))
    refused = rack.run("snapshot", "restore", "--yes", name, "s", status=1).stderr
    assert "'s' is lost to disks that were replaced or removed since: a (a-1)" in refused
    assert power(rack, name) == {"a": power_now}


def test_a_snapshot_of_nodes_that_are_no_more_is_not_restored(shared: Rack) -> None:
    name = simulated(shared, 2)
    shared.run("snapshot", "create", name, "s")
    file = shared.directory / f"{name}.yaml"
    file.write_text(file.read_text().replace("count: 2", "count: 1"))
    shared.run("up", "--yes", str(file))
    refused = shared.run("snapshot", "restore", "--yes", name, "s", status=1)
    assert "nodes that no longer exist: node-1" in refused.stderr
    shared.run("snapshot", "delete", name, "s")


@pytest.fixture
def real(rack: Rack) -> str:
    """Two machines of libvirt, one with UEFI."""
    name = rack.name()
    nodes = (
        "nodes:\n"
        "  - {name: u, firmware: uefi, memory: 128MiB, disks: [16MiB, 16MiB]}\n"
        "  - {name: b, firmware: bios, memory: 64MiB, disks: [16MiB]}\n"
    )
    rack.run("up", "--yes", rack.file(f"cluster: {name}\n{rack.bmc()}{nodes}"))
    return name


def pool(rack: Rack, name: str) -> Path:
    (found,) = (rack.directory / "pool").glob(f"nospoon-{name}-*")
    return found


def io(disk: Path, command: str) -> str:
    done = subprocess.run(
        ["qemu-io", "-c", f"{command} 0 {IO}", str(disk)], text=True, capture_output=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.libvirt
def test_disks_variables_and_power_of_real_machines_come_back(rack: Rack, real: str) -> None:
    place = pool(rack, real)
    disks = sorted(place.glob("*.qcow2"))
    assert len(disks) == 3
    for number, disk in enumerate(disks):
        io(disk, f"write -P {number + 1}")
    rack.power(f"{real}/u", "on")
    rack.run("snapshot", "create", real, "ci")
    (variables,) = place.glob("nvram/*.nvram")
    kept = variables.with_name(f"{variables.name}.ci.snapshot").read_bytes()
    assert power(rack, real) == {"u": "on", "b": "off"}
    rack.power(f"{real}/u", "off")
    for disk in disks:
        io(disk, "write -P 99")
    variables.write_bytes(bytes(len(kept)))
    rack.run("snapshot", "restore", "--yes", real, "ci")
    assert power(rack, real) == {"u": "on", "b": "off"}
    rack.power(f"{real}/u", "off")
    for number, disk in enumerate(disks):
        assert "verification failed" not in io(disk, f"read -P {number + 1}")
    assert variables.read_bytes() != bytes(len(kept))
    assert rack.run("plan", "--detailed-exitcode", str(rack.directory / "cluster.yaml"))
    rack.run("down", "--yes", real)
    assert not place.exists()


@pytest.mark.libvirt
def test_a_snapshot_is_refused_before_any_power_goes_when_a_disk_was_replaced(
    rack: Rack, real: str
) -> None:
    rack.power(f"{real}/u", "on")
    rack.run("snapshot", "create", real, "ci")
    file = rack.directory / "cluster.yaml"
    file.write_text(file.read_text().replace("64MiB, disks: [16MiB]", "64MiB, disks: [8MiB]"))
    rack.run("up", "--yes", str(file))
    refused = rack.run("snapshot", "restore", "--yes", real, "ci", status=1).stderr
    assert "'ci' is lost to disks that were replaced or removed since: b (b-0)" in refused
    assert power(rack, real) == {"u": "on", "b": "off"}
    (row,) = rack.json("snapshot", "list", real)
    assert row["state"] == "complete"


@pytest.mark.libvirt
def test_a_snapshot_is_refused_before_any_power_goes_when_the_firmware_is_another(
    rack: Rack, real: str
) -> None:
    rack.power(f"{real}/u", "on")
    rack.run("snapshot", "create", real, "ci")
    file = rack.directory / "cluster.yaml"
    file.write_text(file.read_text().replace("firmware: uefi", "firmware: bios"))
    rack.run("up", "--yes", str(file))
    refused = rack.run("snapshot", "restore", "--yes", real, "ci", status=5).stderr
    assert "u (its firmware was uefi then, and is bios)" in refused
    assert power(rack, real) == {"u": "on", "b": "off"}
    (row,) = rack.json("snapshot", "list", real)
    assert row["state"] == "complete"


@pytest.mark.libvirt
def test_a_daemon_killed_while_it_takes_a_snapshot_leaves_nobody_paused(
    rack: Rack, real: str
) -> None:
    rack.power(f"{real}/u", "on")
    rack.power(f"{real}/b", "on")
    for line in ("pause", "take"):
        killed_after(rack, line, "snapshot", "create", real, line)
        assert set(power(rack, real).values()) == {"on"}
        wait_for_no_half(rack, real)
        for row in rack.json("snapshot", "list", real):  # it was quicker than we
            rack.run("snapshot", "delete", real, row["name"])
        assert {state(rack, real, node) for node in ("u", "b")} == {"running"}
        assert not list(pool(rack, real).glob("*.snapshot"))
    rack.run("snapshot", "create", real, "s")
    killed_after(rack, "power off", "snapshot", "restore", "--yes", real, "s")
    assert rack.json("snapshot", "list", real)[0]["state"] in {"restoring", "complete"}
    rack.run("snapshot", "restore", "--yes", real, "s")
    assert power(rack, real) == {"u": "on", "b": "on"}


def killed_after(rack: Rack, word: str, *command: str) -> None:
    """The daemon is killed when it has told of this."""
    run = ["nospoon", *command]
    with subprocess.Popen(run, env=rack.environment, stderr=subprocess.PIPE, text=True) as client:
        assert client.stderr is not None
        next(line for line in client.stderr if word in line)
        rack.crash()
        client.communicate(timeout=240)


def wait_for_no_half(rack: Rack, name: str) -> None:
    for _ in range(50):
        if not [row for row in rack.json("snapshot", "list", name) if row["state"] != "complete"]:
            return
    raise AssertionError("the half snapshot is still there")


def state(rack: Rack, name: str, node: str) -> str:
    uuid = rack.json("node", "show", f"{name}/{node}")["uuid"]
    run = ["virsh", "-c", "qemu:///system", "domstate", uuid]
    return subprocess.run(run, text=True, capture_output=True, check=True).stdout.strip()
