"""The System Event Log (§31), made of the aggregate's log."""

from __future__ import annotations

import struct
from dataclasses import replace

from nospoon.bmc.ipmi.vocabulary import (
    CANNOT_RETURN_SO_MANY,
    INVALID_FIELD,
    NOT_PRESENT,
    OK,
    OUT_OF_RANGE,
    RESERVATION_CANCELLED,
    Ask,
    Command,
    Context,
    Group,
    Reply,
    Result,
)
from nospoon.bmc.log import CAPACITY, OEM_TIMESTAMPED, SYSTEM_EVENT, encode
from nospoon.bmc.messages import LogAddRequested, LogEraseRequested, SettingsRequested
from nospoon.bmc.runtime import NO_UTC_OFFSET
from nospoon.protocols.ipmi.session import Privilege

_USER, _OPERATOR = Privilege.USER, Privilege.OPERATOR
RECORD_SIZE = 16
_VERSION = 0x51
_OVERFLOW, _DELETE, _RESERVE, _ALLOCATION = 0x80, 0x08, 0x02, 0x01
_INFO = struct.Struct("<BHHIIB")
_ALLOCATED = struct.Struct("<HHHHB")
_END = 0xFFFF
_ERASED = b"\x01"


def _stamp(at: float) -> int:
    return int(at) & 0xFFFFFFFF


def _is_reserved(context: Context, data: bytes) -> bool:
    reservation = int.from_bytes(data[:2], "little")
    return bool(reservation) and reservation == context.bmc.log.reservation


def _info(context: Context, data: bytes) -> Result:
    """§31.2: version 1.5, how full, when last changed."""
    del data
    log = context.bmc.log
    supports = _DELETE | _RESERVE | _ALLOCATION | (_OVERFLOW if log.overflowed else 0)
    free = (CAPACITY - len(log.records)) * RECORD_SIZE
    added, erased = _stamp(log.added_at), _stamp(log.erased_at)
    return Reply(OK, _INFO.pack(_VERSION, len(log.records), free, added, erased, supports))


def _allocation(context: Context, data: bytes) -> Result:
    """§31.3."""
    del data
    free = CAPACITY - len(context.bmc.log.records)
    return Reply(OK, _ALLOCATED.pack(CAPACITY, RECORD_SIZE, free, free, 1))


def _reserve(context: Context, data: bytes) -> Result:
    """§31.4."""
    del data
    return Reply(OK, context.bmc.log.reserve().to_bytes(2, "little"))


def _get(context: Context, data: bytes) -> Result:
    """§31.5: the next record's id, and the record or a part of it."""
    offset, size = data[4], data[5]
    if offset and not _is_reserved(context, data):
        return Reply(RESERVATION_CANCELLED)
    log = context.bmc.log
    place = log.find(int.from_bytes(data[2:4], "little"))
    if place is None:
        return Reply(NOT_PRESENT)
    if offset >= RECORD_SIZE:
        return Reply(OUT_OF_RANGE)
    if size != 0xFF and offset + size > RECORD_SIZE:
        return Reply(CANNOT_RETURN_SO_MANY)
    following = log.records[place + 1].id if place + 1 < len(log.records) else _END
    record = encode(log.records[place])
    part = record[offset:] if size == 0xFF else record[offset : offset + size]
    return Reply(OK, following.to_bytes(2, "little") + part)


def _add(context: Context, data: bytes) -> Result:
    """§31.6: the BMC gives the record its id, and its time where it has one."""
    if data[2] != SYSTEM_EVENT and data[2] < OEM_TIMESTAMPED:
        return Reply(INVALID_FIELD)  # reserved types of record (§32)
    added = context.bmc.log.next_id.to_bytes(2, "little")
    return Ask(LogAddRequested(data[:RECORD_SIZE]), added)


def _delete(context: Context, data: bytes) -> Result:
    """§31.8."""
    if not _is_reserved(context, data):
        return Reply(RESERVATION_CANCELLED)
    log = context.bmc.log
    place = log.find(int.from_bytes(data[2:4], "little"))
    if place is None:
        return Reply(NOT_PRESENT)
    record = log.records[place]
    return Ask(LogEraseRequested(record.number), record.id.to_bytes(2, "little"))


def _clear(context: Context, data: bytes) -> Result:
    """§31.9: 'CLR', then AAh to erase, 00h to ask how far that is."""
    if not _is_reserved(context, data) and data[5] != 0x00:
        return Reply(RESERVATION_CANCELLED)
    if data[2:5] != b"CLR" or data[5] not in {0x00, 0xAA}:
        return Reply(INVALID_FIELD)
    return Ask(LogEraseRequested(), _ERASED) if data[5] else Reply(OK, _ERASED)


def _time(context: Context, data: bytes) -> Result:
    """§31.10."""
    del data
    return Reply(OK, _stamp(context.bmc.state.clock(context.now)).to_bytes(4, "little"))


def _set_time(context: Context, data: bytes) -> Result:
    """§31.11: kept as an offset from the time of day."""
    wanted = int.from_bytes(data[:4], "little")
    state = context.bmc.state
    settings = state.runtime.settings
    real = state.clock(context.now) - settings.clock_offset
    return Ask(SettingsRequested(replace(settings, clock_offset=wanted - real)))


def _utc_offset(context: Context, data: bytes) -> Result:
    """§31.11a: minutes, signed."""
    del data
    offset = context.bmc.runtime.settings.utc_offset
    return Reply(OK, (offset & 0xFFFF).to_bytes(2, "little"))


def _set_utc_offset(context: Context, data: bytes) -> Result:
    """§31.11b: within a day, or 7FFh for not specified."""
    offset = int.from_bytes(data[:2], "little", signed=True)
    if offset != NO_UTC_OFFSET and abs(offset) > 1440:
        return Reply(INVALID_FIELD)
    settings = replace(context.bmc.runtime.settings, utc_offset=offset)
    return Ask(SettingsRequested(settings))


COMMANDS: Group = {
    (0x0A, 0x40): Command("Get SEL Info", _USER, 0, _info),
    (0x0A, 0x41): Command("Get SEL Allocation Info", _USER, 0, _allocation),
    (0x0A, 0x42): Command("Reserve SEL", _USER, 0, _reserve),
    (0x0A, 0x43): Command("Get SEL Entry", _USER, 6, _get),
    (0x0A, 0x44): Command("Add SEL Entry", _OPERATOR, RECORD_SIZE, _add),
    (0x0A, 0x46): Command("Delete SEL Entry", _OPERATOR, 4, _delete),
    (0x0A, 0x47): Command("Clear SEL", _OPERATOR, 6, _clear),
    (0x0A, 0x48): Command("Get SEL Time", _USER, 0, _time),
    (0x0A, 0x49): Command("Set SEL Time", _OPERATOR, 4, _set_time),
    (0x0A, 0x5C): Command("Get SEL Time UTC Offset", _USER, 0, _utc_offset),
    (0x0A, 0x5D): Command("Set SEL Time UTC Offset", _OPERATOR, 2, _set_utc_offset),
}
