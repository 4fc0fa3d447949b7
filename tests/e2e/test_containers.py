"""Containers beside bare metal for real: systemd, cloud-init, ssh, changes, and nothing left."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from tests.docker.conftest import cli_of, engine  # noqa: F401  (a fixture)
from tests.docker.test_machines import asked

from nospoon.clusterfile.changes import Rule, rule_of
from nospoon.clusterfile.hardware import DiskSection
from nospoon.clusterfile.lxc import LxcSection
from nospoon.clusterfile.models import HostSection
from nospoon.providers import openvswitch
from nospoon.providers.openvswitch import Plugged
from nospoon.runtime.runner import LocalRunner
from nospoon.testing.container_root import INIT, busybox_root, debian_root
from nospoon.testing.rack import CACHE, PATIENCE, Rack, private_rack
from nospoon.testing.trees import control_groups

pytestmark = [pytest.mark.libvirt, pytest.mark.lxc]

UNIFIED = """
case $(stat -f -c %T /sys/fs/cgroup) in
  cgroup2fs) ;;
  *) umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup ;;
esac && exec "$@"
"""
PAGE = "/srv/web/index.html"
FILE = """\
cluster: {name}
{bmc}hosts: {{here: {{libvirt: 'qemu:///system', lxc: true}}}}
networks: {{lan: {{netboot: builtin}}}}
nodes:
- {{name: metal, memory: 512MiB, disks: [1GiB], nics: lan}}
- name: box
  kind: container
  memory: {memory}
  disks: [{{image: root.tar.zst, size: 1GiB}}]
  nics: lan
  ssh_keys: ['{key}']
  user_data: |
    #cloud-config
    disable_root: false
    runcmd: [[sh, -c, "echo {word} >/root/said"]]
    write_files:
    - path: /etc/systemd/system/sleeper.service
      content: "[Service]\\nExecStart=/bin/sleep infinity\\n"
services:
  login: {{nodes: box, unit: ssh, health: {{port: 22, timeout: {seconds}s}}}}
  sleeper: {{nodes: box, after: login, environment: {{WORD: 'a "{word}" $HOME', MORE: x}}}}
"""


ROLE = """\
#!/bin/sh -e
mkdir -p /srv/web
echo "$PAGE of {version}" >>/srv/web/index.html
cat >/etc/systemd/system/web.service <<END
[Service]
ExecStart=/usr/bin/python3 -m http.server 8080 --directory /srv/web
[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload
systemctl enable web.service
echo "set up by $(id -un)"
{ends}
"""

SERVES = """\
#!/bin/busybox sh
case "$1" in
  bound|renew) exec /bin/busybox ip addr replace "$ip/$mask" dev "$interface" ;;
  deconfig|leasefail|nak) exit ;;
esac
read -r now rest </proc/uptime; echo "$now" >/started
trap 'exit 0' PWR
/bin/busybox ip link set lo up
/bin/busybox ip link set eth0 up
/bin/busybox udhcpc -i eth0 -s /sbin/init -b
/bin/busybox sleep 2
for port in 80 81; do /bin/busybox httpd -p $port -h /etc; done
read -r now rest </proc/uptime; echo "$now" >/serves
while :; do /bin/busybox sleep 1 & wait $!; done
"""
"""An init that serves ports 80 and 81 at the address that DHCP gives, some seconds after it began.
"""


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    with private_rack() as made:
        prepare(made)
        yield made


@pytest.fixture
def unified() -> Iterator[Rack]:
    """A daemon that sees control groups of version 2 alone."""
    with private_rack() as made:
        prepare(made)
        made.prefix = ["unshare", "--mount", "sh", "-c", UNIFIED, "sh"]
        yield made


def prepare(rack: Rack) -> None:
    """An image of Debian, and a key for ssh."""
    shutil.copy(asyncio.run(debian_root(CACHE)), rack.directory / "root.tar.zst")
    rack.use_own_key()


def written(
    rack: Rack, name: str, bmc: str, word: str, *, memory: str = "512MiB", more: str = ""
) -> str:
    key = (rack.directory / "key.pub").read_text().strip()
    text = FILE.format(
        name=name, bmc=bmc, key=key, word=word, memory=memory, seconds=round(120 * PATIENCE)
    )
    return rack.file(text + more)


def role(rack: Rack, version: str, ends: str = "") -> str:
    """A script that makes a web server of a plain root, as a part of a file."""
    (rack.directory / f"{version}.sh").write_text(ROLE.format(version=version, ends=ends))
    timeout = f"timeout: {round(120 * PATIENCE)}s"
    return (
        f"  web: {{nodes: box, after: sleeper, role: {version}.sh, environment: {{PAGE: a page}},\n"
        f"    health: {{port: 8080, path: /, {timeout}}}}}\n"
    )


def until(condition: Callable[[], bool], what: str, seconds: float = 240) -> None:
    end = time.monotonic() + seconds * PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.3)


def attached(rack: Rack, name: str, node: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """By liblxc itself, without nospoon."""
    (where,) = (rack.directory / "pool" / "lxc").glob(f"nospoon-{name}-*/*-{node}")
    return subprocess.run(
        ["lxc-attach", "-P", str(where.parent), "-n", where.name, "--clear-env", "--", *argv],
        text=True, capture_output=True, check=False, timeout=60 * PATIENCE,
    )  # fmt: skip


def inside(rack: Rack, name: str, *argv: str) -> str:
    return attached(rack, name, "box", *argv).stdout.strip()


def power(rack: Rack, name: str) -> str:
    return str(rack.json("node", "show", f"{name}/box")["power"])


def initialised(rack: Rack, name: str, word: str) -> Callable[[], bool]:
    def done() -> bool:
        return (
            "done" in inside(rack, name, "cloud-init", "status")
            and inside(rack, name, "cat", "/root/said") == word
        )

    return done


def environment(rack: Rack, name: str) -> dict[str, str]:
    """What the file gave to the process of the unit."""
    main = inside(rack, name, "systemctl", "show", "-P", "MainPID", "sleeper")
    given = attached(rack, name, "box", "cat", f"/proc/{main}/environ").stdout.split("\0")
    pairs = dict(each.partition("=")[::2] for each in given if each)
    return {key: pairs[key] for key in ("MORE", "WORD") if key in pairs}


def left(rack: Rack, name: str) -> list[str]:
    """What of a cluster is on the host."""
    found = [str(path) for path in (rack.directory / "pool").rglob("*") if name in path.name]
    found += [each.name for each in control_groups(name) if each.name.startswith("lxc.")]
    for argv in (["losetup", "-a"], ["ip", "link"], ["findmnt", "-l"]):
        said = subprocess.run(argv, text=True, capture_output=True, check=True).stdout
        found += [line for line in said.splitlines() if name in line]
    return found


def test_a_container_runs_systemd_beside_bare_metal_and_leaves_nothing(rack: Rack) -> None:
    name, bmc = rack.name(), rack.bmc()
    file = written(rack, name, bmc, "first", more=role(rack, "one"))
    rack.run("up", "--yes", file)
    rows = rack.json("service", "list")
    seen = [(row["service"], row["node"], row["power"], row["health"]) for row in rows]
    assert seen == [
        ("login", "box", "on", "healthy"), ("sleeper", "box", "on", ""),
        ("web", "box", "on", "healthy"),
    ]  # fmt: skip
    assert inside(rack, name, "cat", PAGE) == "a page of one"
    assert "set up by root" in rack.run("service", "logs", "web", "-l", "root").stdout
    until(initialised(rack, name, "first"), "cloud-init done")
    assert environment(rack, name) == {"MORE": "x", "WORD": 'a "first" $HOME'}
    before = inside(rack, name, "systemctl", "show", "-P", "MainPID", "ssh")
    rack.run("service", "restart", "login", "-l", "root")
    assert inside(rack, name, "systemctl", "show", "-P", "MainPID", "ssh") not in ("0", before)
    assert "Server listening on" in rack.run("service", "logs", "login", "-l", "root").stdout
    state = inside(rack, name, "systemctl", "is-system-running", "--wait")
    assert state == "running", inside(rack, name, "systemctl", "--failed", "--no-legend")
    told = ("hostname", "-s"), ("cat", "/proc/1/comm"), ("cat", "/sys/class/net/eth0/address")
    said = [rack.run("node", "exec", f"{name}/box", "-l", "debian", "--", *argv) for argv in told]
    shown = rack.json("node", "show", f"{name}/box")
    (disk,) = shown["disks"]
    assert disk.startswith("box-")
    assert disk.endswith(" (root file system)")
    mac = shown["nics"][0].split()[0]
    assert [each.stdout.strip() for each in said] == ["box", "systemd", mac]
    logs = rack.run("node", "logs", f"{name}/box", "-l", "debian", "-u", "ssh.service").stdout
    assert "Server listening on" in logs, logs
    assert "Nothing to do" in rack.run("up", "--yes", file).stderr
    assert "login:" in rack.run("node", "console", "--log", f"{name}/box").stdout

    rack.run("node", "power", f"{name}/box", "soft")
    until(lambda: power(rack, name) == "off", "shut down by its guest")
    assert not any("cgroup" in each for each in left(rack, name))

    def second(role: str) -> str:
        return written(rack, name, bmc, "second", memory="640MiB", more=role)

    file = second(role(rack, "one"))
    rack.run("up", "--yes", file)
    rack.power(f"{name}/box", "on")
    until(initialised(rack, name, "second"), "cloud-init again")
    assert environment(rack, name)["WORD"] == 'a "second" $HOME'
    assert inside(rack, name, "cat", PAGE) == "a page of one", "it ran once on this root"

    shows = rack.run("service", "upgrade", "web", second(role(rack, "two")), "--yes").stderr
    assert "is kept: with its image and roles in the file again, `up` returns to it" in shows
    assert inside(rack, name, "cat", PAGE) == "a page of two", "on a new root"
    shows = rack.run("up", "--yes", second(role(rack, "three", "exit 7")), status=3).stderr
    assert (
        "service web is not healthy: node box: its role ended with exit status 7; "
        "`nospoon service logs web --node box` shows its role"
    ) in shows
    until(lambda: "error" in inside(rack, name, "cloud-init", "status"), "cloud-init has failed")
    file = second(role(rack, "two"))
    rack.run("service", "rollback", "web", file, "--yes")
    assert inside(rack, name, "cat", PAGE) == "a page of two", "with all that was on it"
    assert "Nothing to do" in rack.run("up", "--yes", file).stderr

    rack.run("down", "--yes", name)
    assert left(rack, name) == []


def test_systemd_runs_where_control_groups_are_of_version_2_alone(unified: Rack) -> None:
    """Without limits: controllers that this kernel has in version 1 are not in version 2."""
    name = unified.name()
    unified.run("up", "--yes", written(unified, name, unified.bmc(), "said"))

    def on_it(*argv: str) -> str:
        line = ["node", "exec", f"{name}/box", "-l", "debian", "--", *argv]
        return unified.run(*line).stdout.strip()

    assert on_it("systemctl", "is-system-running", "--wait") == "running"
    assert on_it("cloud-init", "status", "--wait").endswith("status: done")
    assert on_it("stat", "-f", "-c", "%T", "/sys/fs/cgroup") == "cgroup2fs"
    assert on_it("cat", "/proc/1/cgroup").splitlines()[-1] == "0::/init.scope"
    unified.run("node", "power", f"{name}/box", "soft")
    until(lambda: power(unified, name) == "off", "shut down by its guest")
    unified.run("down", "--yes", name)
    assert left(unified, name) == []


def test_a_link_that_another_program_unplugged_is_plugged_in_again(rack: Rack) -> None:
    name = rack.name()
    (rack.directory / "busybox.tar").write_bytes(busybox_root())
    box = "kind: container, memory: 32MiB, disks: [{image: busybox.tar, size: 16MiB}]"
    file = rack.file(
        f"cluster: {name}\n{rack.bmc()}hosts: {{here: {{libvirt: 'qemu:///system', lxc: true}}}}\n"
        f"networks: {{lan: {{netboot: builtin}}}}\nnodes: [{{name: box, {box}, nics: lan}}]\n",
        f"{name}.yaml",
    )
    rack.run("up", "--yes", file)
    (port,) = rack.json("node", "show", f"{name}/box")["ports"]
    link = port["local_link_connection"]
    subprocess.run(["ip", "link", "set", "dev", link["port_id"], "nomaster"], check=True)
    (step,) = rack.json("plan", file)["steps"]
    assert (step["kind"], step["action"], step["at_power_off"]) == ("machine", "change", False)
    rack.run("up", "--yes", file)
    done = subprocess.run(
        ["ip", "link", "show", "dev", link["port_id"]], text=True, capture_output=True, check=True
    )
    assert f"master {link['switch_info']}" in done.stdout
    assert "Nothing to do" in rack.run("up", "--yes", file).stderr
    rack.run("down", "--yes", name)


@pytest.fixture
def switch() -> Iterator[str]:
    """A bridge of Open vSwitch on the userspace datapath, which needs no kernel module."""
    name = f"nst{uuid4().hex[:8]}"
    vsctl("add-br", name, "--", "set", "bridge", name, "datapath_type=netdev")
    yield name
    vsctl("del-br", name)


def vsctl(*argv: str) -> str:
    argv = ("ovs-vsctl", "--timeout=60", *argv)
    return subprocess.run(argv, text=True, capture_output=True, check=True).stdout.strip()


def plugged(switch: str) -> dict[str, Plugged]:
    seen = asyncio.run(openvswitch.look(LocalRunner())).ports
    return {port: each for port, each in seen.items() if each.bridge == switch and port != switch}


def test_a_port_of_open_vswitch_that_another_program_changed_is_drift(
    rack: Rack, switch: str
) -> None:
    """It was removed, or given other VLANs."""
    name = rack.name()
    (rack.directory / "busybox.tar").write_bytes(busybox_root())
    on = f"bridge: {switch}, switch: ovs"
    box = "kind: container, memory: 32MiB, disks: [{image: busybox.tar, size: 16MiB}]"
    file = rack.file(
        f"cluster: {name}\nhosts: {{here: {{libvirt: 'qemu:///system', lxc: true}}}}\n"
        f"networks:\n  one: {{{on}, vlan: 100}}\n  all: {{{on}}}\n"
        f"  native: {{{on}, vlan: 6}}\nnodes:\n"
        f"- {{name: box, {box}, nics: [one, {{network: all, trunk: [7, 8]}},"
        " {network: native, trunk: [7]}]}\n",
        f"{name}.yaml",
    )
    rack.run("up", "--yes", file)
    before = plugged(switch)
    assert "Nothing to do" in rack.run("up", "--yes", file).stderr
    access, trunk, native = sorted(before)
    vsctl("set", "port", access, "tag=200")
    vsctl("del-port", trunk)
    vsctl("clear", "port", native, "vlan_mode")
    (step,) = rack.json("plan", file)["steps"]
    assert (step["kind"], step["action"], step["at_power_off"]) == ("machine", "change", False)
    rack.run("up", "--yes", file)
    assert plugged(switch) == before
    assert "Nothing to do" in rack.run("up", "--yes", file).stderr
    rack.run("down", "--yes", name)


def test_containers_of_one_vlan_reach_one_another_and_no_other_vlan(
    rack: Rack,
    switch: str,
    engine: Path,  # noqa: F811
) -> None:
    """Of liblxc (a, b, c) and of an engine (d, e)."""
    name, busybox = rack.name(), "/bin/busybox"
    (rack.directory / "busybox.tar").write_bytes(busybox_root())
    lans = "".join(
        f"  lan{vlan}: {{bridge: {switch}, switch: ovs, vlan: {vlan}}}\n" for vlan in (100, 200)
    )
    box = "kind: container, memory: 32MiB, disks: [{image: busybox.tar, size: 16MiB}]"
    vlans = {"a": 100, "b": 100, "c": 200, "d": 100, "e": 200}
    nodes = "".join(
        f"- {{name: {node}, {box}, nics: [lan{vlan}],"
        f" host: 'here:{'docker' if node in 'de' else 'lxc'}'}}\n"
        for node, vlan in vlans.items()
    )
    connections = f"libvirt: 'qemu:///system', lxc: true, docker: {{socket: {engine}}}"
    hosts = f"hosts: {{here: {{{connections}}}}}\n"
    file = rack.file(f"cluster: {name}\n{hosts}networks:\n{lans}nodes:\n{nodes}", f"{name}.yaml")
    rack.run("up", "--yes", file)

    def ran(node: str, *argv: str) -> subprocess.CompletedProcess[str]:
        if node not in "de":
            return attached(rack, name, node, busybox, *argv)
        listed = asked(engine, "ps", "--format={{.Names}}").split()
        (there,) = (each for each in listed if f".{node}-" in each)
        line = [*cli_of(engine), "exec", there, busybox, *argv]
        return subprocess.run(line, text=True, capture_output=True, check=False, timeout=60)

    for number, node in enumerate(vlans, 1):
        for argv in (
            ["addr", "add", f"10.91.7.{number}/24", "dev", "eth0"],
            ["link", "set", "eth0", "up"],
        ):
            done = ran(node, "ip", *argv)
            assert done.returncode == 0, done.stderr

    def reaches(node: str, number: int) -> bool:
        return ran(node, "ping", "-c", "1", "-W", "2", f"10.91.7.{number}").returncode == 0

    def reached(pairs: Sequence[tuple[str, int]]) -> list[bool]:
        """At the same time: one that is not reached is waited for."""
        with ThreadPoolExecutor() as pool:
            return [*pool.map(lambda pair: reaches(*pair), pairs)]

    together = [("a", 2), ("a", 4), ("d", 1), ("d", 2), ("e", 3)]
    until(lambda: all(reached(together)), "answers in each VLAN")
    assert not any(reached([("a", 3), ("a", 5), ("d", 3), ("d", 5)]))
    assert all(reached(together))
    ports = vsctl("list-ports", switch).split()
    assert [vsctl("get", "port", port, "tag") for port in ports].count("100") == 3
    made = asked(engine, "ps", "-aq", "--no-trunc").split()
    assert all(control_groups(each) for each in made)
    rack.run("down", "--yes", name)
    assert vsctl("list-ports", switch) == ""
    assert left(rack, name) == []
    assert asked(engine, "ps", "-aq") == asked(engine, "images", "-q") == ""
    assert [group for each in made for group in control_groups(each)] == []


def test_changes_of_the_connection_follow_their_rules(rack: Rack) -> None:
    """Without it its nodes go elsewhere; other ids are for roots that are made then."""
    name, bmc = rack.name(), rack.bmc()
    (rack.directory / "busybox.tar").write_bytes(busybox_root())

    def file(lxc: str) -> str:
        box = "kind: container, memory: 32MiB, disks: [{image: busybox.tar, size: 16MiB}]"
        where = ", host: 'here:lxc'" if lxc else ""
        text = (
            f"cluster: {name}\n{bmc}"
            f"hosts: {{here: {{libvirt: 'qemu:///system'{lxc}, simulated: true}}}}\n"
            f"networks: {{lan: {{}}}}\nnodes: [{{name: n, {box}, nics: lan{where}}}]\n"
        )
        return rack.file(text, f"{name}.yaml")

    def has_flag(flag: str) -> Callable[[], bool]:
        argv = ("/bin/busybox", "cat", "/proc/1/status")
        return lambda: f"NoNewPrivs:\t{flag}\n" in attached(rack, name, "n", *argv).stdout

    rack.run("up", "--yes", file(", lxc: true"))
    reserved = next(
        line.partition(":")[2]
        for line in Path("/etc/subuid").read_text().splitlines()
        if line.startswith("root:")
    )
    assert rule_of(LxcSection, "idmap") is Rule.NEW_NODES
    assert rack.json("plan", file(f", lxc: {{idmap: '{reserved}'}}"))["steps"] == []
    rack.run("up", "--yes", file(f", lxc: {{idmap: '{reserved}'}}"))
    rack.power(f"{name}/n", "cycle")
    assert rule_of(LxcSection, "new_privileges") is Rule.AT_POWER_OFF
    for new, flag in (("false", "1"), ("true", "0")):
        changed = file(f", lxc: {{idmap: '{reserved}', new_privileges: {new}}}")
        assert rack.json("plan", changed)["steps"] == []
        rack.run("up", "--yes", changed)
        rack.power(f"{name}/n", "cycle")
        until(has_flag(flag), "its init runs by the new setting")
    assert rule_of(HostSection, "lxc") is Rule.NODES
    without = rack.run("plan", file("")).stdout
    assert "here:simulated" in without
    assert "here:lxc" in without
    rack.run("down", "--yes", name)


def test_a_rollback_brings_a_container_back_with_all_that_was_on_its_root(rack: Rack) -> None:
    """Also when the daemon is killed between the former root and the next."""
    name, bmc = rack.name(), rack.bmc()
    image = rack.directory / "upgraded.tar"

    def file(version: str) -> str:
        image.write_bytes(busybox_root(init=f"{INIT}# {version}\n"))
        box = "kind: container, memory: 32MiB, disks: [{image: upgraded.tar, size: 16MiB}]"
        text = (
            f"cluster: {name}\n{bmc}"
            "hosts: {here: {libvirt: 'qemu:///system', lxc: true}}\n"
            f"networks: {{lan: {{}}}}\nnodes: [{{name: box, {box}, nics: lan}}]\n"
        )
        return rack.file(text, f"{name}.yaml")

    def ran(*argv: str) -> str:
        return inside(rack, name, "/bin/busybox", *argv)

    rack.run("up", "--yes", file("one"))
    ran("sh", "-c", "echo kept >/data")
    assert ran("cat", "/data") == "kept"
    broken = subprocess.Popen(
        ["nospoon", "up", "--yes", file("two")], env=rack.environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    pool = rack.directory / "pool"
    until(lambda: "box-1000" in str([*os.walk(pool)]), "another root")
    rack.crash()
    broken.wait(60)
    rack.run("up", "--yes", file("two"))
    assert "# two" in ran("tail", "-n", "1", "/sbin/init")
    assert ran("cat", "/data") == ""
    assert "returns to the root" in rack.run("up", "--yes", file("one")).stderr
    assert "# one" in ran("tail", "-n", "1", "/sbin/init")
    assert ran("cat", "/data") == "kept"
    rack.run("down", "--yes", "--purge", name)
    assert left(rack, name) == []


def test_a_volume_outlives_the_roots_of_its_container_and_moves_at_power_off(rack: Rack) -> None:
    name, bmc = rack.name(), rack.bmc()

    def file(version: str, place: str, size: str = "8MiB") -> str:
        (rack.directory / "data.tar").write_bytes(busybox_root(init=f"{INIT}# {version}\n"))
        disks = f"[{{image: data.tar, size: 16MiB}}, {{size: {size}, mount: {place}}}]"
        text = (
            f"cluster: {name}\n{bmc}"
            "hosts: {here: {libvirt: 'qemu:///system', lxc: true}}\nnetworks: {lan: {}}\n"
            f"nodes: [{{name: box, kind: container, memory: 32MiB, disks: {disks}}}]\n"
        )
        return rack.file(text, f"{name}.yaml")

    def ran(*argv: str) -> str:
        return inside(rack, name, "/bin/busybox", *argv)

    rack.run("up", "--yes", file("one", "/srv"))
    ran("sh", "-c", "echo kept >/srv/data")
    said = rack.run("up", "--yes", file("two", "/srv")).stderr
    assert "volume box-1 " not in said, "it is not touched"
    assert "# two" in ran("tail", "-n", "1", "/sbin/init")
    assert ran("cat", "/srv/data") == "kept"
    assert rule_of(DiskSection, "mount") is Rule.AT_POWER_OFF
    planned = rack.run("plan", file("two", "/opt/more", "12MiB"))
    assert "box-1 at /srv" in planned.stdout
    assert "box-1 at /opt/more" in planned.stdout
    assert "at power-off" in planned.stdout
    rack.run("up", "--yes", file("two", "/opt/more", "12MiB"))
    assert ran("cat", "/srv/data") == "kept"
    rack.run("node", "power", f"{name}/box", "cycle")
    until(lambda: ran("cat", "/opt/more/data") == "kept", "it runs again")
    assert int(ran("df", "-k", "/opt/more").splitlines()[-1].split()[1]) > 8 << 10
    assert "Nothing to do" in rack.run("plan", file("two", "/opt/more", "12MiB")).stdout
    rack.run("down", "--yes", "--purge", name)
    assert left(rack, name) == []


def test_services_begin_in_order_on_nodes_of_their_own_and_are_combined_then(rack: Rack) -> None:
    name, bmc = rack.name(), rack.bmc()
    for version in ("one", "two"):
        root = busybox_root(init=f"{SERVES}# {version}\n")
        (rack.directory / f"serves-{version}.tar").write_bytes(root)

    def file(services: str) -> str:
        text = (
            f"cluster: {name}\n{bmc}hosts: {{here: {{libvirt: 'qemu:///system', lxc: true}}}}\n"
            "networks: {lan: {netboot: builtin}}\n"
            "flavors: {small: {kind: container, memory: 32MiB}}\n"
            f"services:\n{services}"
        )
        return rack.file(text, f"{name}.yaml")

    def own(version: str) -> str:
        return file(
            "  db: {image: serves-one.tar, memory: 32MiB, networks: lan, health: 80}\n"
            f"  keystone: {{image: serves-{version}.tar, flavor: small, after: db, health: 81,\n"
            "    volumes: [{size: 8MiB, mount: /srv}]}\n"
        )

    def listed() -> list[tuple[object, ...]]:
        rows = rack.json("service", "list", "--cluster", name)
        return [(row["service"], row["node"], row["kind"], row["health"]) for row in rows]

    def ran(node: str, *argv: str) -> str:
        return attached(rack, name, node, "/bin/busybox", *argv).stdout.strip()

    rack.run("up", "--yes", own("one"))
    assert listed() == [
        ("db", "db", "container", "healthy"),
        ("keystone", "keystone", "container", "healthy"),
    ]
    assert float(ran("keystone", "cat", "/started")) >= float(ran("db", "cat", "/serves"))
    assert "Nothing to do" in rack.run("up", "--yes", own("one")).stderr

    ran("keystone", "sh", "-c", "echo kept >/srv/data")
    rack.run("service", "upgrade", "keystone", own("two"), "--yes")
    assert ran("keystone", "tail", "-n", "1", "/sbin/init") == "# two"
    rack.run("service", "rollback", "keystone", own("one"), "--yes")
    assert ran("keystone", "tail", "-n", "1", "/sbin/init") == "# one"
    assert ran("keystone", "cat", "/srv/data") == "kept"

    together = file(
        "  control: {combine: [db, keystone], flavor: small, image: serves-two.tar}\n"
        "  db: {health: 80}\n  keystone: {after: db, health: 81}\n"
    )
    steps = rack.json("plan", together)["steps"]
    machines = {(each["action"], each["node"]) for each in steps if each["kind"] == "machine"}
    assert machines == {("create", "control"), ("delete", "db"), ("delete", "keystone")}
    rack.run("up", "--yes", together)
    assert listed() == [
        ("db", "control", "container", "healthy"),
        ("keystone", "control", "container", "healthy"),
    ]
    rack.run("up", "--yes", own("one"))
    assert {row[1] for row in listed()} == {"db", "keystone"}
    rack.run("down", "--yes", "--purge", name)
    assert left(rack, name) == []


def test_killed_at_some_moment_of_up_and_of_down_containers_end_as_if_undisturbed(
    rack: Rack,
) -> None:
    name = rack.name()
    (rack.directory / "busybox.tar").write_bytes(busybox_root())
    box = "kind: container, memory: 32MiB, disks: [{image: busybox.tar, size: 16MiB}]"
    file = rack.file(
        f"cluster: {name}\n{rack.bmc()}hosts: {{here: {{libvirt: 'qemu:///system', lxc: true}}}}\n"
        f"networks: {{lan: {{}}}}\nnodes: [{{name: 'box-{{n}}', count: 4, {box}, nics: lan}}]\n",
        f"{name}.yaml",
    )

    def made() -> int:
        pools = rack.directory / "pool" / "lxc"
        return len(list(pools.glob(f"nospoon-{name}-*/{name}-*/machine.json")))

    rack.run("daemon", "start")
    for moment in (0, 1, 4):
        rack.run("up", "--yes", "--no-wait", file)
        until(lambda: made() >= moment, f"{moment} containers")  # noqa: B023  (called at once)
        rack.crash()
        again = rack.run("up", "--yes", file)
        assert made() == 4
        nodes = [row for row in rack.json("node", "list") if row["cluster"] == name]
        assert [row["power"] for row in nodes] == ["on"] * 4, (moment, again.stderr)
        assert rack.run("plan", "--detailed-exitcode", file).returncode == 0
        rack.run("down", "--yes", "--no-wait", name)
        until(lambda: made() <= 4 - moment, "containers gone")  # noqa: B023  (called at once)
        rack.crash()
        rack.run("down", "--yes", name)
        assert left(rack, name) == []
