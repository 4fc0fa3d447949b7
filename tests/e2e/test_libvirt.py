"""The main job on real virtual machines: libvirt, QEMU, ipmitool, the probe over the network."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from nospoon.plan.identity import bridge_name
from nospoon.testing.rack import Rack, private_rack

pytestmark = [pytest.mark.libvirt]

FLAVORS = """
networks:
  provision: {netboot: builtin}
  storage: {}
flavors:
  bios: {firmware: bios, memory: 256MiB, disks: [64MiB]}
  uefi: {firmware: uefi, memory: 320MiB, disks: [64MiB]}
  secure: {firmware: uefi-secure, memory: 320MiB, disks: [64MiB]}
  wide:
    firmware: bios
    cpus: 2
    memory: 256MiB
    disks: [64MiB, {size: 128MiB, bus: sata}]
    nics: [provision, {network: storage, model: e1000e}]
"""
SMALL = "networks: {lan: {}}\nnodes: [{count: 2, firmware: bios, memory: 64MiB, disks: [16MiB]}]\n"


def cluster(rack: Rack, body: str) -> tuple[str, str]:
    name = rack.name()
    return name, rack.file(f"cluster: {name}\n{rack.bmc()}{body}", f"{name}.yaml")


def virsh(*argv: str, check: bool = True) -> str:
    done = subprocess.run(
        ["virsh", "-c", "qemu:///system", *argv], text=True, capture_output=True, check=False
    )
    assert not check or done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout


def test_a_plan_makes_nothing_and_says_what_up_will_try(tmp_path: Path) -> None:
    with private_rack(NOSPOON_CACHE_DIR=str(tmp_path / "cache")) as rack:
        _, file = cluster(rack, SMALL)
        done = rack.run("plan", file)
        assert "Starting the daemon" in done.stderr
        assert "Starting" not in rack.run("plan", file).stderr
        assert not list((tmp_path / "cache").glob("*"))
        if Path("/dev/kvm").exists():
            assert "`up` tries KVM with a Linux guest" in done.stdout


def test_one_host_has_real_and_simulated_machines(rack: Rack) -> None:
    nodes = "{firmware: bios, memory: 64MiB, disks: [16MiB], host"
    libvirt = "hosts: {here: {libvirt: 'qemu:///system'}}\nnetworks: {lan: {}}\n"
    name, bmc = rack.name(), rack.bmc()
    alone = f"{libvirt}nodes: [{nodes}: here, name: a}}]\n"
    file = rack.file(f"cluster: {name}\n{bmc}{alone}", f"{name}.yaml")
    rack.run("up", "--yes", file)
    both = libvirt.replace("'}}", "', simulated: true}}")
    more = f"{both}nodes: [{nodes}: here, name: a}}, {nodes}: 'here:simulated', name: b}}]\n"
    rack.file(f"cluster: {name}\n{bmc}{more}", f"{name}.yaml")
    planned = rack.run("plan", file).stdout
    assert "machine b on here:simulated" in planned
    assert " a on here" not in planned, "who is there stays"
    rack.run("up", "--yes", file)
    rack.power(f"{name}/b", "on")
    listed = rack.run("node", "list", "--cluster", name).stdout
    assert [line.split()[2:4] for line in listed.splitlines()[1:]] == [
        ["here", "off"],
        ["here:simulated", "on"],
    ]
    rack.run("down", "--yes", name)
    assert name not in virsh("list", "--all", "--name")


@contextmanager
def serving(directory: Path) -> Iterator[str]:
    """An HTTP server on loopback; its URL."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(directory))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def ours(name: str) -> list[str]:
    """Everything on this machine that a cluster could have left."""
    domains = [d for d in virsh("list", "--all", "--name").split() if name in d]
    pools = [p for p in virsh("pool-list", "--all", "--name").split() if name in p]
    networks = [n for n in virsh("net-list", "--all", "--name").split() if name in n]
    return domains + pools + networks


def links() -> set[str]:
    """The network interfaces of this machine, those of other tests too."""
    argv = ["ip", "-json", "link", "show"]
    shown = subprocess.run(argv, text=True, capture_output=True, check=True).stdout
    return {link["ifname"] for link in json.loads(shown)}


def domain_of(name: str, node: str) -> str:
    return next(
        d for d in virsh("list", "--all", "--name").split() if name in d and d.endswith(node)
    )


@pytest.mark.boots
def test_three_kinds_of_servers_boot_the_probe_and_leave_nothing(rack: Rack) -> None:
    name, file = cluster(
        rack,
        FLAVORS
        + "nodes: [{flavor: bios, name: b}, {flavor: uefi, name: u}, {flavor: wide, name: w}]\n",
    )
    rack.run("up", "--yes", file)
    bmcs = rack.bmcs(name)
    for bmc in bmcs.values():
        assert "Power is off" in rack.ipmitool(bmc, "power", "status").replace("Chassis ", "")
    rows: list[dict[str, Any]] = rack.json("verify", name)
    assert {row["node"]: row["verdict"] for row in rows} == dict.fromkeys("buw", "as declared")
    assert {row["node"]: row["firmware"] for row in rows} == {"b": "bios", "u": "uefi", "w": "bios"}
    assert {row["node"]: (row["disks"], row["nics"]) for row in rows}["w"] == (2, 2)
    assert "nospoon-probe" in rack.run("node", "console", "b", "--log").stdout
    (row,) = rack.json("status")
    bridges = {bridge_name(UUID(row["id"]), network) for network in ("provision", "storage")}
    assert bridges <= links()
    assert ours(name)
    rack.run("down", "--yes", "--purge", name)
    assert ours(name) == []
    assert not bridges & links()
    assert not list((rack.directory / "pool").iterdir())
    assert not [p for p in (rack.directory / "state").rglob("*") if p.is_file() and name in str(p)]


@pytest.mark.boots
def test_secure_boot_is_really_on_and_arm_boots_too_from_a_network_that_filters(rack: Rack) -> None:
    arm = "{flavor: uefi, name: a, arch: aarch64, memory: 512MiB, tpm: true}"
    filtered = FLAVORS.replace("{netboot: builtin}", "{netboot: builtin, anti_spoofing: true}")
    name, file = cluster(rack, f"{filtered}nodes: [{{flavor: secure, name: s}}, {arm}]\n")
    rack.run("up", "--yes", file)
    rows = {row["node"]: row for row in rack.json("verify", name)}
    assert rows["s"]["firmware"] == "uefi (secure boot)"
    assert {row["verdict"] for row in rows.values()} == {"as declared"}


def test_an_edited_boot_profile_reaches_a_machine_that_starts_signed_loaders_only(
    rack: Rack,
) -> None:
    (rack.directory / "k").write_text("kernel")
    networks = "networks: {lan: {netboot: builtin}}\nboot: {p: {kernel: k, cmdline: one}}\n"
    node = "{boot: p, firmware: uefi-secure, memory: 384MiB, disks: [16MiB]}"
    _, file = cluster(rack, f"{networks}nodes: [{node}]\n")
    rack.run("up", "--yes", file)
    (written,) = (rack.directory / "state" / "netboot").rglob("grub/machines/*.cfg")
    assert "'one'" in written.read_text()
    Path(file).write_text(Path(file).read_text().replace("one", "two"))
    rack.run("up", "--yes", file)
    assert "'two'" in written.read_text()


def test_a_boot_profile_of_urls_reaches_a_machine_whose_loader_fetches_none(rack: Rack) -> None:
    (rack.directory / "served").mkdir()
    (rack.directory / "served/linux").write_text("a kernel")
    networks = "networks: {lan: {netboot: builtin}}\n"
    node = "{boot: p, firmware: uefi-secure, memory: 384MiB, disks: [16MiB]}"
    with serving(rack.directory / "served") as url:
        profile = f"boot: {{p: {{kernel: '{url}/linux'}}}}\n"
        _, file = cluster(rack, f"{networks}{profile}nodes: [{node}]\n")
        rack.run("up", "--yes", file)
    (written,) = (rack.directory / "state" / "netboot").rglob("grub/machines/*.cfg")
    (copy,) = (rack.directory / "state" / "netboot").rglob("tftp/files/*")
    assert f"/files/{copy.name}'" in written.read_text()
    assert copy.read_text() == "a kernel"


@pytest.mark.boots
def test_verify_is_red_when_a_machine_was_changed_behind_our_back(rack: Rack) -> None:
    name, file = cluster(rack, FLAVORS + "nodes: [{flavor: wide, name: w}]\n")
    rack.run("up", "--yes", file)
    domain = domain_of(name, "w")
    virsh("setvcpus", domain, "1", "--config")
    (row,) = rack.json("status", name)
    assert row["state"] == "drifted"
    assert "cpus" in row["drift"]
    red = rack.run("verify", name, "-f", "json", status=1)
    assert "cpus: declared 2, found 1" in red.stdout
    rack.run("up", "--yes", file)
    (row,) = rack.json("status", name)
    assert row["state"] == "present"


def test_a_domain_deleted_behind_our_back_is_missing_and_made_again(rack: Rack) -> None:
    name, file = cluster(rack, SMALL)
    rack.run("up", "--yes", file)
    virsh("undefine", domain_of(name, "node-1"))
    states = {row["node"]: row["state"] for row in rack.json("status", name)}
    assert states == {"node-0": "present", "node-1": "missing"}
    refused = rack.run("node", "power", "node-1", "on", status=1)
    assert "nospoon up" in refused.stderr
    rack.run("up", "--yes", file)
    assert {row["state"] for row in rack.json("status", name)} == {"present"}


def test_an_unrelated_change_disturbs_no_running_machine(rack: Rack) -> None:
    name, file = cluster(rack, SMALL)
    rack.run("up", "--yes", file)
    bmc = rack.bmcs(name)["node-0"]
    rack.ipmitool(bmc, "chassis", "bootdev", "disk", "options=persistent")
    rack.ipmitool(bmc, "chassis", "power", "on")
    rack.power(f"{name}/node-0", "on")  # it may not be done
    before = virsh("domid", domain_of(name, "node-0"))
    Path(file).write_text(Path(file).read_text().replace("count: 2", "count: 3"))
    rack.run("up", "--yes", file)
    assert virsh("domid", domain_of(name, "node-0")) == before
    assert "disk (Continuous)" in rack.json("node", "show", "node-0")["boot"]


def test_a_change_that_waits_for_power_off_is_told_until_then(rack: Rack) -> None:
    name, file = cluster(rack, SMALL)
    rack.run("up", "--yes", file)
    rack.power("node-0", "on")
    assert {row["state"] for row in rack.json("status", name)} == {"present"}
    Path(file).write_text(Path(file).read_text().replace("count: 2", "count: 2, cpus: 2"))
    told = "node-0 has to be powered off for cpus 1 -> 2"
    assert told in rack.run("up", "--yes", file).stderr
    again = rack.run("up", "--yes", file).stderr
    assert "Nothing to do" in again
    assert told in again
    rows = {row["node"]: (row["state"], row["drift"]) for row in rack.json("status", name)}
    assert rows == {"node-0": ("waiting", told), "node-1": ("present", "")}
    rack.power("node-0", "cycle")
    assert {row["state"] for row in rack.json("status", name)} == {"present"}


def test_a_daemon_killed_in_the_middle_of_up_goes_on_without_a_duplicate(rack: Rack) -> None:
    name, file = cluster(rack, SMALL.replace("count: 2", "count: 8"))
    rack.run("daemon", "start")
    rack.run("up", "--yes", "--no-wait", file)
    rack.crash()
    (killed,) = [row for row in rack.json("operation", "list") if row["cluster"] == name]
    assert killed["state"] == "interrupted"
    rack.run("up", "--yes", file)
    domains = [d for d in virsh("list", "--all", "--name").split() if name in d]
    assert len(domains) == 8
    assert rack.run("plan", "--detailed-exitcode", file).returncode == 0


def test_a_power_cut_of_the_daemon_leaves_machines_and_their_power_as_they_are(rack: Rack) -> None:
    name, file = cluster(rack, SMALL)
    rack.run("up", "--yes", file)
    rack.power("node-0", "on")
    rack.crash()
    assert rack.run("node", "power", "node-0", "status").stdout.strip() == "on"
    assert "on" in rack.ipmitool(rack.bmcs(name)["node-0"], "power", "status")


def test_the_bridge_of_somebody_else_is_left_alone(rack: Rack) -> None:
    name, file = cluster(rack, f"id: {uuid4()}\n{SMALL}")
    bridge = rack.run("plan", file).stdout.split("bridge ")[1].split()[0]
    subprocess.run(["ip", "link", "add", bridge, "type", "bridge"], check=True)
    try:
        refused = rack.run("up", "--yes", file, status=3)
        assert bridge in refused.stderr
        rack.run("down", "--yes", "--purge", name)
        shown = subprocess.run(
            ["ip", "-o", "link", "show", bridge], check=False, capture_output=True, text=True
        )
        assert bridge in shown.stdout
    finally:
        subprocess.run(["ip", "link", "delete", bridge], check=True)


def test_killed_at_some_moment_of_up_and_of_down_both_end_as_if_undisturbed(rack: Rack) -> None:
    name, file = cluster(rack, SMALL.replace("count: 2", "count: 6"))

    def defined() -> int:
        return sum(name in each for each in virsh("list", "--all", "--name").split())

    def enough(number: int) -> bool:
        return defined() >= number

    def few(number: int) -> bool:
        return defined() <= number

    rack.run("daemon", "start")
    for moment in (0, 1, 3):
        rack.run("up", "--yes", "--no-wait", file)
        wait(partial(enough, moment))
        rack.crash()
        rack.run("up", "--yes", file)
        assert defined() == 6
        assert rack.run("plan", "--detailed-exitcode", file).returncode == 0
        rack.run("down", "--yes", "--no-wait", name)
        wait(partial(few, 6 - moment))
        rack.crash()
        rack.run("down", "--yes", name)
        assert ours(name) == []
    ended = {(row["kind"], row["state"]) for row in rack.json("operation", "list")}
    assert {("up", "interrupted"), ("down", "interrupted")} <= ended


def wait(so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not so():
        assert time.monotonic() < end
        time.sleep(0.01)
