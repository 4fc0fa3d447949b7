"""`host setup` prepares hosts over ssh by Ansible, once; `--undo` puts back what it changed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.fleet.conftest import FarHost, Farm

pytestmark = [pytest.mark.libvirt, pytest.mark.timeout(300)]

UPLINK = "trunk0"
BRIDGE = f"nsbr-{UPLINK}"
NODES = "networks: {lan: {physnet: public}}\nnodes: [{firmware: bios, memory: 64MiB, nics: [lan]}]"


def link_of(host: FarHost, name: str) -> dict[str, Any]:
    """What ip(8) tells of a link, {} when there is none."""
    told = json.loads(host.run("ip", "-json", "-details", "link", "show"))
    return next((each for each in told if each["ifname"] == name), {})


def a_file(farm: Farm, host: FarHost) -> str:
    name = farm.rack.name()
    uri = f"qemu+ssh://{host.name}/system"
    mapped = f"{{ssh: {host.name}, libvirt: '{uri}', physnets: {{public: {UPLINK}}}}}"
    text = f"cluster: {name}\n{farm.rack.bmc()}hosts: {{{host.name}: {mapped}}}\n{NODES}\n"
    return farm.rack.file(text, f"{name}.yaml")


def test_a_bare_host_is_prepared_used_and_put_back(farm: Farm) -> None:
    rack, host = farm.rack, farm.hosts["rack-b"]
    host.run("ip", "link", "add", UPLINK, "mtu", "1400", "type", "veth")
    host.stop()
    file = a_file(farm, host)
    try:
        prepared = rack.json("host", "setup", file)
        assert prepared[0]["changed"] > 3
        assert prepared[0]["failed"] == prepared[0]["unreachable"] == 0
        assert link_of(host, UPLINK)["master"] == BRIDGE
        assert link_of(host, BRIDGE)["mtu"] == 1400
        assert rack.json("host", "setup", file)[0]["changed"] == 0, "a second run changes nothing"
        rack.run("host", "check", file)
        rack.run("up", "--yes", file)
        assert f"<source bridge='{BRIDGE}'/>" in domains(host)
        rack.power("node-0", "on")
        in_use = rack.run("host", "setup", "--undo", file, status=1).stderr
        assert "in use there: take their clusters down first" in in_use
        assert link_of(host, UPLINK)["master"] == BRIDGE
        rack.down()
        assert "virtlogd-sock" in host.run("ss", "-Hlx"), "its owner is the same as before"
        undone = rack.json("host", "setup", "--undo", file)
        assert "virtlogd-sock" in host.run("ss", "-Hlx"), "who ran before runs still"
        assert undone[0]["failed"] == 0
        assert not link_of(host, BRIDGE)
        assert "master" not in link_of(host, UPLINK)
        assert "UP" not in link_of(host, UPLINK)["flags"], "it was down"
        assert "ls: cannot" not in host.run("ls", "/var/lib/nospoon")
    finally:
        host.run("ip", "link", "delete", UPLINK)
        host.start()


def domains(host: FarHost) -> str:
    names = host.run("virsh", "list", "--all", "--name").split()
    return "".join(host.run("virsh", "dumpxml", name) for name in names)


LIMITS = {
    "net.ipv4.neigh.default.gc_thresh2": ("512", "32768"),
    "net.ipv4.neigh.default.gc_thresh3": ("1024", "65536"),
    "net.ipv6.neigh.default.gc_thresh2": ("70000", "70000"),
    "net.ipv6.neigh.default.gc_thresh3": ("80000", "80000"),
    "fs.inotify.max_user_instances": ("128", "1048576"),
    "fs.inotify.max_user_watches": ("65536", "2147483647"),
    "net.netfilter.nf_conntrack_max": ("262144", "1048576"),
    "net.ipv4.ipfrag_high_thresh": ("4194304", "268435456"),
    "net.ipv6.ip6frag_high_thresh": ("4194304", "268435456"),
}
"""Name -> what a host has before and after; of IPv6 it has more already."""


def test_what_guests_could_use_up_of_the_kernels_tables_is_raised_and_put_back(farm: Farm) -> None:
    """Files stand for the limits, for those of the kernel are of all hosts of this farm."""
    rack, host = farm.rack, farm.hosts["rack-b"]
    covered = ("/proc/sys/net", "/proc/sys/fs/inotify", "/etc/sysctl.d", "/etc/modules-load.d")
    for each in covered:
        host.run("mount", "-t", "tmpfs", "tmpfs", each)
    files = {name: f"/proc/sys/{name.replace('.', '/')}" for name in LIMITS}
    mapped = f"{{ssh: {host.name}, libvirt: 'qemu+ssh://{host.name}/system'}}"
    file = rack.file(f"cluster: {rack.name()}\nhosts: {{far: {mapped}}}\nnodes: [{{}}]\n")
    raised = [f"{name} = {after}" for name, (before, after) in LIMITS.items() if before != after]

    def values() -> list[str]:
        return host.run("cat", *files.values()).split()

    def kept() -> list[str]:
        return host.run("sh", "-c", "grep -hv '^#' /etc/sysctl.d/*").splitlines()

    try:
        for name, (before, _) in LIMITS.items():
            script = f"mkdir -p {Path(files[name]).parent} && echo {before} >{files[name]}"
            host.run("sh", "-c", script)
        rack.run("host", "setup", file)
        assert values() == [after for _, after in LIMITS.values()]
        assert kept() == raised
        assert "nf_conntrack" in host.run("cat", "/etc/modules-load.d/nospoon.conf")
        assert rack.json("host", "setup", file)[0]["changed"] == 0, "a second run changes nothing"
        host.run("sh", "-c", f"echo 1000 >{files['net.ipv6.neigh.default.gc_thresh3']}")
        rack.run("host", "setup", file)
        assert sorted(kept()) == sorted([*raised, "net.ipv6.neigh.default.gc_thresh3 = 65536"])
        rack.run("host", "setup", "--undo", file)
        first = {name: value for name, (value, _) in LIMITS.items()}
        first["net.ipv6.neigh.default.gc_thresh3"] = "1000"
        assert values() == list(first.values())
        assert host.run("ls", "/etc/sysctl.d", "/etc/modules-load.d").split("\n\n") == [
            "/etc/modules-load.d:", "/etc/sysctl.d:\n",
        ]  # fmt: skip
    finally:
        for each in covered:
            host.run("umount", each)


def test_what_cannot_be_prepared_is_told_and_nothing_is_lost(farm: Farm) -> None:
    rack, host = farm.rack, farm.hosts["rack-b"]
    file = a_file(farm, host)
    refused = rack.run("host", "setup", file, status=1)
    assert f"there is no interface {UPLINK}" in refused.stderr
    host.run("ip", "link", "add", UPLINK, "type", "veth")
    try:
        host.run("ip", "address", "add", "192.0.2.1/24", "dev", UPLINK)
        refused = rack.run("host", "setup", file, status=1)
        assert f"{UPLINK} has an address" in refused.stderr
        assert "master" not in link_of(host, UPLINK)
        refused = rack.run("plan", file, status=1)
        assert (
            f"{UPLINK} is an interface in no bridge. `nospoon host setup` makes one"
            in refused.stderr
        )
    finally:
        rack.run("host", "setup", "--undo", file)
        host.run("ip", "link", "delete", UPLINK)


def test_pools_come_on_a_logical_volume_where_the_kernel_can(farm: Farm, tmp_path: Path) -> None:
    rack, host = farm.rack, farm.hosts["rack-b"]
    if not Path("/sys/class/misc/device-mapper").exists():
        refused = rack.run("host", "setup", a_file(farm, host), "--volume-group", "vg0", status=1)
        assert "has no device-mapper, without which there are no logical volumes" in refused.stderr
        assert "host-setup" not in host.run("ls", "/var/lib/nospoon"), "nothing was begun"
        pytest.skip("this kernel has no device-mapper")
    group, disk = f"nospoon{rack.name()}", tmp_path / "disk"
    disk.write_bytes(b"")
    os.truncate(disk, 256 << 20)
    loop = host.run("losetup", "--find", "--show", str(disk)).strip()
    host.run("vgcreate", group, loop)
    mapped = f"{{ssh: {host.name}, libvirt: 'qemu+ssh://{host.name}/system'}}"
    text = f"cluster: {rack.name()}\nhosts: {{far: {mapped}}}\nnodes: [{{}}]\n"
    volume = (rack.file(text), "--volume-group", group, "--volume-size", "200m")
    try:
        rack.run("host", "setup", *volume)
        assert f"/dev/mapper/{group}-nospoon--pools" in host.run(
            "findmnt", "/var/lib/nospoon/pools"
        )
        assert rack.json("host", "setup", *volume)[0]["changed"] == 0, (
            "a second run changes nothing"
        )
        rack.run("host", "setup", "--undo", volume[0])
        assert "nospoon-pools" not in host.run("lvs", group)
        assert "nospoon-pools" not in Path("/etc/fstab").read_text()
    finally:
        host.run("vgremove", "--yes", group)
        host.run("losetup", "--detach", loop)


def test_packages_are_installed_and_removed_again(farm: Farm, tmp_path: Path) -> None:
    """Those alone: one whose triggers were pending was taken for a new one, and several for one;
    and what had been installed since, and needed one, went with it.
    """
    rack, host = farm.rack, farm.hosts["rack-c"]
    before = installed(host)
    name = rack.name()  # no two runs have packages of one name: one that was cut off leaves its own
    ours, needed, needs = (f"nospoon-{name}-{each}" for each in ("ours", "needed", "needs"))
    mapped = f"{{ssh: {host.name}, libvirt: 'qemu+ssh://{host.name}/system'}}"
    file = rack.file(f"cluster: {name}\nhosts: {{far: {mapped}}}\nnodes: [{{}}]\n", f"{name}.yaml")
    host.run("dpkg-trigger", "--no-await", "--by-package=bash", "ldconfig")
    assert installed(host) == before - {"libc-bin"}, "its triggers are pending"
    try:
        with archive_of(host, a_package(tmp_path, ours), a_package(tmp_path, needed)):
            rack.run("host", "setup", file, "--package", ours, "--package", needed)
        assert installed(host) == before | {ours, needed}
        host.run("dpkg", "--install", str(a_package(tmp_path, needs, depends=needed)))
        rack.run("host", "setup", "--undo", file)
        assert installed(host) == before | {needed, needs}
    finally:
        host.run("dpkg", "--purge", needs, ours, needed)
    assert installed(host) == before


@contextmanager
def archive_of(host: FarHost, *packages: Path) -> Iterator[None]:
    """The only one that apt of this host knows: it has no network (sources.list(5))."""
    place = host.place / "archive"  # apt reads it as another user
    place.mkdir()
    entries = []
    for each in packages:
        shutil.copy(each, place)
        shown = subprocess.run(
            ["dpkg-deb", "--field", each], check=True, capture_output=True, text=True
        )
        data = each.read_bytes()
        entries.append(
            f"{shown.stdout.strip()}\nFilename: ./{each.name}\nSize: {len(data)}\n"
            f"SHA256: {hashlib.sha256(data).hexdigest()}\n"
        )
    (place / "Packages").write_text("\n".join(entries))
    sources = place / "sources.list"
    sources.write_text(f"deb [trusted=yes] file:{place} ./\n")
    covered = ("/etc/apt", "/var/lib/apt/lists")
    for directory in covered:
        host.run("mount", "-t", "tmpfs", "tmpfs", directory)
    host.run("cp", str(sources), f"{covered[0]}/sources.list")
    try:
        yield
    finally:
        for directory in covered:
            host.run("umount", directory)


def installed(host: FarHost) -> set[str]:
    lines = host.run("dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\n").splitlines()
    return {name for status, name in map(str.split, lines) if status == "installed"}


def a_package(place: Path, name: str, *, depends: str = "") -> Path:
    control = place / name / "DEBIAN/control"
    control.parent.mkdir(parents=True)
    control.write_text(
        f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: nospoon <root@localhost>\n"
        + (f"Depends: {depends}\n" if depends else "")
        + "Description: of the tests of nospoon\n"
    )
    made = place / f"{name}_1_all.deb"
    command = ["dpkg-deb", "--build", "--root-owner-group", str(place / name), str(made)]
    subprocess.run(command, check=True, capture_output=True)
    return made
