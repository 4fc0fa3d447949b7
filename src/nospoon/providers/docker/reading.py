"""What reads a packed root on the host: of Python's standard library alone, without rights.

    program MOST <PACKED >TAR

It writes a tar with what may be in a root: no devices, of extended attributes capabilities alone
(those of overlayfs would lead out of the root), and users that a container has. It ends with 1 and
why where it is not the root of a system container, or is larger than MOST bytes.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tarfile
from typing import BinaryIO

MEMBERS = 2_000_000
IDS = 65_536
MEMORY, SECONDS = 1 << 30, 900
ZSTD = b"\x28\xb5\x2f\xfd"
"""RFC 8878, 3.1.1."""
CAPABILITY = "SCHILY.xattr.security.capability"
INITS = {"sbin/init", "usr/sbin/init"}


def main(most: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    source: BinaryIO = sys.stdin.buffer
    if os.pread(0, 4, 0) == ZSTD:
        packer = subprocess.Popen(["zstd", "-dcq"], stdin=0, stdout=subprocess.PIPE)
        assert packer.stdout is not None
        source = packer.stdout  # type: ignore[assignment]
    name = "its begin"
    try:
        packed = tarfile.open(fileobj=source, mode="r|*", errorlevel=2)  # noqa: SIM115
        clean = tarfile.open(  # noqa: SIM115  (what is not whole gets no end)
            fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT
        )
        has_init, size, count = False, 0, 0
        while (member := packed.next()) is not None:
            name = member.name
            packed.members.clear()  # type: ignore[attr-defined]  # they are as many as it has
            clean.members.clear()  # type: ignore[attr-defined]
            count += 1
            size += member.size
            if count > MEMBERS:
                sys.exit(f"it has more than {MEMBERS} members")
            if size > most:
                sys.exit(f"it has more than {most >> 20} MiB: No space left on the host")
            if max(member.uid, member.gid) >= IDS:
                sys.exit(f"{name!r}: its user is {member.uid}:{member.gid}, a container has {IDS}")
            if member.isdev():
                continue
            has_init |= member.name.lstrip("./") in INITS
            put(clean, packed, member)
        clean.close()
    except (tarfile.TarError, OSError, ValueError, EOFError, MemoryError, OverflowError) as error:
        sys.exit(f"{name!r}: {error or type(error).__name__}")
    if not has_init:
        sys.exit("it has no /sbin/init: it is not the root of a system container")


def put(clean: tarfile.TarFile, packed: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    granted = member.pax_headers.get(CAPABILITY)
    member.pax_headers = {CAPABILITY: granted} if granted and member.isreg() else {}
    file = packed.extractfile(member) if member.isreg() else None
    if member.isreg():
        member.type = tarfile.REGTYPE
    clean.addfile(member, file)


if __name__ == "__main__":
    main(int(sys.argv[1]))
