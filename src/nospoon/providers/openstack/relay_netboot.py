"""Runs on a relay: dnsmasq on its network, by files that come through the tunnel.

    python3 relay_netboot.py ADDRESS TUNNEL-PORT

It needs root, Python, which cloud-init brings along, and dnsmasq, which it installs. What it says
to the daemon is described in `nospoon.protocols.relayed`, which is not there. It serves on the
interface that has the address, and starts dnsmasq again when that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import os
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
from pathlib import Path, PurePosixPath

LENGTH = struct.Struct("!I")
FILES = Path("/run/nospoon/netboot")
CONFIGURATION, MANIFEST, HOSTS = "dnsmasq.conf", "manifest", "hosts/"
STARTED, PID, LEASES = FILES / "started.conf", FILES / "dnsmasq.pid", FILES / "leases"
KEPT = {MANIFEST, STARTED.name, PID.name, LEASES.name}
PAUSE, AGAIN, STARTING, INSTALLING = 1.0, 5.0, 20.0, 900.0
INSTALLERS = (
    ("apt-get", "apt-get -q update && apt-get -qy install --no-install-recommends dnsmasq-base"),
    ("dnf", "dnf -qy install dnsmasq"),
    ("zypper", "zypper -qn install dnsmasq"),
    ("apk", "apk add -q dnsmasq"),
)
SAID = 500


class Failed(Exception):
    """dnsmasq does not run, in words."""


class Netboot:
    """The files, the dnsmasq that serves them, and what is said of it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.dnsmasq: asyncio.subprocess.Process | None = None
        self.said = "WAITS it begins"
        self.turn = asyncio.Lock()

    @property
    def revision(self) -> str:
        try:
            return hashlib.sha256((FILES / MANIFEST).read_bytes()).hexdigest()
        except OSError:
            return "-"

    def take(self, archive: bytes) -> bool:
        """Put files in place; whether dnsmasq has to be started again: it takes new reservations by
        itself, and forgets none.
        """
        before = manifest()
        FILES.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                place = PurePosixPath(member.name)
                if place.is_absolute() or ".." in place.parts:
                    raise Failed(f"a file may not be at {member.name}")
                path = FILES / place
                if member.isdir():
                    path.mkdir(parents=True, exist_ok=True)
                elif member.isfile():
                    content = tar.extractfile(member)
                    write(path, content.read() if content is not None else b"")
        after = manifest()
        for path in FILES.rglob("*"):
            name = str(path.relative_to(FILES))
            if path.is_file() and name not in KEPT and name not in after:
                path.unlink()
        changed = {name for name, digest in before.items() if after.get(name) != digest}
        new = {CONFIGURATION} & (after.keys() - before.keys())
        return bool(new) or any(n == CONFIGURATION or n.startswith(HOSTS) for n in changed)

    async def keep(self) -> None:
        """Have dnsmasq run, or not, as the files say."""
        revision = self.revision
        if not (FILES / CONFIGURATION).exists():
            await self.stop()
            self.said = f"SERVES {revision}"
            return
        if self.dnsmasq is None or self.dnsmasq.returncode is not None:
            try:
                await self.install()
                await self.start()
            except (Failed, OSError) as error:
                self.said = f"FAILS {error}"
                return
        self.said = f"SERVES {revision}"

    async def install(self) -> None:
        if shutil.which("dnsmasq") is not None:
            return
        self.said = "WAITS dnsmasq is being installed"
        known = [each for each in INSTALLERS if shutil.which(each[0]) is not None]
        if not known:
            raise Failed("its image has no dnsmasq, and no package manager that is known")
        tool, line = known[0]
        done = await asyncio.create_subprocess_exec(
            "timeout", str(int(INSTALLING)), "sh", "-c", line,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"},
        )  # fmt: skip
        _, words = await done.communicate()
        if shutil.which("dnsmasq") is None:
            said = end_of(words) or f"status {done.returncode}"
            raise Failed(f"its image has no dnsmasq, and `{tool}` installs none: {said}")

    async def start(self) -> None:
        """Returns when it has its sockets, as it writes its pid then."""
        text = (FILES / CONFIGURATION).read_text()
        (named,) = (w for w in text.splitlines() if w.startswith("interface="))
        name = named.partition("=")[2]
        interface = interface_with(self.address)
        lines = (
            f"{word}={interface}"
            if word in {"interface", "enable-tftp"} and value == name
            else line
            for line in text.splitlines()
            for word, _, value in [line.partition("=")]
        )
        # of the network, as the config drive has it: an overlay's is below 1500, and DHCP says so
        mtu = Path(f"/sys/class/net/{interface}/mtu").read_text().strip()
        write(STARTED, "\n".join((*lines, f"dhcp-option=option:mtu,{mtu}", "")).encode())
        for each in (PID, LEASES):  # its clients have addresses of their own, so none is lost
            with contextlib.suppress(FileNotFoundError):
                each.unlink()
        self.dnsmasq = await asyncio.create_subprocess_exec(
            "dnsmasq", "--keep-in-foreground", f"--conf-file={STARTED}",
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        for _ in range(int(STARTING / 0.05)):
            if self.dnsmasq.returncode is not None:
                assert self.dnsmasq.stderr is not None
                raise Failed(f"dnsmasq does not start: {end_of(await self.dnsmasq.stderr.read())}")
            if PID.exists():
                return
            await asyncio.sleep(0.05)
        await self.stop()
        raise Failed("dnsmasq does not start: it has no sockets after a while")

    async def stop(self) -> None:
        if self.dnsmasq is not None and self.dnsmasq.returncode is None:
            self.dnsmasq.send_signal(signal.SIGTERM)
            await self.dnsmasq.wait()
        self.dnsmasq = None

    async def watch(self) -> None:
        while True:
            async with self.turn:
                await self.keep()
            await asyncio.sleep(AGAIN if self.said.startswith("FAILS") else PAUSE)


def manifest() -> dict[str, str]:
    """Path of each file -> its digest."""
    try:
        lines = (FILES / MANIFEST).read_text().splitlines()
    except OSError:
        return {}
    return {name: digest for digest, _, name in (line.partition(" ") for line in lines)}


def write(path: Path, content: bytes) -> None:
    """Whole or not at all. dnsmasq ignores names that begin with a dot."""
    part = path.parent / f".{path.name}"
    part.write_bytes(content)
    part.replace(path)


def interface_with(address: str) -> str:
    """Its name. Raises `Failed`."""
    done = subprocess.run(["ip", "-o", "address", "show"], stdout=subprocess.PIPE, check=True)
    for line in done.stdout.decode().splitlines():
        words = line.split()
        if len(words) > 3 and words[3].partition("/")[0] == address:
            return words[1]
    raise Failed(f"it has no interface with the address {address}")


def end_of(words: bytes) -> str:
    return " ".join(words.decode(errors="replace").split())[-SAID:]


async def connected(netboot: Netboot, tunnel: int) -> None:
    """Take files and say what becomes of them, until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", tunnel)
    said = f"HAS {netboot.revision}"
    writer.write(f"{said}\n".encode())
    try:
        while True:
            if netboot.said != said:
                said = netboot.said
                writer.write(f"{' '.join(said.split())[:2000]}\n".encode())
                await writer.drain()
            try:
                head = await asyncio.wait_for(reader.readexactly(LENGTH.size), PAUSE)
            except asyncio.TimeoutError:  # noqa: UP041  (another one before Python 3.11)
                continue
            archive = await reader.readexactly(LENGTH.unpack(head)[0])
            async with netboot.turn:
                if netboot.take(archive):
                    await netboot.stop()
                await netboot.keep()
            said = ""  # it is said again, for the daemon waits for it
    finally:
        writer.close()


async def ask(netboot: Netboot, tunnel: int) -> None:
    while True:
        try:
            await connected(netboot, tunnel)
        except (OSError, EOFError, Failed, tarfile.TarError) as error:  # the daemon is away
            print("no files:", error, file=sys.stderr)  # noqa: T201  (systemd's journal)
        await asyncio.sleep(PAUSE)


async def main(address: str, tunnel: str) -> None:
    netboot = Netboot(address)
    await asyncio.gather(netboot.watch(), ask(netboot, int(tunnel)))


if __name__ == "__main__":
    os.umask(0o022)
    asyncio.run(main(*sys.argv[1:]))
