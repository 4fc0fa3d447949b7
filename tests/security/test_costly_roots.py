"""Roots of containers that are costly to unpack: a megabyte of empty blocks took 0.2 s of the event
loop, and a cluster file could name it 20,000 times. What is packed well may be large, many files,
or a long name.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import struct
import subprocess
import sys
import tarfile
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.security.asked import OWNER, a_daemon

from nospoon.control.content import images
from nospoon.providers.docker.host import text_of
from nospoon.providers.docker.program import space
from nospoon.providers.docker.program.roots import most_members
from nospoon.providers.docker.program.shown import LARGEST, keep_own
from nospoon.providers.docker.program.wire import EngineError
from nospoon.providers.lxc.scripts import UNPACK

NAMES = 12
TEXT = "cluster: boxes\nhosts: {sim: simulated}\nnodes:\n" + "".join(
    f"- {{kind: container, name: box-{n}, image: root-{n}.tar.xz}}\n" for n in range(NAMES)
)


def empty_blocks(size: int) -> bytes:
    """An .xz whose blocks have nothing in them, with dictionaries of two sizes (The .xz File
    Format, 3.1).
    """
    flags = b"\0\0"
    blocks = [
        (head := bytes([2, 0, 0x21, 1, dictionary, 0, 0, 0]))
        + struct.pack("<I", zlib.crc32(head))
        + bytes(4)
        for dictionary in (31, 0)
    ]
    start = b"\xfd7zXZ\0" + flags + struct.pack("<I", zlib.crc32(flags))
    return (start + b"".join(blocks) * (size // 32))[:size]


def test_little_of_a_file_is_unpacked() -> None:
    bomb = empty_blocks(1 << 20)
    unpacking = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=images.XZ_MEMORY)
    assert unpacking.decompress(bomb, 512) == b""
    assert unpacking.needs_input  # nothing is wrong with it
    assert images.ROOT_HEAD <= 16 << 10


async def test_a_content_is_looked_at_once_and_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb, threads, looked_at = empty_blocks(1 << 16), list[int](), images.refuse_other_root
    digest = hashlib.sha256(bomb).hexdigest()

    def noted(name: str, head: bytes) -> None:
        threads.append(threading.get_ident())
        looked_at(name, head)

    monkeypatch.setattr(images, "refuse_other_root", noted)
    async with a_daemon(tmp_path) as asked:
        assert (await asked.ask(OWNER, "PUT", f"/v1/files/{digest}", bomb)).status == 204
        uploads = {f"root-{n}.tar.xz": digest for n in range(NAMES)}
        body = {"file": "boxes.yaml", "text": TEXT, "uploads": uploads}
        answer = await asked.ask(OWNER, "POST", "/v1/plan", body)
    assert answer.status == 400
    assert b"is not a root file system" in answer.body
    assert len(threads) == 1
    assert threading.get_ident() not in threads


INIT = tarfile.TarInfo("sbin/init")


def packed(members: Iterator[tarfile.TarInfo] | list[tarfile.TarInfo]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for each in members:
            archive.addfile(each, io.BytesIO(bytes(each.size)))
    return written.getvalue()


def said(argv: list[str], image: bytes, place: Path) -> str:
    """What a program says at its end of an image that it does not take."""
    path = place / "image"
    path.write_bytes(image)
    with path.open("rb") as file:
        done = subprocess.run(
            argv, stdin=file, capture_output=True, check=False, cwd=place, text=True
        )
    assert done.returncode != 0
    return done.stderr


def reading(*most: int) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", text_of("reading"), *map(str, most)]


UNPACKING = ["unshare", "--user", "--map-root-user", "python3", "-I", "-S", "-c", UNPACK]


@pytest.mark.parametrize("argv", [reading(1 << 30), UNPACKING], ids=["engine", "liblxc"])
@pytest.mark.parametrize("long", ["name", "linkname"])
def test_little_is_said_of_a_long_name(tmp_path: Path, argv: list[str], long: str) -> None:
    """A hundred megabytes of one letter are some kilobytes of an image, and were an error of as
    much, several at a time, in the daemon's memory.
    """
    odd = tarfile.TarInfo("link")
    odd.type, odd.linkname, odd.uid = tarfile.SYMTYPE, "there", 70_000
    setattr(odd, long, "a" * (4 << 20))
    assert len(said(argv, packed([INIT, odd]), tmp_path)) < 2000


def test_small_files_count_as_what_a_disk_has_of_them(tmp_path: Path) -> None:
    """Two million of a byte, or as many directories, were two megabytes and took eight gigabytes,
    of the last tenth of a disk, too.
    """
    files = [tarfile.TarInfo(f"f{number}") for number in range(300)]
    for each in files:
        each.size = 1
    assert "more than 1 MiB" in said(reading(1 << 20), packed([INIT, *files]), tmp_path)
    deep = [tarfile.TarInfo(f"{n}/" + "d/" * 40 + "f") for n in range(8)]
    assert "more than 1 MiB" in said(reading(1 << 20), packed([INIT, *deep]), tmp_path)
    assert "more than 0 MiB" in said(reading(0), packed([INIT]), tmp_path)
    assert "more than 100 members" in said(reading(1 << 30, 100), packed([INIT, *files]), tmp_path)


def test_images_leave_a_tenth_of_the_inodes_of_a_disk() -> None:
    disk, most = os.statvfs("/"), 100_000

    def with_free(free: int, of: int) -> os.statvfs_result:
        fields = list(disk)
        fields[5], fields[6], fields[7] = of, free, free  # f_files, f_ffree, f_favail
        return os.statvfs_result(fields)

    assert most_members(with_free(most, most)) == [45_000]
    assert most_members(with_free(most // 10, most)) == [0]
    assert most_members(with_free(0, 0)) == []


def test_a_large_file_of_names_is_not_copied_for_each_container(tmp_path: Path) -> None:
    """A member's image of some kilobytes had one of gigabytes, and each of its containers a copy,
    beside what images leave free.
    """
    image, written = tmp_path / "image", tmp_path / "diff"
    (image / "etc").mkdir(parents=True)
    written.mkdir()
    (image / "etc/hosts").write_bytes(b"127.0.0.1 own\n")
    keep_own([image], written, ["/etc/hosts"])
    assert (written / "etc/hosts").read_bytes() == b"127.0.0.1 own\n"
    os.truncate(image / "etc/hosts", LARGEST + 1)
    with pytest.raises(EngineError, match="/etc/hosts has more than 1 MiB"):
        keep_own([image], written, ["/etc/hosts"])
    assert (written / "etc/hosts").stat().st_size == 14


def test_images_that_are_read_at_one_moment_leave_a_tenth_of_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each took half of what was free when it began: of three at a time nothing was left."""
    disk, free = os.statvfs("/"), [1 << 18]

    def with_free(_: str) -> os.statvfs_result:
        fields = list(disk)
        fields[1:5], fields[5] = [4096, 1 << 18, free[0], free[0]], 0  # f_frsize to f_bavail
        return os.statvfs_result(fields)

    monkeypatch.setattr(os, "statvfs", with_free)
    quarter = 1 << 28
    with subprocess.Popen(["sleep", "600"]) as other:
        with space.importing(tmp_path, "/") as under_way:
            under_way.add(quarter)
            free[0] -= quarter // 4096
            theirs = tmp_path / ".importing" / str(other.pid)
            theirs.write_text(str(quarter))
            under_way.add(1)
            with pytest.raises(EngineError, match="leave a tenth of its disk free"):
                under_way.add(quarter)
        other.kill()
    with space.importing(tmp_path, "/") as under_way:  # the other one has ended
        under_way.add(quarter)
    assert not list(tmp_path.iterdir())
