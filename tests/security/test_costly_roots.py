"""Roots of containers that are costly to unpack: a megabyte of empty blocks took 0.2 s of the event
loop, and a cluster file could name it 20,000 times.
"""

from __future__ import annotations

import hashlib
import lzma
import struct
import threading
import zlib
from pathlib import Path

import pytest
from tests.security.asked import OWNER, a_daemon

from nospoon.control.content import images

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
