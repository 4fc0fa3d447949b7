"""Images of members that are small and of which QEMU reads, or says, very much."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

import pytest

from nospoon.control.content.images import LIMITED, MEMORY, image_facts
from nospoon.errors import UsageError
from nospoon.runtime import process

pytestmark = pytest.mark.tools
CLUSTER, SIZE = 1 << 16, 1 << 20
TABLES = 4
"""Clusters before the table of snapshots: header, refcount table, refcount block, L1 table."""
HEADER = struct.Struct(">4sIQIIQIIQQIIQQQQII")
BITMAP, BITMAPS = struct.Struct(">QIIBBHI"), 0x23852875
AUTO, ONES = 2, 1
"""A bitmap that QEMU reads upon opening; an entry of its table that means that all bits are set."""
SNAPSHOT = struct.Struct(">QIHHIIQIIQQ")


def with_snapshots(count: int) -> bytes:
    """A qcow2 (QEMU, docs/interop/qcow2.txt)."""
    refcounts, block, l1 = (number * CLUSTER for number in (1, 2, 3))
    head = HEADER.pack(
        b"QFI\xfb", 3, 0, 0, 16, SIZE, 0, 1, l1, refcounts, 1, count, TABLES * CLUSTER,
        0, 0, 0, 4, 104,
    )  # fmt: skip
    image = bytearray(TABLES * CLUSTER)
    image[: len(head)] = head
    struct.pack_into(">Q", image, refcounts, block)
    struct.pack_into(f">{TABLES}H", image, block, *[1] * TABLES)
    name = b'"' * 255
    for number in range(count):
        mark = b"%d" % number
        entry = SNAPSHOT.pack(l1, 1, len(mark), len(name), 0, 0, 0, 0, 16, 0, SIZE) + mark + name
        image += entry + bytes(-len(entry) % 8)
    return bytes(image)


async def test_an_image_with_thousands_of_snapshots_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(with_snapshots(2))
    assert (await image_facts(path, "seed.img", "ab")).virtual_size == SIZE
    path.write_bytes(with_snapshots(4096))
    with pytest.raises(UsageError, match=r"image seed.img has too many snapshots .*convert"):
        await image_facts(path, "seed.img", "ab")


THREADS = """
import threading
all_there = threading.Barrier(40)
def work():
    kept = [bytes(100_000) for _ in range(4)]
    all_there.wait()
threads = [threading.Thread(target=work, daemon=True) for _ in range(40)]
[each.start() for each in threads]
[each.join() for each in threads]
"""


async def test_what_reads_an_image_has_memory_for_many_threads() -> None:
    """QEMU has them on a busy machine alone."""
    await process.run([*LIMITED, sys.executable, "-c", THREADS])


async def test_an_image_of_a_larger_disk_than_files_may_ask_for_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "image"
    options = ["-f", "qcow2", "-o", "cluster_size=2M"]
    for pebi, fits in ((2, True), (3, False)):
        await process.run(["qemu-img", "create", *options, str(path), f"{pebi}P"])
        if fits:
            assert (await image_facts(path, "seed.img", "ab")).virtual_size == pebi << 50
            continue
        with pytest.raises(UsageError, match=r"seed.img is of a disk of 3072TiB, .* 2048TiB"):
            await image_facts(path, "seed.img", "ab")


def with_bitmaps(count: int) -> bytes:
    """A qcow2 with bitmaps of the whole disk, 16 GiB, a bit for 512 bytes: 4 MiB of memory each."""
    size = 16 << 30
    refcounts, block, l1, table, names = (number * CLUSTER for number in range(1, 6))
    clusters = (size >> 12) // CLUSTER
    directory = b""
    for number in range(count):
        name = b"b%d" % number
        entry = BITMAP.pack(table, clusters, AUTO, 1, 9, len(name), 0) + name
        directory += entry + bytes(-len(entry) % 8)
    head = HEADER.pack(
        b"QFI\xfb", 3, 0, 0, 16, size, 0, 32, l1, refcounts, 1, 0, 0, 0, 0, 1, 4, 104
    )
    head += struct.pack(">IIIIQQII", BITMAPS, 24, count, 0, len(directory), names, 0, 0)
    image = bytearray(6 * CLUSTER)
    image[: len(head)] = head
    struct.pack_into(">Q", image, refcounts, block)
    struct.pack_into(">6H", image, block, *[1] * 6)
    struct.pack_into(f">{clusters}Q", image, table, *[ONES] * clusters)
    image[names : names + len(directory)] = directory
    return bytes(image)


async def test_an_image_with_bitmaps_which_qemu_reads_into_memory_is_refused(
    tmp_path: Path,
) -> None:
    """24 KiB of them took 1 GiB in 4 s, as root; of a hundred, all that the machine has."""
    path, plain = tmp_path / "image", tmp_path / "plain"
    path.write_bytes(with_bitmaps(2))
    info = ["qemu-img", "info", "--output=json", str(path)]
    assert "bitmaps" in (await process.run(info)).stdout, "QEMU reads no bitmaps here"
    with pytest.raises(UsageError, match=r"image seed.img has bitmaps") as refused:
        await image_facts(path, "seed.img", "ab")
    assert refused.value.hint == "Make a plain one: qemu-img convert -O qcow2 OLD NEW."
    await process.run(["qemu-img", "convert", "-O", "qcow2", str(path), str(plain)])
    assert (await image_facts(plain, "seed.img", "ab")).virtual_size == 16 << 30


async def test_qemu_looks_at_an_image_with_a_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else an image may have it read."""
    path = tmp_path / "image"
    path.write_bytes(with_snapshots(2))
    tool = tmp_path / "bin" / "qemu-img"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nulimit -v >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    with pytest.raises(UsageError, match=f"cannot read it: {MEMORY >> 10}"):
        await image_facts(path, "seed.img", "ab")
