"""Roots and layers that are written so that what is left out of them reaches the engine."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from nospoon.providers.docker.host import text_of

BLOCK = 512


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.size = kind, size
    return made


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for each, content in (*members, (member("sbin/init"), b"")):
            archive.addfile(each, io.BytesIO(content))
    return written.getvalue()


def read(tmp_path: Path, image: bytes) -> list[tarfile.TarInfo]:
    """What the engine would be given. Raises `ValueError` with the reason."""
    path = tmp_path / "image"
    path.write_bytes(image)
    argv = [sys.executable, "-I", "-S", "-c", text_of("reading"), str(1 << 30)]
    with path.open("rb") as file:
        done = subprocess.run(argv, stdin=file, capture_output=True, check=False)
    if done.returncode != 0:
        raise ValueError(done.stderr.decode())
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        return list(archive)


@pytest.mark.parametrize("kind", [b"Z", b"D", b"V", tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_no_header_says_that_the_next_files_are_its_content(tmp_path: Path, kind: bytes) -> None:
    """A member of a type without a name was passed on with its size and without its content, so
    that an engine took the next header for that, and the content of the next file for headers: of
    a device, of another user's ids, of attributes of overlayfs.
    """
    device = member("dev/disk", tarfile.BLKTYPE).tobuf(tarfile.GNU_FORMAT)
    hidden = member("a", size=len(device))
    odd = member(".wh..wh.b/odd", kind, 0 if kind in tarfile.SUPPORTED_TYPES else BLOCK)
    image = bytearray(packed((odd, bytes(odd.size)), (hidden, device)))
    if not odd.size:  # what has a link's type has no content in the archive
        odd.size = BLOCK
        image[:BLOCK] = odd.tobuf(tarfile.GNU_FORMAT)
    found = read(tmp_path, bytes(image))
    assert [each.name for each in found] == ["a", "sbin/init"]
    assert all(each.isreg() for each in found)


@pytest.mark.parametrize("kind", [b"Z", tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_no_link_leads_to_what_a_root_does_not_have(tmp_path: Path, kind: bytes) -> None:
    """A device that a layer above removes was written as the file that a link to it names."""
    link = member("a", tarfile.LNKTYPE)
    link.linkname = "dev/disk"
    lower = packed((member("dev/disk", kind), b""), (link, b""))
    upper = packed((member("dev/.wh.disk"), b""))
    files = {"0/layer.tar": lower, "1/layer.tar": upper}
    files["manifest.json"] = json.dumps([{"Layers": list(files)}]).encode()
    saved = packed(*((member(name, size=len(each)), each) for name, each in files.items()))
    assert [each.name for each in read(tmp_path, saved)] == ["sbin/init"]


def test_links_have_no_size(tmp_path: Path) -> None:
    link = member("a", tarfile.SYMTYPE)
    image = bytearray(packed((link, b"")))
    link.size = BLOCK
    image[:BLOCK] = link.tobuf(tarfile.GNU_FORMAT)
    assert [(each.name, each.size) for each in read(tmp_path, bytes(image))] == [
        ("a", 0),
        ("sbin/init", 0),
    ]


def test_users_are_those_that_a_container_has(tmp_path: Path) -> None:
    owned = member("a")
    owned.uid = -1
    with pytest.raises(ValueError, match="'a': its user is -1:0, of 65536"):
        read(tmp_path, packed((owned, b"")))
