"""A container of an engine beside libvirt's networks for real: systemd, cloud-init, changes."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.docker.conftest import both_engines, cli_of, docker_engine, service_of
from tests.docker.test_machines import asked

from nospoon.clusterfile.changes import Rule, rule_of
from nospoon.clusterfile.docker import DockerSection
from nospoon.clusterfile.models import HostSection
from nospoon.testing.container_root import busybox_root, debian_root
from nospoon.testing.rack import CACHE, PATIENCE, Rack, private_rack
from nospoon.testing.trees import control_groups

pytestmark = [pytest.mark.libvirt, pytest.mark.docker]

REBOOTS = """\
#!/bin/busybox sh
trap 'echo again >/var/data/began; /bin/busybox reboot -f' PWR
export PATH=/bin
while :; do /bin/busybox sleep 1 & wait $!; done
"""
"""When it is asked to shut down."""
FILE = """\
cluster: {name}
{bmc}hosts: {{here: {{libvirt: 'qemu:///system', docker: {docker}, simulated: true}}}}
networks: {{lan: {{netboot: builtin}}}}
nodes:
- name: box
  kind: container
  host: 'here:docker'
  memory: {memory}
  disks: [{{image: root.tar.zst, size: 1GiB}}]
  nics: lan
  ssh_keys: ['{key}']
  user_data: |
    #cloud-config
    runcmd: [[sh, -c, "echo {word} >/said"]]
"""


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    with private_rack() as made:
        shutil.copy(asyncio.run(debian_root(CACHE)), made.directory / "root.tar.zst")
        made.use_own_key()
        yield made


def test_the_plan_notes_an_engine_that_cannot_limit_roots(rack: Rack, engine: Path) -> None:
    name, bmc = rack.name(), rack.bmc()
    given = {"name": name, "bmc": bmc, "memory": "512MiB", "word": ""}
    given["key"] = (rack.directory / "key.pub").read_text().strip()
    text = FILE.format(docker=f"{{socket: {engine}}}", **given)
    note = "host here:docker does not limit what its containers write to their roots"
    assert note not in rack.run("plan", rack.file(text)).stdout
    with service_of("--storage-driver", "vfs") as socket:
        shown = rack.run("plan", rack.file(text.replace(str(engine), str(socket)))).stdout
    assert f"{note}: the driver of its engine is 'vfs', and not 'overlay'" in shown


def until(condition: Callable[[], bool], what: str, seconds: float = 240) -> None:
    end = time.monotonic() + seconds * PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.3)


def initialised(rack: Rack, name: str) -> bool:
    """By ssh: of what systemd writes to the console, the getty drops lines now and then."""
    status = ["node", "exec", f"{name}/box", "-l", "debian", "--", "cloud-init", "status"]
    done = subprocess.run(
        [*rack.prefix, "nospoon", *status],
        env=rack.environment, text=True, capture_output=True, check=False,
    )  # fmt: skip
    return "status: done" in done.stdout


def left(rack: Rack, name: str) -> list[str]:
    """What of a cluster is on the host."""
    found = [str(path) for path in (rack.directory / "pool").rglob("*") if name in path.name]
    for argv in (["ip", "link"], ["findmnt", "-l"]):
        said = subprocess.run(argv, text=True, capture_output=True, check=True).stdout
        found += [line for line in said.splitlines() if name in line]
    return found


@both_engines
def test_a_container_of_an_engine_runs_systemd_and_follows_its_file(
    rack: Rack, engine: Path
) -> None:
    name, bmc = rack.name(), rack.bmc()
    key = (rack.directory / "key.pub").read_text().strip()

    def file(word: str, memory: str, socket: str = str(engine)) -> str:
        docker = f"{{socket: {socket}}}"
        text = FILE.format(name=name, bmc=bmc, docker=docker, key=key, word=word, memory=memory)
        return rack.file(text)

    def on_it(*argv: str) -> str:
        done = rack.run("node", "exec", f"{name}/box", "-l", "debian", "--", *argv)
        return done.stdout.strip()

    rack.run("up", "--yes", file("first", "512MiB"))
    until(lambda: initialised(rack, name), "cloud-init done")
    until(lambda: "login:" in rack.run("node", "console", "--log", f"{name}/box").stdout, "login")
    assert on_it("cat", "/said") == "first"
    mac = rack.json("node", "show", f"{name}/box")["nics"][0].split()[0]
    assert on_it("cat", "/proc/1/comm", "/sys/class/net/eth0/address") == f"systemd\n{mac}"
    assert on_it("systemctl", "is-system-running", "--wait") == "running"
    assert on_it("hostname", "-s") == "box"
    assert "Nothing to do" in rack.run("up", "--yes", file("first", "512MiB")).stderr

    rack.run("node", "power", f"{name}/box", "soft")
    until(lambda: rack.json("node", "show", f"{name}/box")["power"] == "off", "shut down")
    rack.run("up", "--yes", file("first", "640MiB"))

    assert rule_of(DockerSection, "new_privileges") is Rule.NEW_NODES
    mine = file("first", "640MiB", f"{engine}, new_privileges: true")
    assert rack.json("plan", mine)["steps"] == []

    assert rule_of(DockerSection, "socket") is Rule.REFUSED
    another = rack.directory / f"{name}.sock"
    another.symlink_to(engine)
    moved = file("first", "640MiB", str(another))
    refused = rack.run("plan", moved, status=1).stderr
    assert "there is still what is the cluster's" in refused
    assert rule_of(HostSection, "docker") is Rule.NODES
    text = Path(file("first", "640MiB")).read_text()
    without = text.replace(f", docker: {{socket: {engine}}}", "")
    without = without.replace("  host: 'here:docker'\n", "")
    plan = rack.run("plan", rack.file(without)).stdout
    assert "here:simulated" in plan
    assert "here:docker" in plan

    rack.run("down", "--yes", name)
    assert left(rack, name) == []


@docker_engine
def test_a_rollback_brings_back_the_root_and_a_volume_outlives_both(
    rack: Rack, engine: Path
) -> None:
    """On a bridge where another container of the cluster answers, also after a reboot."""
    name, bmc = rack.name(), rack.bmc()

    def file(version: str) -> str:
        (rack.directory / "upgraded.tar").write_bytes(busybox_root(init=f"{REBOOTS}# {version}\n"))
        disks = "disks: [{image: upgraded.tar, size: 16MiB}, {size: 8MiB, mount: /var/data}]"
        box = f"kind: container, host: 'here:docker', memory: 32MiB, {disks}"
        text = (
            f"cluster: {name}\n{bmc}"
            f"hosts: {{here: {{libvirt: 'qemu:///system', docker: {{socket: {engine}}}}}}}\n"
            "networks: {lan: {}}\nnodes:\n"
            f"- {{name: box, {box}, nics: lan}}\n"
            f"- {{name: other, {box}, nics: lan}}\n"
        )
        return rack.file(text, f"{name}.yaml")

    def ran(script: str, node: str = "box") -> str:
        listed = asked(engine, "ps", "--format={{.Names}}").split()
        running = [each for each in listed if f"{name}-" in each and f".{node}-" in each]
        argv = [*cli_of(engine), "exec", *running, "/bin/busybox", "sh", "-c", script]
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()

    def reaches() -> bool:
        for node, address in (("box", 11), ("other", 12)):
            given = f"ip address add 192.0.2.{address}/24 dev eth0; ip link set eth0 up"
            ran(f"/bin/busybox {given.replace('; ', '; /bin/busybox ')}", node)
        return "1 packets received" in ran("/bin/busybox ping -c 1 -W 2 192.0.2.12")

    rack.run("up", "--yes", file("one"))
    ran("echo root >/kept; echo volume >/var/data/kept")
    until(reaches, "the other one answers")
    rack.run("node", "power", f"{name}/box", "soft")
    until(lambda: ran("/bin/busybox cat /var/data/began /kept") == "again\nroot", "it reboots")
    until(reaches, "the other one answers")
    rack.run("up", "--yes", file("two"))
    assert (
        ran("/bin/busybox tail -n 1 /sbin/init; /bin/busybox cat /kept /var/data/kept")
        == "# two\nvolume"
    )
    assert "returns to the root" in rack.run("up", "--yes", file("one")).stderr
    assert (
        ran("/bin/busybox tail -n 1 /sbin/init; /bin/busybox cat /kept /var/data/kept")
        == "# one\nroot\nvolume"
    )
    made = asked(engine, "ps", "-aq", "--no-trunc").split()
    assert any(control_groups(each) for each in made)
    rack.run("down", "--yes", "--purge", name)
    assert left(rack, name) == []
    assert asked(engine, "ps", "-aq") == asked(engine, "images", "-q") == ""
    assert [group for each in made for group in control_groups(each)] == []
