"""A libvirtd of the tests' own: in its own mount and network namespace, with its own everything.

It is a real, privileged libvirtd, but the machine's own is not touched, nothing can collide with
it, and it can be stopped and started at will. QEMU runs as root in it, so that it may read what
pytest put below its private temporary directories.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nospoon.model.cluster import Firmware, Host
from nospoon.model.resources import Image, Resource
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.runtime import process
from nospoon.runtime.process import Finished
from nospoon.testing import guests
from nospoon.testing.conformance import Bench, Rack, make, remove_all

SET_UP = """
set -e
for d in /run/libvirt /var/lib/libvirt /var/cache/libvirt /var/log/libvirt /etc/libvirt; do
  mkdir -p $d; mount -t tmpfs tmpfs $d
done
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

    def start(self) -> None:
        config = self.place / "libvirtd.conf"
        config.write_text(f'unix_sock_dir="{self.place}"\nauth_unix_rw="none"\n')
        log = (self.place / "libvirtd.log").open("ab")
        self.daemon = subprocess.Popen(
            [*self.enter, "libvirtd", "-f", str(config), "-p", str(self.place / "libvirtd.pid")],
            stdout=log,
            stderr=log,
        )
        log.close()
        wait_until((self.place / "libvirt-sock").is_socket)

    def stop(self) -> None:
        """End the daemon; its guests go on."""
        if self.daemon is not None:
            self.daemon.send_signal(signal.SIGTERM)
            self.daemon.wait(30)
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


def wait_until(done: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not come up in time"
        time.sleep(0.02)


class NamespaceRunner:
    """Commands where the private libvirtd is."""

    def __init__(self, libvirt: OwnLibvirt) -> None:
        self._enter = libvirt.enter

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        return await process.run([*self._enter, *argv], stdin=stdin, check=check)


@pytest.fixture(scope="session")
def own_libvirt() -> Iterator[OwnLibvirt]:
    if os.geteuid() != 0 or shutil.which("libvirtd") is None:
        pytest.skip("needs root and libvirtd")
    place = Path(tempfile.mkdtemp(prefix="nospoon-libvirt-"))
    script = ["unshare", "-m", "-n", "sh", "-c", SET_UP, "sh", str(place)]
    keeper = subprocess.Popen(script)
    libvirt = OwnLibvirt(place, keeper)
    try:
        wait_until((place / "virtlogd.pid").exists)
        libvirt.start()
        yield libvirt
    finally:
        libvirt.close()
        shutil.rmtree(place)


@pytest.fixture
def runner(own_libvirt: OwnLibvirt) -> NamespaceRunner:
    return NamespaceRunner(own_libvirt)


@pytest.fixture
def images() -> dict[str, str]:
    """sha256 -> path of the daemon's copy."""
    return {}


@pytest.fixture
async def connection(
    own_libvirt: OwnLibvirt, runner: NamespaceRunner, images: dict[str, str], tmp_path: Path
) -> AsyncIterator[LibvirtConnection]:
    async def open_image(sha256: str) -> str:
        return images[sha256]

    connection = LibvirtConnection(
        Host("here", uri=own_libvirt.uri),
        "kit",
        runner,
        open_image,
        records=str(tmp_path / "records"),
        verdicts=tmp_path / "verdicts",
    )
    yield connection
    await connection.close()


async def nothing(resource: Resource) -> None:
    del resource


@pytest.fixture
async def bench(connection: LibvirtConnection, tmp_path: Path) -> AsyncIterator[Bench]:
    """A place for guests; what they are made of is removed in the end."""
    bench = Bench(
        connection=connection,
        host="here",
        deployment="kit",
        pool_root=str(tmp_path),
        image=Image("", "", "raw", 0),
        make_stranger=nothing,
        remove_machine=nothing,
    )
    yield bench
    await remove_all(bench)


@pytest.fixture
async def rack(bench: Bench, images: dict[str, str], tmp_path: Path) -> Rack:
    """A machine with BIOS, made and off, whose disk says on the console that it boots."""
    made = guests.guest_rack(
        bench, guests.speaking_disk(), images, tmp_path, firmware=Firmware.BIOS
    )
    await make(bench, *made.all)
    return made
