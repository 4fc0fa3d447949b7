"""A libvirtd of one's own: in its own mount and network namespace, with its own everything.

It is a real, privileged libvirtd, but the machine's own is not touched, nothing can collide with
it, and it can be stopped and started at will. QEMU runs as root in it, so that it may read what
pytest put below its private temporary directories. For tests and benchmarks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from nospoon.testing.trees import remove_tree

SET_UP = """
set -e
for d in /run/libvirt /var/lib/libvirt /var/log/libvirt /etc/libvirt; do
  mkdir -p $d; mount -t tmpfs tmpfs $d
done
# libvirtd starts every QEMU to see what it can do, unless that is known
mkdir -p /var/cache/libvirt; cp -a /var/cache/libvirt "$1/cache"
mount --bind "$1/cache" /var/cache/libvirt
mkdir "$1/sys"  # sysfs shows the interfaces of the namespace in which it is mounted
mount -t sysfs sysfs "$1/sys"
mount --rbind /sys/fs/cgroup "$1/sys/fs/cgroup"
mount --move "$1/sys" /sys
ip link set lo up
printf 'user="root"\\ngroup="root"\\nsecurity_driver="none"\\n' > /etc/libvirt/qemu.conf
virtlogd -d -p "$1/virtlogd.pid"
exec sleep infinity
"""


@dataclass(slots=True)
class OwnLibvirt:
    """A private libvirtd. `keeper`: the process that holds its namespaces."""

    place: Path
    keeper: subprocess.Popen[bytes]
    daemon: subprocess.Popen[bytes] | None = None
    uri: str = field(init=False)

    def __post_init__(self) -> None:
        self.uri = f"qemu+unix:///system?socket={self.place}/libvirt-sock"

    @property
    def enter(self) -> list[str]:
        return ["nsenter", "-t", str(self.keeper.pid), "-m", "-n"]

    def start(self, auth: str = "none") -> None:
        """`auth`: who may manage machines, by libvirtd.conf's `auth_unix_rw`."""
        config = self.place / "libvirtd.conf"
        config.write_text(
            f'unix_sock_dir="{self.place}"\nauth_unix_rw="{auth}"\nunix_sock_rw_perms="0777"\n'
        )
        log = (self.place / "libvirtd.log").open("ab")
        self.daemon = subprocess.Popen(
            [*self.enter, "libvirtd", "-f", str(config), "-p", str(self.place / "libvirtd.pid")],
            stdout=log,
            stderr=log,
        )
        log.close()
        wait_until(partial(_answers, self.place / "libvirt-sock"))

    def stop(self) -> None:
        """End the daemon; its guests go on."""
        if self.daemon is not None:
            self.daemon.send_signal(signal.SIGTERM)
            self.daemon.wait(60)
            self.daemon = None
        (self.place / "libvirt-sock").unlink(missing_ok=True)

    def close(self) -> None:
        self.stop()
        logger = self.place / "virtlogd.pid"
        if logger.exists():
            os.kill(int(logger.read_text()), signal.SIGTERM)
            wait_until(lambda: not logger.exists())
        self.keeper.kill()
        self.keeper.wait()


@contextmanager
def a_libvirt_of_ones_own() -> Iterator[OwnLibvirt]:
    """It runs, until the end. Needs root and libvirtd."""
    place = Path(tempfile.mkdtemp(prefix="nospoon-libvirt-"))
    script = ["unshare", "-m", "-n", "sh", "-c", SET_UP, "sh", str(place)]
    made = OwnLibvirt(place, subprocess.Popen(script))
    try:
        wait_until((place / "virtlogd.pid").exists)
        made.start()
        yield made
    finally:
        made.close()
        remove_tree(place)


def _answers(path: Path) -> bool:
    """Whether libvirtd listens there: its socket is in its place a moment before."""
    with socket.socket(socket.AF_UNIX) as line, contextlib.suppress(OSError):
        line.connect(str(path))
        return True
    return False


def wait_until(done: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not come up in time"
        time.sleep(0.02)
