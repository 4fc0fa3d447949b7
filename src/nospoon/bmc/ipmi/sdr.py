"""The SDR repository (§33): records made of the sensor table once, read by all BMCs (§43)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from nospoon.bmc.ipmi.vocabulary import (
    CANNOT_RETURN_SO_MANY,
    NOT_PRESENT,
    OK,
    OUT_OF_RANGE,
    RESERVATION_CANCELLED,
    Command,
    Context,
    Group,
    Reply,
    Result,
)
from nospoon.bmc.sensors import SENSORS, Analog, Discrete, Thresholds, Unit
from nospoon.protocols.ipmi.session import Privilege

_USER = Privilege.USER
VERSION, FULL, COMPACT, CONTROLLER_LOCATOR = 0x51, 0x01, 0x02, 0x12
BMC_ADDRESS = 0x20
_THRESHOLD_TYPE, SENSOR_SPECIFIC = 0x01, 0x6F
_LAST = 0xFFFF
_NAME = 0xC0
_INIT = 0x03
"""Scanning and event generation are enabled at power-up (§43.1, byte 11, bits 1:0)."""
_AUTO_REARM, _READABLE, _NO_EVENTS = 0x40, 0x04, 0x03

UNIT_CODES: Mapping[Unit, int] = {Unit.CELSIUS: 1, Unit.WATTS: 6, Unit.RPM: 18}
"""Table 43-15."""
ENTITIES: Mapping[int, tuple[int, int]] = {
    1: (0x37, 1), 2: (0x03, 1), 3: (0x1D, 1), 4: (0x1D, 2), 5: (0x0A, 1), 7: (0x13, 1),
}  # fmt: skip
"""Sensor -> entity id (table 43-13) and instance; the system board for the rest."""
_SYSTEM_BOARD = (0x07, 1)
_UNIT = 64
"""Bytes of an allocation unit: what a full record needs at most (§43.1)."""
RESERVATION = 1
"""The repository never changes, so that a reservation is never lost (§33.11)."""


def threshold_bytes(sensor: Analog) -> tuple[int, bytes]:
    """Which there are, by bit, and raw values in the order of §35.9: LNC LC LNR UNC UC UNR."""
    limits = _in_order(sensor.thresholds)
    mask = sum(1 << bit for bit, limit in enumerate(limits) if limit is not None)
    return mask, bytes(raw(sensor, limit) if limit is not None else 0 for limit in limits)


def _in_order(limits: Thresholds) -> tuple[float | None, ...]:
    return (
        limits.lower_caution, limits.lower_critical, None,
        limits.upper_caution, limits.upper_critical, limits.upper_fatal,
    )  # fmt: skip


def raw(sensor: Analog, value: float) -> int:
    """A reading as a byte; what does not fit is the nearest that does."""
    return min(255, max(0, round(value / sensor.step)))


def _full(record: int, sensor: Analog) -> bytes:
    """§43.1."""
    mask, limits = threshold_bytes(sensor)
    lower, upper = mask & 0x07, mask >> 3 & 0x07
    capabilities = _AUTO_REARM | _NO_EVENTS | (_READABLE if mask else 0)
    body = struct.pack(
        "<BBBBBBBBBHHHBBBB",
        BMC_ADDRESS, 0, sensor.number, *ENTITIES.get(sensor.number, _SYSTEM_BOARD),
        _INIT, capabilities, sensor.type, _THRESHOLD_TYPE,
        lower << 12, upper << 12, mask, 0, UNIT_CODES[sensor.unit], 0, 0,
    )  # fmt: skip
    body += bytes([sensor.step, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0])
    lnc, lc, lnr, unc, uc, unr = limits
    body += bytes([unr, uc, unc, lnr, lc, lnc, 0, 0, 0, 0, 0])
    return _record(record, FULL, body + _named(sensor.name))


def _compact(record: int, sensor: Discrete) -> bytes:
    """§43.2."""
    body = struct.pack(
        "<BBBBBBBBBHHHBBBHBBBBBB",
        BMC_ADDRESS, 0, sensor.number, *ENTITIES.get(sensor.number, _SYSTEM_BOARD),
        _INIT, _AUTO_REARM, sensor.type, SENSOR_SPECIFIC,
        sensor.mask, sensor.mask, sensor.mask, 0xC0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    )  # fmt: skip
    return _record(record, COMPACT, body + _named(sensor.name))


def _controller(record: int) -> bytes:
    """§43.9: what the BMC is to a bus: sensors, SDR repository, SEL, FRU inventory, chassis."""
    body = bytes([BMC_ADDRESS, 0, 0, 0x8F, 0, 0, 0, *_SYSTEM_BOARD, 0])
    return _record(record, CONTROLLER_LOCATOR, body + _named("BMC"))


def _named(name: str) -> bytes:
    return bytes([_NAME | len(name)]) + name.encode("latin-1")


def _record(record: int, kind: int, body: bytes) -> bytes:
    return struct.pack("<HBBB", record, VERSION, kind, len(body)) + body


def _records() -> Iterator[bytes]:
    for record, sensor in enumerate(SENSORS, 1):
        match sensor:
            case Analog():
                yield _full(record, sensor)
            case Discrete():
                yield _compact(record, sensor)
    yield _controller(len(SENSORS) + 1)


RECORDS: tuple[bytes, ...] = tuple(_records())


def _info(context: Context, data: bytes) -> Result:
    """§33.9: not modal, reservations and allocation info are supported."""
    del context, data
    return Reply(OK, struct.pack("<BHHIIB", VERSION, len(RECORDS), 0, 0, 0, 0x03))


def _allocation(context: Context, data: bytes) -> Result:
    """§33.10: full; the largest record takes one unit."""
    del context, data
    return Reply(OK, struct.pack("<HHHHB", len(RECORDS), _UNIT, 0, 0, 1))


def _reserve(context: Context, data: bytes) -> Result:
    """§33.11."""
    del context, data
    return Reply(OK, RESERVATION.to_bytes(2, "little"))


def _get(context: Context, data: bytes) -> Result:
    """§33.12: the next record's id, and the record or a part of it."""
    del context
    reservation, record, offset, size = struct.unpack_from("<HHBB", data)
    if reservation != RESERVATION and (reservation or offset):
        return Reply(RESERVATION_CANCELLED)
    place = len(RECORDS) - 1 if record == _LAST else max(record, 1) - 1
    if place >= len(RECORDS):
        return Reply(NOT_PRESENT)
    content = RECORDS[place]
    if offset >= len(content):
        return Reply(OUT_OF_RANGE)
    if size != 0xFF and offset + size > len(content):
        return Reply(CANNOT_RETURN_SO_MANY)
    following = place + 2 if place + 1 < len(RECORDS) else _LAST
    part = content[offset:] if size == 0xFF else content[offset : offset + size]
    return Reply(OK, following.to_bytes(2, "little") + part)


def _time(context: Context, data: bytes) -> Result:
    """§33.17: the same clock as the SEL's."""
    del data
    at = int(context.bmc.state.clock(context.now)) & 0xFFFFFFFF
    return Reply(OK, at.to_bytes(4, "little"))


COMMANDS: Group = {
    (0x0A, 0x20): Command("Get SDR Repository Info", _USER, 0, _info),
    (0x0A, 0x21): Command("Get SDR Repository Allocation Info", _USER, 0, _allocation),
    (0x0A, 0x22): Command("Reserve SDR Repository", _USER, 0, _reserve),
    (0x0A, 0x23): Command("Get SDR", _USER, 6, _get),
    (0x0A, 0x28): Command("Get SDR Repository Time", _USER, 0, _time),
}
