"""Images of members, of which QEMU has more to say than the daemon can read at once."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from nospoon.control.content.images import image_facts
from nospoon.errors import UsageError
from nospoon.runtime import process

pytestmark = pytest.mark.tools
CLUSTER, SIZE = 1 << 16, 1 << 20
TABLES = 4
"""Clusters before the table of snapshots: header, refcount table, refcount block, L1 table."""
HEADER = struct.Struct(">4sIQIIQIIQQIIQQQQII")
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
