"""What tests of network boot need: an authority that says what it is told, and guests in QEMU."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import UUID

import structlog

from nospoon.model.cluster import Arch, Firmware
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.netboot import NetbootService, Reservation
from nospoon.probe.record import Record, find
from nospoon.services.netboot.peers import Peers
from nospoon.services.netboot.ports import BootAnswer

TOKEN = "told"


class ToldAuthority:
    """Answers as the test has set it, and keeps what it is told."""

    def __init__(self) -> None:
        self.answers: dict[UUID, BootAnswer] = {}
        self.macs: dict[str, UUID] = {}
        self.boots: list[UUID] = []
        self.left: list[UUID] = []
        self.reports: list[tuple[UUID, Mapping[str, object]]] = []

    def answer(self, *, uuid: UUID | None = None, mac: str = "") -> BootAnswer | None:
        known = uuid or self.macs.get(mac)
        return self.answers.get(known) if known else None

    async def booted(self, uuid: UUID) -> None:
        self.boots.append(uuid)

    def leaves(self, uuid: UUID) -> None:
        self.left.append(uuid)

    def awaits(self, uuid: UUID, token: str) -> bool:
        return token == TOKEN and uuid not in [each for each, _ in self.reports]

    async def reported(self, uuid: UUID, record: Mapping[str, object]) -> None:
        self.reports.append((uuid, record))


def peers_of(machine: UUID, address: str, *, users: Mapping[int, int] | None = None) -> Peers:
    """Those of one service at 172.31.0.1, which has reserved this address for this machine, whose
    owner is user 1000. `users`: port of a connection from this host -> its user; all others root's.
    """
    made = Peers(lambda _: 1000, lambda peer, _: (users or {}).get(peer[1], 0))
    reserved = Reservation("02:00:00:00:00:01", address, "node-1", machine)
    shape = NetbootService("br0", "172.31.0.1/24", ("", ""), (reserved,))
    made.serve(machine, Key(Kind.NETBOOT, "here", "provision"), shape)
    return made


log = structlog.get_logger()


class Ranges(SimpleHTTPRequestHandler):
    """Serves a directory and answers requests for a part of a file, as web servers do (RFC 9110
    §14.2).
    """

    def do_GET(self) -> None:
        asked = self.headers.get("Range", "")
        if not asked:
            super().do_GET()
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        content = Path(self.translate_path(self.path)).read_bytes()
        part = content[int(first) : int(last) + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base's name)
        """Not a word."""


@contextmanager
def served(directory: Path, address: str) -> Iterator[str]:
    """URL of a directory that someone else serves at this address."""
    server = ThreadingHTTPServer((address, 0), partial(Ranges, directory=str(directory)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{address}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


MOST_WORK = 240.0
"""Seconds of processor time in which a guest under TCG boots; secure boot takes some 60."""
LOOK_SECONDS = 5.0
"""How often a silent guest is looked at."""


@dataclass(slots=True)
class Guest:
    """A running guest: what its console said so far."""

    process: asyncio.subprocess.Process
    said: bytes = b""

    async def until(self, text: bytes) -> None:
        """Read the console until it has said this. Raises `AssertionError` at its end."""
        while text not in self.said:
            await self._more(f"{text!r}")

    async def record(self) -> Record:
        """Read the console until the probe's record is whole."""
        while (record := find(self.said)) is None:
            await self._more("a record")
        return record

    async def _more(self, wanted: str) -> None:
        assert self.process.stdout is not None, "the console is a pipe"
        chunk = b""
        while not chunk:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    chunk = await self.process.stdout.read(65536)
            except TimeoutError:
                if self._worked() < MOST_WORK:
                    continue
            if not chunk:
                tail = self.said[-1500:].decode(errors="replace")
                worked = f"after {self._worked():.0f} s of work"
                raise AssertionError(f"the guest ended {worked} before {wanted}; it said: {tail}")
        self.said += chunk

    def _worked(self) -> float:
        """Seconds that its processors took: on a machine with much to do they are fewer than those
        of the clock (proc(5), /proc/pid/stat).
        """
        try:
            row = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            return 0.0
        return (int(row[11]) + int(row[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Hardware:
    """A guest's hardware; `more` are arguments of QEMU as they are. `unprivileged`: as no one.
    `display`: it has one, without which SeaBIOS prints on the serial port. `cpus`: under TCG, the
    second one costs a sixth more to boot.
    """

    firmware: Firmware
    uuid: UUID
    directory: Path
    memory: int = 256
    more: Sequence[str] = ()
    unprivileged: bool = False
    arch: Arch = Arch.X86_64
    display: bool = False
    cpus: int = 1


@asynccontextmanager
async def running(hardware: Hardware) -> AsyncIterator[Guest]:
    """A guest under TCG; killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *_command(hardware),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    guest = Guest(process)
    try:
        yield guest
    except BaseException:
        log.info("the guest's console", end=guest.said[-3000:].decode(errors="replace"))
        raise
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


OVMF = Path("/usr/share/OVMF")
_SECURE = (OVMF / "OVMF_CODE_4M.ms.fd", OVMF / "OVMF_VARS_4M.ms.fd")
_PLAIN = (OVMF / "OVMF_CODE_4M.fd", OVMF / "OVMF_VARS_4M.fd")
_ARM = (Path("/usr/share/AAVMF/AAVMF_CODE.fd"), Path("/usr/share/AAVMF/AAVMF_VARS.fd"))
_MACHINE = {
    # edk2 of 2022 stops on `max` with its 52-bit addresses
    Arch.AARCH64: ("qemu-system-aarch64", "-machine", "virt,accel=tcg", "-cpu", "cortex-a72"),
    Arch.X86_64: ("qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", "max"),
}


def _command(hardware: Hardware) -> list[str]:
    secure = hardware.firmware is Firmware.UEFI_SECURE
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]
    return [
        *(nobody if hardware.unprivileged else []),
        *(*_MACHINE[hardware.arch], "-smp", str(hardware.cpus)),
        *(["-machine", "smm=on"] if secure else []),
        *("-m", str(hardware.memory), "-uuid", str(hardware.uuid)),
        *("-nodefaults", "-serial", "stdio", "-no-reboot"),
        *(("-vga", "std", "-display", "none") if hardware.display else ("-nographic",)),
        *("-device", "virtio-rng-pci"),
        *_firmware(hardware, secure=secure),
        *hardware.more,
    ]


def _firmware(hardware: Hardware, *, secure: bool) -> list[str]:
    if hardware.firmware is Firmware.BIOS:
        return []
    code, variables = _SECURE if secure else _PLAIN
    if hardware.arch is Arch.AARCH64:
        code, variables = _ARM
    own = hardware.directory / "variables.fd"
    own.write_bytes(variables.read_bytes())
    own.chmod(0o666)
    flash = "if=pflash,format=raw"
    guard = ["-global", "driver=cfi.pflash01,property=secure,value=on"] if secure else []
    # firmware tries IPv6 for a minute before it goes on to the next device
    no_ipv6 = ["-fw_cfg", "name=opt/org.tianocore/IPv6Support,string=no"]
    return [
        *guard,
        *("-drive", f"{flash},readonly=on,file={code}", "-drive", f"{flash},file={own}"),
        *no_ipv6,
    ]
