"""Containers on a host whose control groups are of version 2 alone, with limits, and whose kernel
has AppArmor: a Debian in a VM, in which the tests of containers run.

A machine cannot be changed to version 2 for a while: a controller stays in version 1 as long as
that has groups. make test-cgroup2.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nospoon.dev.images import root
from nospoon.testing.container_root import debian_root
from nospoon.testing.rack import CACHE, Rack, private_rack

pytestmark = [
    pytest.mark.libvirt,
    pytest.mark.timeout(10800),
    pytest.mark.skipif(
        not os.environ.get("NOSPOON_CGROUP2"),
        reason="tests of containers in an emulated VM take an hour: make test-cgroup2",
    ),
]
REPOSITORY = Path(__file__).parents[2]
THERE = "/root/nospoon"
"""The repository in the VM."""
TESTS = os.environ.get("NOSPOON_CGROUP2_TESTS") or (
    "tests/lxc/test_limits.py tests/docker/test_limits.py tests/docker/test_escape.py "
    "tests/security/test_container_escape.py tests/docker/test_cluster.py "
    "tests/e2e/test_containers.py"
)
PACKAGES = (
    "apparmor", "binutils", "busybox-static", "dnsmasq-base", "dnsmasq-utils", "docker.io", "gcc",
    "git", "grub-efi-amd64-signed", "ipmitool", "iptables", "ipxe", "ipxe-qemu", "kmod",
    "libvirt-clients", "libvirt-daemon-config-nwfilter", "libvirt-daemon-system", "lxc", "mtools",
    "nftables", "openssh-client", "openssl", "openvswitch-switch", "ovmf", "podman", "procps",
    "python3-venv", "qemu-system-x86", "qemu-utils", "runc", "shim-signed", "snmp", "uidmap",
    "xorriso", "zstd",
)  # fmt: skip
"""Of Debian, which these tests use."""
FILE = """\
cluster: {name}
{bmc}hosts: {{here: {{libvirt: 'qemu:///system'}}}}
networks: {{lan: {{netboot: builtin}}}}
nodes:
- name: host
  kind: vm
  cpus: 2
  memory: 4GiB
  disks: [{{image: '{disk}', size: 20GiB}}, {{image: '{tree}'}}]
  nics: lan
  ssh_keys: ['{key}']
  user_data: |
    #cloud-config
    disable_root: false
"""
PREPARE = f"""
set -e
[ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ]
for each in cpu cpuset io memory pids; do grep -qw $each /sys/fs/cgroup/cgroup.controllers; done
! grep -q ' cgroup ' /proc/mounts
grep -q Y /sys/module/apparmor/parameters/enabled
mkdir -p {THERE} /var/cache/nospoon
tar -x -C {THERE} -f /dev/vdb
cd {THERE}
mv cache/* /var/cache/nospoon/
python3 -m venv --without-pip .venv
.venv/bin/python -m compileall -q src .venv/lib || :
cat >.venv/bin/nospoon <<end
#!{THERE}/.venv/bin/python
from nospoon.cli.start import main
main()
end
chmod 755 .venv/bin/nospoon
systemctl stop docker.socket docker containerd podman.socket podman 2>/dev/null || :
usermod --add-subuids 1000000-1065535 --add-subgids 1000000-1065535 root
id dockremap 2>/dev/null || useradd --system --no-create-home --shell /usr/sbin/nologin dockremap
usermod --add-subuids 1200000-1265535 --add-subgids 1200000-1265535 dockremap
for each in /etc/subuid /etc/subgid; do
  echo containers:2147483647:2147483648 >>$each
done
systemctl start containerd
cat >/usr/local/sbin/dockerd <<'end'
#!/bin/sh
exec /usr/sbin/dockerd --containerd /run/containerd/containerd.sock "$@"
end
chmod 755 /usr/local/sbin/dockerd
echo 'LIBVIRTD_ARGS=' >/etc/default/libvirtd
systemctl restart libvirtd
virsh list
"""
"""Shell: as `scripts/setup test` does, without a network. A containerd that `dockerd` starts itself
has 15 s to be ready (moby, libcontainerd/supervisor), in which one that is emulated is not; nor is
a libvirtd within 30 s that ends when no one uses it, and is started again.
"""


@pytest.fixture
def rack() -> Iterator[Rack]:
    with private_rack() as made:
        made.use_own_key()
        yield made


def disk_of(rack: Rack) -> Path:
    """Made once a machine: it takes minutes."""
    parts = (*root.PACKAGES, *root.KERNEL, *root.HOOKS, root.SETTINGS, *PACKAGES)
    name = f"cgroup2-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}"
    if not (CACHE / f"{name}.qcow2").exists():
        more = [word for each in PACKAGES for word in ("--include", each)]
        argv = ("image", "build", str(CACHE), "--name", name, "--as", "qcow2", *more)
        rack.run(*argv, seconds=1800)
    return CACHE / f"{name}.qcow2"


def tree_of(rack: Rack) -> Path:
    """The repository, its Python packages and the root of containers: a tar that is a disk."""
    tree = rack.directory / "tree"
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"],
        cwd=REPOSITORY,
        text=True,
        capture_output=True,
        check=True,
    )
    for each in filter(None, listed.stdout.split("\0")):
        if (REPOSITORY / each).is_file():
            (tree / each).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / each, tree / each)
    packages = Path(sysconfig.get_path("purelib"))
    there = tree / ".venv" / "lib" / packages.parent.name / packages.name
    left_out = shutil.ignore_patterns("mypy", "ansible*", "*mypyc*", "pip")
    shutil.copytree(packages, there, symlinks=True, ignore=left_out)
    (tree / "cache").mkdir()
    shutil.copy(asyncio.run(debian_root(CACHE)), tree / "cache")
    disk = rack.directory / "tree.img"
    subprocess.run(["tar", "-c", "-b", "2048", "-C", str(tree), "-f", str(disk), "."], check=True)
    shutil.rmtree(tree)
    return disk


def test_containers_where_control_groups_are_of_version_2_alone(rack: Rack) -> None:
    name = rack.name()
    key = (rack.directory / "key.pub").read_text().strip()
    text = FILE.format(name=name, bmc=rack.bmc(), disk=disk_of(rack), tree=tree_of(rack), key=key)
    rack.run("up", "--yes", rack.file(text, f"{name}.yaml"), seconds=900)

    def ran(script: str, seconds: float = 900) -> subprocess.CompletedProcess[str]:
        argv = ["nospoon", "node", "exec", f"{name}/host", "-l", "root", "--", "sh", "-c", script]
        return subprocess.run(
            argv, env=rack.environment, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False, timeout=seconds,
        )  # fmt: skip

    end = time.monotonic() + 900
    while "done" not in (said := ran("cloud-init status --wait").stdout):
        assert time.monotonic() < end, said
        time.sleep(2)
    prepared = ran(PREPARE)
    assert prepared.returncode == 0, prepared.stdout
    done = ran(
        f"cd {THERE}; PYTHONPATH={THERE}/src NOSPOON_TEST_PATIENCE=6 "
        ".venv/bin/python -m pytest -p no:cacheprovider -q -o timeout=3000 "
        f"-rfEs --durations=20 {TESTS}",
        seconds=9000,
    )
    assert done.returncode == 0, done.stdout[-20000:]
    rack.run("down", "--yes", "--purge", name)
