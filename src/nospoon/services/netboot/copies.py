"""What is copied to a host with a service of network boot, and what comes back from there.

That is its record, service.json, and `manifest`, a line per file with its SHA-256 and path. A host
may send anything instead.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from base64 import b64decode
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from nospoon.services.netboot.tree import Saved, decoded

MANIFEST = "manifest"
LONGEST_RECORD, MOST_OBJECTS = 8 << 20, 25_000
"""Characters of a service.json in base64, and objects in it: 20,000 nodes take 5 Mi. More is not
nospoon's own, and a thread that decodes it holds up all others.
"""
LONGEST_LIST, MOST_FILES = 16 << 20, 200_000
"""Characters of a manifest or of leases, and lines: a NIC has three files of 100 characters."""
MOST_SERVICES = 10_000
"""Lines about services of one host."""
GONE = ".gone"
"""Names of files to be removed, each with a NUL: of a command line there is 128 KiB (execve(2))."""


def digests(directory: Path) -> dict[str, str]:
    """Path below the directory -> SHA-256 of each file."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def manifest_of(digests: dict[str, str]) -> bytes:
    return "".join(f"{digest} {name}\n" for name, digest in digests.items()).encode()


def is_short(text: str) -> bool:
    """Whether a list that a host sent is worked on: of 64 MiB that takes many seconds."""
    return len(text) <= LONGEST_LIST and text.count("\n") <= MOST_FILES


def digests_in(text: str) -> dict[str, str]:
    pairs = (line.partition(" ") for line in text.split("\n") if line)
    return {name: digest for digest, _, name in pairs}


def archive(directory: Path, names: Collection[str], more: Mapping[str, bytes]) -> bytes:
    """A tar file; directories so that dnsmasq can watch them also while they are empty. `more`:
    further files, which come last.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted(directory.rglob("*")):
            name = str(path.relative_to(directory))
            if path.is_dir() or name in names:
                tar.add(path, arcname=name, recursive=False, filter=_anonymous)
        for name, content in more.items():
            last = tarfile.TarInfo(name)
            last.size = len(content)
            tar.addfile(last, io.BytesIO(content))
    return packed.getvalue()


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def rows_in(text: str) -> list[tuple[str, str, str, str, str]]:
    """What LOOK prints, by its words; other lines are not its own."""
    found = list[tuple[str, str, str, str, str]]()
    for line in text.split("\n"):
        match line.split(maxsplit=5):
            case [pid, bridge, then, place, packed]:
                found.append((pid, bridge, then, place, packed))
            case [pid, bridge, then, place]:  # service.json is empty
                found.append((pid, bridge, then, place, ""))
    return found


def record_in(packed: str) -> Saved | None:
    """service.json in base64; None where a full disk left nothing, or half, of it."""
    if len(packed) > LONGEST_RECORD:
        return None
    try:
        data = b64decode(packed)
        if data.count(b"{") > MOST_OBJECTS:
            return None
        return decoded(data)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None
