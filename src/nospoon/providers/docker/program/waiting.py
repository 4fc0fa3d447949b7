"""The first process of a container whose engine cannot prepare it: it waits for a signal, and then
becomes the container's init. Nothing of the image has run until then, not even its loader.

It is a static program (elf(5)) of some hundred bytes, with no code but that of `waiting.*.s`: it
blocks `BEGINS` and `WAITS`, waits for the former (rt_sigtimedwait(2)), unblocks both and executes
its arguments. A signal that is blocked reaches PID 1 of a namespace though nothing handles it
(pid_namespaces(7)). `WAITS` is never sent: that it is blocked shows that the process is there.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from nospoon.providers.docker.program.processes import began, content
from nospoon.providers.docker.program.wire import EngineError

NAME = ".nospoon-waits"
"""Of the program in a container's root, where it is until it runs."""
BEGINS, WAITS = signal.SIGUSR1, signal.SIGUSR2
X86_64 = (
    "31ffe84a000000b880000000488d3d5500000031f631d241ba080000000f0585c078e4bf01000000e824000000"
    "488b0c24488d54cc10488d742410488b3eb83b0000000f05bf7f000000b83c0000000f05b80e000000488d3513"
    "00000031d241ba080000000f05c30002000000000000000a000000000000"
)
AARCH64 = (
    "000080d21400009440030010010080d2020080d2030180d2281180d2010000d440ffffb7200080d20b000094e3"
    "0340f9e1430091e26f238b42400091200040f9a81b80d2010000d4e00f80d2a80b80d2010000d4210100100200"
    "80d2030180d2e81080d2010000d4c0035fd61f2003d50002000000000000000a000000000000"
)
MACHINES = {"x86_64": (62, X86_64), "aarch64": (183, AARCH64)}
"""Of uname(2): number of the machine (e_machine), and the code."""
BASE, PAGE = 0x400000, 0x1000
SECONDS = 30.0
"""Within which it gets that far. A command has a minute, and is to say why it failed."""


def program(machine: str) -> bytes:
    """The file: one segment that is read and executed. Raises `EngineError`."""
    if machine not in MACHINES:
        raise EngineError(f"there are no containers of Docker Engine on {machine}: use Podman")
    number, text = MACHINES[machine]
    code = bytes.fromhex(text)
    heads = 64 + 56
    size = heads + len(code)
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)  # 64 bits, little-endian, version 1
    head = struct.pack(
        "<HHIQQQIHHHHHH", 2, number, 1, BASE + heads, 64, 0, 0, 64, 56, 1, 0, 0, 0
    )  # fmt: skip
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, BASE, BASE, size, size, PAGE)
    return ident + head + segment + code


def packed() -> bytes:
    """A tar with it, for the root of a container."""
    import tarfile  # noqa: PLC0415  (it takes as long as the rest)

    content = program(os.uname().machine)
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        member = tarfile.TarInfo(NAME)
        member.size, member.mode = len(content), 0o755
        archive.addfile(member, io.BytesIO(content))
    return written.getvalue()


def put(written: Path) -> None:
    """Into what a container has written, while it is off. The file is one that is kept beside that:
    where the container has filled its root, no block is needed. Raises `EngineError`.
    """
    kept, wanted = written.with_name("waits"), program(os.uname().machine)
    there, part = written / NAME, kept.with_name("waits.part")
    try:
        if not kept.exists() or kept.read_bytes() != wanted:
            part.write_bytes(wanted)
            part.chmod(0o755)
            part.replace(kept)
        if there.is_dir() and not there.is_symlink():
            shutil.rmtree(there)
        there.unlink(missing_ok=True)
        there.hardlink_to(kept)
    except OSError as error:
        raise EngineError(
            f"its first process cannot be put into its root: {error.strerror}"
        ) from error


def until_waits(pid: int) -> None:
    """Until it can be sent `BEGINS`; then its file is removed. Raises `EngineError`."""
    for _ in looks(pid, "does not wait"):
        status = content(Path(f"/proc/{pid}/status")).decode(errors="replace")
        blocked = next((x.split()[1] for x in status.splitlines() if x.startswith("SigBlk:")), "0")
        if is_waiting(pid) and int(blocked, 16) >> (WAITS - 1) & 1:
            break
    else:
        raise EngineError("its first process ended: it does not wait")
    # No link is followed: it is looked up in the root itself, and the last name is never one.
    Path(f"/proc/{pid}/root/{NAME}").unlink(missing_ok=True)


def begin(pid: int) -> None:
    """Have it become the init, and return when it has. It may have ended by then: an init that ends
    at once did begin.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, BEGINS)
    for _ in looks(pid, "does not become its init"):
        if not is_waiting(pid) and content(Path(f"/proc/{pid}/cmdline")):  # b"": it is ending
            break


def is_waiting(pid: int) -> bool:
    return content(Path(f"/proc/{pid}/cmdline")).startswith(f"/{NAME}\0".encode())


def looks(pid: int, what: str) -> Iterator[None]:
    """One after the other, as long as it is there. Raises `EngineError`."""
    until = time.monotonic() + SECONDS
    while began(pid):
        yield
        if time.monotonic() > until:
            raise EngineError(f"its first process {what} within {SECONDS:.0f} s")
        time.sleep(0.005)
