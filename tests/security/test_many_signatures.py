"""What a guest writes among its firmware's keys costs the daemon little."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest

from nospoon.providers.libvirt.key_databases import MOST, signatures
from nospoon.providers.libvirt.varstore import BadVariables

SHA256 = UUID("c1c41626-504c-4092-aca9-41f936934328")


def database(count: int) -> bytes:
    """Lists of 16 signatures without data: as many as fit."""
    one = SHA256.bytes_le + struct.pack("<LLL", 28 + 16 * 16, 0, 16) + bytes(16 * 16)
    return one * (count // 16)


def test_a_database_has_a_bounded_number_of_signatures() -> None:
    assert len(list(signatures(database(MOST)))) == MOST
    with pytest.raises(BadVariables, match="more than 4096 signatures"):
        list(signatures(database(MOST + 16)))
