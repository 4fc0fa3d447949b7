"""Root in a container tries to leave it, in the ways that are known. Each is to fail."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nospoon.providers.lxc.config import PIDS, RECORD
from nospoon.testing.container_root import busybox_root
from nospoon.testing.rack import Rack, private_rack
from nospoon.testing.trees import control_groups

pytestmark = [pytest.mark.libvirt, pytest.mark.lxc]

FILE = """\
cluster: {name}
hosts: {{here: {{libvirt: 'qemu:///system', lxc: true}}}}
networks: {{lan: {{}}}}
nodes:
- {{name: a, {box}, nics: lan}}
- {{name: b, {box}, nics: lan}}
"""
BOX = "kind: container, memory: 64MiB, disks: [{image: busybox.tar, size: 16MiB}]"

ATTEMPTS = """\
export PATH=/applets
mkdir -p /applets /tmp/a /tmp/b
/bin/busybox --install -s /applets
fails() {
  what=$1
  shift
  if sh -c "$*" >/tmp/said 2>&1; then echo "escaped: $what: $(head -c 200 /tmp/said)"; fi
  echo "tried: $what: $(tail -n 1 /tmp/said)"
}
fails 'device node of a disk' 'mknod /tmp/disk b 254 0'
fails 'device node of memory' 'mknod /dev/mem-of-host c 1 1'
fails 'disks in /dev' 'ls /dev | grep -E "^(vd|sd|nvme|loop|dm-|mem|kmem|kvm|fuse)"'
fails 'loop device' 'losetup -f /bin/busybox'
fails 'mount of the disk by sysfs' 'for d in /sys/class/block/*; do
  mknod /tmp/d b $(tr : " " <$d/dev) && mount /tmp/d /tmp/a && exit 0; done; exit 1'
fails 'debugfs' 'mount -t debugfs none /tmp/a'
fails 'tracefs' 'mount -t tracefs none /tmp/a'
fails 'securityfs' 'mount -t securityfs none /tmp/a'
fails 'ext4 from a file' 'mount -t ext4 -o loop /bin/busybox /tmp/a'
fails 'kernel memory' 'head -c 1 /proc/kcore'
fails 'kernel addresses' 'grep -qv "^0*0 " /proc/kallsyms'
fails 'kernel log' 'dmesg'
fails 'sysrq' 'echo h >/proc/sysrq-trigger'
fails 'core pattern' 'umount /proc/sys; mount -o remount,rw /proc/sys;
  echo "|/bin/sh" >/proc/sys/kernel/core_pattern'
fails 'path of modprobe' 'echo /bin/busybox >/proc/sys/kernel/modprobe'
fails 'path of uevents' 'mount -o remount,rw /sys; echo /bin/busybox >/sys/kernel/uevent_helper'
fails 'another /sys' 'mount -t sysfs none /tmp/b && echo /bin/busybox >/tmp/b/kernel/uevent_helper'
fails 'another /proc' 'unshare -p -f -m sh -c "
  mount -t proc none /tmp/b && echo h >/tmp/b/sysrq-trigger"'
fails 'power of a device' 'echo 1 >/sys/bus/pci/rescan'
fails 'module' 'insmod /bin/busybox 2>&1 | grep -qi "invalid module\\|exec format"'
fails 'clock' 'date -s "2001-01-01 00:00"; date | grep 2001'
fails 'score of the OOM killer' 'echo -1000 >/proc/self/oom_score_adj'
fails 'root by a path of init' 'ls /proc/1/root/ | grep -qx @host-only@'
fails 'namespaces of the host' 'nsenter -t 1 -m -p -n ls / | grep -qx @host-only@'
fails 'chroot out of chroot' 'cd /; mkdir -p /tmp/jail
  (chroot /tmp/jail /nothing); cd ../../../../../..; ls | grep -qx @host-only@'
fails 'what lies under its root' 'unshare -m sh -c "
  umount -l / ; ls / | grep -x @host-only@"'
fails 'more rights in a namespace of its own' 'unshare -U -r -m sh -c "
  mknod /tmp/disk b 254 0 || mount -o remount,rw /sys && echo 1 >/sys/kernel/uevent_helper"'
fails 'file of the host' 'cat @secret@'
fails 'processes of others' 'grep -l -a "lxc monito[r]\\|5432[1]" /proc/[0-9]*/cmdline'
fails 'host interfaces' 'ls /sys/class/net | grep -Evx "lo|eth0"'
fails 'sockets of the monitor' 'grep -E "@.*nospoon|libvirt" /proc/net/unix'
fails 'id that is not its own' 'touch /tmp/f && chown 70000 /tmp/f'
for version in cgroup cgroup2; do
  for options in memory pids cpu cpuset,clone_children name=systemd all; do
    [ $version = cgroup ] || options=rw
    mkdir -p /tmp/groups
    mount -t $version -o $options none /tmp/groups 2>/dev/null || continue
    echo "mounted: $version $options" >&2
    for each in memory.limit_in_bytes memory.max pids.max cpu.cfs_quota_us cpu.max; do
      [ ! -e /tmp/groups/$each ] || fails "$each" "echo 1000000000 >/tmp/groups/$each"
    done
    fails "release_agent of $options" 'echo /bin/busybox >/tmp/groups/release_agent'
    umount /tmp/groups
  done
done
for each in /sys/fs/cgroup/*/release_agent /sys/fs/cgroup/*/*/release_agent; do
  [ ! -e "$each" ] || fails "$each" "echo /bin/busybox >$each"
done
grep -E '^(CapBnd|Seccomp|NoNewPrivs):' /proc/1/status
echo "ids: $(cat /proc/1/uid_map)"
unshare -m mount -t tmpfs none /tmp/a && echo all were tried
"""
"""`@host-only@`: a directory that a host has in its root, and this container has not. The last line
says that unshare(1) and mount(8) work there.
"""
OF_STATUS = ("CapBnd", "Sec", "ids", "NoNewPrivs")
DROPPED = {"SYS_MODULE": 16, "SYS_RAWIO": 17, "SYS_TIME": 25, "MAC_ADMIN": 33, "SYSLOG": 34}
"""Numbers of linux/capability.h."""


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    with private_rack() as made:
        yield made


def directory(rack: Rack, name: str, node: str) -> Path:
    (found,) = (rack.directory / "pool" / "lxc").glob(f"nospoon-{name}-*/*-{node}")
    return found


def attached(rack: Rack, name: str, node: str, script: str) -> subprocess.CompletedProcess[str]:
    where = directory(rack, name, node)
    return subprocess.run(
        ["lxc-attach", "-P", str(where.parent), "-n", where.name, "--clear-env", "--",
         "/bin/busybox", "sh", "-c", script],
        text=True, capture_output=True, check=False, timeout=300, errors="replace",
    )  # fmt: skip


@pytest.fixture(scope="module")
def name(rack: Rack) -> str:
    made = rack.name()
    (rack.directory / "busybox.tar").write_bytes(busybox_root())
    rack.run("up", "--yes", rack.file(FILE.format(name=made, box=BOX)))
    return made


def test_root_in_a_container_cannot_leave_it(rack: Rack, name: str) -> None:
    secret = rack.directory / "secret-of-host"
    secret.write_text("secret")
    secret.chmod(0o644)
    attached(rack, name, "b", "/bin/busybox sleep 54321 >/dev/null 2>&1 &")
    script = ATTEMPTS.replace("@secret@", str(secret))
    done = attached(rack, name, "a", script.replace("@host-only@", "boot"))
    assert "all were tried" in done.stdout, done.stderr
    said = done.stdout.splitlines()
    assert [line for line in said if line.startswith("escaped")] == []
    assert [line for line in said if "not found" in line] == [], "it was not tried"
    words = dict(line.split(":", 1) for line in said if line.startswith(OF_STATUS))
    assert words["NoNewPrivs"].strip() == "1"
    assert words["Seccomp"].strip() == "2", "SECCOMP_MODE_FILTER"
    bounded = int(words["CapBnd"], 16)
    assert [each for each, bit in DROPPED.items() if bounded >> bit & 1] == []
    inside, outside, count = map(int, words["ids"].split())
    assert (inside, count) == (0, 65536)
    assert outside >= 100_000


def test_a_container_takes_no_more_than_its_own(rack: Rack, name: str) -> None:
    """Memory, disk, processes and console."""
    assert attached(rack, name, "a", "exec /bin/busybox tail /dev/zero").returncode == 128 + 9
    full = attached(rack, name, "a", "/bin/busybox dd if=/dev/zero of=/full bs=1M count=64")
    assert "No space left" in full.stderr
    (root,) = directory(rack, name, "a").parent.glob("a-0.volume")
    assert root.stat().st_size == 16 << 20
    attached(rack, name, "a", "/bin/busybox yes | /bin/busybox head -c 9000000 >/dev/console")
    records = [each.stat() for each in rack.directory.glob("state/consoles/*.log*")]
    assert max(each.st_size for each in records) <= RECORD
    groups = control_groups(f"lxc.payload.{directory(rack, name, 'a').name}")
    limits = [found.read_text() for each in groups for found in each.glob("pids.max")]
    assert set(map(int, limits)) == {PIDS}
    assert attached(rack, name, "b", "echo there").stdout == "there\n"
