"""Field replaceable unit inventory (Platform Management FRU Information Storage Definition v1.0),
made of what identifies the node.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

MANUFACTURER, PRODUCT = "nospoon", "nospoon virtual server"
NOBODY = UUID(int=0)
CHASSIS_TYPE = 0x17
"""SMBIOS 3.x table 17: rack mount chassis."""
_LATIN, _END, _ENGLISH = 0xC0, 0xC1, 0x00
_LIMIT = 0x3F


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a node is made of, as its BMC knows it. `serial`: the machine's SMBIOS serial number.

    `memory` in bytes. `version` of its BMC and `firmware` of its own, before any update.
    `boots_root`: whatever its BMC is asked for, it boots its root.
    """

    name: str = ""
    uuid: UUID = NOBODY
    serial: str = ""
    cpus: int = 1
    memory: int = 0
    version: str = ""
    firmware: str = ""
    boots_root: bool = False


def encode(node: Inventory, *, asset_tag: str = "") -> bytes:
    """The whole FRU storage: common header (§8), chassis (§10), board (§11), product (§12)."""
    areas = [
        _area(bytes([CHASSIS_TYPE]), PRODUCT, node.serial),
        _area(bytes([_ENGLISH, 0, 0, 0]), MANUFACTURER, PRODUCT, node.serial, "", ""),
        _area(
            bytes([_ENGLISH]),
            MANUFACTURER, PRODUCT, "", node.version, node.serial, asset_tag, "",
            node.name, str(node.uuid),
        ),
    ]  # fmt: skip
    offsets, at = [], 1
    for area in areas:
        offsets.append(at)
        at += len(area) // 8
    header = bytes([0x01, 0x00, *offsets, 0x00, 0x00])
    return header + bytes([-sum(header) & 0xFF]) + b"".join(areas)


def _area(start: bytes, *fields: str) -> bytes:
    """Format version, length in eight bytes, content, padding, checksum."""
    body = start + b"".join(_field(each) for each in fields) + bytes([_END])
    length = -(-(len(body) + 3) // 8)
    area = bytes([0x01, length]) + body
    area = area.ljust(length * 8 - 1, b"\0")
    return area + bytes([-sum(area) & 0xFF])


def _field(text: str) -> bytes:
    """Type/length byte (§13) and 8-bit text; one character would look like the end (C1h)."""
    data = text.encode("latin-1", "replace")[:_LIMIT]
    data = data + b" " if len(data) == 1 else data
    return bytes([_LATIN | len(data)]) + data
