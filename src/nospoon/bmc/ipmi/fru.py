"""FRU inventory (§34): device 0, read only, made of what the node is."""

from __future__ import annotations

from nospoon.bmc import fru
from nospoon.bmc.ipmi.vocabulary import (
    NOT_PRESENT,
    OK,
    OUT_OF_RANGE,
    WRITE_PROTECTED,
    Command,
    Context,
    Group,
    Reply,
    Result,
)
from nospoon.bmc.octets import shown
from nospoon.protocols.ipmi.session import Privilege

_DEVICE = 0


def _content(context: Context) -> bytes:
    bmc = context.bmc
    return fru.encode(bmc.state.inventory, asset_tag=shown(bmc.runtime.settings.asset_tag))


def _area_info(context: Context, data: bytes) -> Result:
    """§34.1: its size; accessed by bytes."""
    if data[0] != _DEVICE:
        return Reply(NOT_PRESENT)
    return Reply(OK, len(_content(context)).to_bytes(2, "little") + b"\x00")


def _read(context: Context, data: bytes) -> Result:
    """§34.2: a count, and so many bytes."""
    if data[0] != _DEVICE:
        return Reply(NOT_PRESENT)
    content, offset = _content(context), int.from_bytes(data[1:3], "little")
    if offset >= len(content):
        return Reply(OUT_OF_RANGE)
    part = content[offset : offset + min(data[3], 0xF0)]
    return Reply(OK, bytes([len(part)]) + part)


def _write(context: Context, data: bytes) -> Result:
    """§34.3: derived from the node, so that no one can disagree about it."""
    del context
    return Reply(WRITE_PROTECTED if data[0] == _DEVICE else NOT_PRESENT)


COMMANDS: Group = {
    (0x0A, 0x10): Command("Get FRU Inventory Area Info", Privilege.USER, 1, _area_info),
    (0x0A, 0x11): Command("Read FRU Data", Privilege.USER, 4, _read),
    (0x0A, 0x12): Command("Write FRU Data", Privilege.OPERATOR, 3, _write, more=None),
}
