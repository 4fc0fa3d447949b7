"""A file as a qcow2 image that holds all of it and refers to nothing.

    header | refcount table | refcount block | L1 table | L2 table | content

Each part is one cluster, the content as many as it needs.
https://qemu-project.gitlab.io/qemu/interop/qcow2.html
"""

from __future__ import annotations

import struct

MAGIC, VERSION = b"QFI\xfb", 3
CLUSTER_BITS = 16
CLUSTER = 1 << CLUSTER_BITS
SECTOR = 512
REFCOUNTS, BLOCK, L1, L2, CONTENT = range(1, 6)
"""Numbers of the first cluster of each part."""
COPIED = 1 << 63
"""Of an entry whose cluster has one reference."""
REFCOUNT_ORDER, HEADER_LENGTH = 4, 104
MOST = CLUSTER * (CLUSTER // 8)
"""Bytes that one L2 table maps; one block has refcounts for four times as many."""


def qcow2(content: bytes) -> bytes:
    """An image of this content, in whole sectors. Raises `ValueError` for more than 512 MiB."""
    if len(content) > MOST:
        raise ValueError(f"expected at most {MOST} bytes, got {len(content)}")
    clusters = -(-len(content) // CLUSTER)
    header = struct.pack(
        ">4sIQIIQIIQQIIQQQQII",
        MAGIC, VERSION, 0, 0, CLUSTER_BITS, -(-len(content) // SECTOR) * SECTOR, 0, 1,
        L1 * CLUSTER, REFCOUNTS * CLUSTER, 1, 0, 0, 0, 0, 0, REFCOUNT_ORDER, HEADER_LENGTH,
    )  # fmt: skip
    used = CONTENT + clusters
    parts = (
        header,
        struct.pack(">Q", BLOCK * CLUSTER),
        struct.pack(f">{used}H", *(1,) * used),
        struct.pack(">Q", L2 * CLUSTER | COPIED),
        struct.pack(
            f">{clusters}Q", *((CONTENT + number) * CLUSTER | COPIED for number in range(clusters))
        ),
    )
    whole = b"".join(each.ljust(CLUSTER, b"\0") for each in parts)
    return whole + content.ljust(clusters * CLUSTER, b"\0")
