"""Three hosts on one machine: each has mount and network namespaces, a libvirtd and bridges of its
own, and is reached over ssh, by an sshd that is started for each connection and has no port.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nospoon.testing.libvirtd import wait_until
from nospoon.testing.rack import BIN, Rack
from nospoon.testing.trees import remove_tree

SET_UP = """
set -e
for d in /run/libvirt /var/lib/libvirt /var/log/libvirt /etc/libvirt /var/lib/nospoon; do
  mkdir -p $d; mount -t tmpfs tmpfs $d
done
# bash reads it for each command over ssh, and it may take longer than all of them
[ ! -e /root/.bashrc ] || mount --bind /dev/null /root/.bashrc
# libvirtd starts every QEMU to see what it can do, unless that is known
mkdir -p /var/cache/libvirt; cp -a /var/cache/libvirt "$1/cache"
mount --bind "$1/cache" /var/cache/libvirt
if [ -d /etc/network ]; then
  mount -t tmpfs tmpfs /etc/network; mkdir /etc/network/interfaces.d
fi
mkdir -p /run/sshd
ip link set lo up
printf 'user="root"\\ngroup="root"\\nsecurity_driver="none"\\n' > /etc/libvirt/qemu.conf
virtlogd -d -p "$1/virtlogd.pid"
exec sleep infinity
"""
SSHD = """
HostKey {place}/host_key
AuthorizedKeysFile {place}/key.pub
UsePAM no
StrictModes no
PermitRootLogin yes
LogLevel ERROR
"""
SSH = """
Host {name}
  User root
  ProxyCommand {place}/{name}/connect
  IdentityFile {place}/key
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking no
  LogLevel ERROR
"""


@dataclass(slots=True)
class FarHost:
    """One host. `keeper` holds its namespaces, `daemon` is its libvirtd."""

    name: str
    place: Path
    keeper: subprocess.Popen[bytes] = field(init=False)
    daemon: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.place.mkdir(mode=0o711)
        script = ["unshare", "-m", "-n", "sh", "-c", SET_UP, "sh", str(self.place)]
        self.keeper = subprocess.Popen(script)
        wait_until((self.place / "virtlogd.pid").exists)
        self.start()

    @property
    def enter(self) -> list[str]:
        return ["nsenter", "-t", str(self.keeper.pid), "-m", "-n"]

    def run(self, *argv: str) -> str:
        done = subprocess.run([*self.enter, *argv], text=True, capture_output=True, check=False)
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def start(self, *options: str) -> None:
        log = (self.place / "libvirtd.log").open("ab")
        argv = [*self.enter, "libvirtd", "-p", str(self.place / "libvirtd.pid"), *options]
        self.daemon = subprocess.Popen(argv, stdout=log, stderr=log)
        log.close()
        wait_until(lambda: "libvirt-sock" in self.run("ls", "/run/libvirt"))

    def stop(self) -> None:
        """End libvirtd; its guests go on."""
        assert self.daemon is not None
        self.daemon.send_signal(signal.SIGTERM)
        self.daemon.wait(60)
        self.daemon = None
        self.run("rm", "-f", "/run/libvirt/libvirt-sock")

    def kill(self, *programs: str) -> None:
        """End programs of this host without a warning."""
        for process in self._processes(programs):
            os.kill(process, signal.SIGKILL)
        if "libvirtd" in programs and self.daemon is not None:
            self.daemon.wait(60)
            self.daemon = None

    def reboot(self) -> None:
        """What runs ends, and with it what is kept in memory only; then its daemons start again."""
        self.kill("qemu-system", "dnsmasq", "sshd", "libvirtd", "virtlogd")
        wait_until(self._has_no_links)
        self.run("find", "/run/libvirt", "-mindepth", "1", "-delete")
        (self.place / "virtlogd.pid").unlink()
        self.run("virtlogd", "-d", "-p", str(self.place / "virtlogd.pid"))
        wait_until((self.place / "virtlogd.pid").exists)
        self.start()

    def _has_no_links(self) -> bool:
        """Delete them, but for loopback; a tap goes by itself when its guest has ended."""
        for device in self._links():
            argv = [*self.enter, "ip", "link", "delete", device]
            subprocess.run(argv, capture_output=True, check=False)
        return not self._links()

    def _links(self) -> list[str]:
        shown = self.run("ip", "-o", "link").splitlines()
        names = [line.split(": ")[1].partition("@")[0] for line in shown]
        return [name for name in names if name != "lo"]

    def _processes(self, programs: tuple[str, ...]) -> Iterator[int]:
        """Those in this host's network namespace: libvirt gives each QEMU a mount namespace."""
        ours = Path(f"/proc/{self.keeper.pid}/ns/net").readlink()
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (path / "ns/net").readlink() == ours:
                    program = (path / "comm").read_text().strip()
                    if program.startswith(programs):
                        yield int(path.name)

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """The network to this host is cut."""
        cut = self.place / "cut"
        cut.touch()
        self.kill("sshd")
        try:
            yield
        finally:
            cut.unlink()

    def close(self) -> None:
        if self.daemon is not None:
            for guest in self.run("virsh", "list", "--name").split():  # of a test that failed
                self.run("virsh", "destroy", guest)
            self.stop()
        logger = self.place / "virtlogd.pid"
        os.kill(int(logger.read_text()), signal.SIGTERM)
        wait_until(lambda: not logger.exists())
        self.keeper.kill()
        self.keeper.wait()


@dataclass(slots=True)
class Farm:
    """A daemon, and the hosts that it reaches over ssh."""

    rack: Rack
    hosts: dict[str, FarHost]

    def file(self, name: str, body: str) -> str:
        lines = [
            f"  {each}: {{ssh: {each}, libvirt: 'qemu+ssh://{each}/system'}}" for each in self.hosts
        ]
        head = f"cluster: {name}\n{self.rack.bmc()}hosts:\n" + "\n".join(lines)
        return self.rack.file(f"{head}\n{body}", f"{name}.yaml")


@pytest.fixture(scope="session")
def _farm() -> Iterator[Farm]:
    if os.geteuid() != 0 or shutil.which("sshd", path="/usr/sbin") is None:
        pytest.skip("needs root and sshd")
    place = Path(tempfile.mkdtemp(prefix="nospoon-farm-"))
    place.chmod(0o711)
    hosts: dict[str, FarHost] = {}
    try:
        for name in ("rack-a", "rack-b", "rack-c"):
            hosts[name] = FarHost(name, place / name)
        ssh = _ssh(place, hosts)
        path = f"{ssh}:{BIN}:/usr/sbin:/sbin:{os.environ['PATH']}"
        ansible = {"ANSIBLE_SSH_CONTROL_PATH_DIR": str(place / "cp")}
        rack = Rack.at(place / "daemon", PATH=path, **ansible)
        rack.directory.mkdir(mode=0o711)
        yield Farm(rack, hosts)
        rack.close()
    finally:
        for host in hosts.values():
            host.close()
        remove_tree(place)


@pytest.fixture
def farm(_farm: Farm) -> Iterator[Farm]:
    """The hosts, of which each test takes its clusters down again."""
    yield _farm
    _farm.rack.down()


def _ssh(place: Path, hosts: dict[str, FarHost]) -> Path:
    """Keys, configuration, and an `ssh` that uses them; the directory of that."""
    for key in ("key", "host_key"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / key)]
        subprocess.run(argv, check=True)
    (place / "sshd_config").write_text(SSHD.format(place=place))
    for host in hosts.values():
        sshd = f"exec {' '.join(host.enter)} /usr/sbin/sshd -i -f {place}/sshd_config"
        connect = host.place / "connect"
        connect.write_text(f"#!/bin/sh\ntest -e {host.place}/cut || {sshd}\n")
        connect.chmod(0o755)
    entries = [SSH.format(name=name, place=place) for name in hosts]
    (place / "ssh_config").write_text("".join(entries))
    (place / "bin").mkdir()
    ours = place / "bin" / "ssh"
    ours.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {place}/ssh_config "$@"\n')
    ours.chmod(0o755)
    return place / "bin"
