"""Data Center Manageability Interface 1.5: discovery, power, names, temperatures."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace

from nospoon.bmc.ipmi.sdr import ENTITIES
from nospoon.bmc.ipmi.vocabulary import (
    INVALID_FIELD,
    OK,
    OUT_OF_RANGE,
    PARAMETER_NOT_SUPPORTED,
    WRONG_LENGTH,
    Ask,
    Command,
    Context,
    Group,
    Handler,
    Reply,
    Result,
)
from nospoon.bmc.log import CAPACITY
from nospoon.bmc.messages import SettingsRequested
from nospoon.bmc.octets import kept, octets
from nospoon.bmc.sensors import BY_NUMBER, Analog, reading
from nospoon.protocols.ipmi.session import Privilege

_USER, _OPERATOR, _ADMINISTRATOR = Privilege.USER, Privilege.OPERATOR, Privilege.ADMINISTRATOR
GROUP_EXTENSION = 0xDC
_VERSION = bytes([GROUP_EXTENSION, 1, 5, 2])
_NO_LIMIT = 0x80
"""Get Power Limit (§6.6.2): no limit is set."""
_TAG_SIZE, _ID_SIZE, _PART = 63, 63, 16
_POWER, _WINDOW, _SAMPLES = 5, 60.0, 30
_ROLLOVER, _OLDEST_FIRST = 0x8000, 0x1000
"""Table 6-3, SEL attributes: it rolls over by itself, record by record."""
_ASSET_TAG = 0x04
"""Table 6-3, identification attributes."""
_NO_CHANNEL = 0xFF
_ENTITIES: Mapping[int, tuple[int, ...]] = {0x40: (1,), 0x37: (1,), 0x41: (2,), 0x03: (2,)}
"""Entity -> temperature sensors: 40h inlet, 41h CPU (§6.5.2), and those of the SDRs."""
_TEMPERATURE = 0x01
_HIGHEST = 127

CAPABILITIES: Mapping[int, bytes] = {
    1: bytes([0x00, 0x01, 0x00]),
    2: (_ROLLOVER | _OLDEST_FIRST | CAPACITY).to_bytes(2, "little")
    + bytes([_ASSET_TAG, 0x00, 0x01]),
    3: bytes([0x20 << 1 & 0xFE, 0x00]),
    4: bytes([0x01, _NO_CHANNEL, _NO_CHANNEL]),
    5: bytes([0x01, 0x41]),
}
"""§6.1: power management; the SEL rolls over; who measures; over which channel; one minute."""


def _dcmi(handler: Handler) -> Handler:
    """The first byte names the extension, in the request and in the reply."""

    def checked(context: Context, data: bytes) -> Result:
        if data[0] != GROUP_EXTENSION:
            return Reply(INVALID_FIELD)
        return handler(context, data[1:])

    return checked


def _capabilities(context: Context, data: bytes) -> Result:
    """§6.1."""
    del context
    if data[0] not in CAPABILITIES:
        return Reply(PARAMETER_NOT_SUPPORTED)
    return Reply(OK, _VERSION + CAPABILITIES[data[0]])


def _power_reading(context: Context, data: bytes) -> Result:
    """§6.6.1: current, minimum, maximum and average watts of the last minute."""
    if data[0] not in {1, 2}:
        return Reply(INVALID_FIELD)
    now, sensor = context.now, BY_NUMBER[_POWER]
    assert isinstance(sensor, Analog), "the power draw is"
    start = max(context.bmc.state.since, now - _WINDOW)
    times = [start + (now - start) * step / _SAMPLES for step in range(1, _SAMPLES + 1)]
    watts = [round(reading(sensor, context.bmc, at) or 0) for at in times]
    stamp = int(context.bmc.state.clock(now)) & 0xFFFFFFFF
    told = (watts[-1], min(watts), max(watts), round(sum(watts) / len(watts)))
    packed = struct.pack("<HHHHII", *told, stamp, round((now - start) * 1000))
    return Reply(OK, bytes([GROUP_EXTENSION]) + packed + b"\x40")


def _power_limit(context: Context, data: bytes) -> Result:
    """§6.6.2: there is none."""
    del context, data
    return Reply(_NO_LIMIT, bytes([GROUP_EXTENSION]) + bytes(13))


def _part(text: bytes, data: bytes) -> Result:
    """Up to 16 bytes from an offset, with the whole length."""
    offset, size = data[0], data[1]
    if size > _PART:
        return Reply(INVALID_FIELD)
    if offset > len(text):
        return Reply(OUT_OF_RANGE)
    return Reply(OK, bytes([GROUP_EXTENSION, len(text)]) + text[offset : offset + size])


def _written(before: bytes, data: bytes, limit: int) -> bytes | Reply:
    """The text after up to 16 bytes were written at an offset; it ends with them, and has room for
    a zero at its end.
    """
    offset, size, part = data[0], data[1], data[2:]
    if size > _PART or len(part) != size:
        return Reply(WRONG_LENGTH)
    after = before[:offset] + part
    if offset > len(before) or len(after) > limit + 1 or len(_ended(after)) > limit:
        return Reply(OUT_OF_RANGE)
    return after


def _ended(written: bytes) -> bytes:
    """What is before the first zero."""
    return written.partition(b"\0")[0]


def _asset_tag(context: Context, data: bytes) -> Result:
    """§6.4.2."""
    return _part(octets(context.bmc.runtime.settings.asset_tag), data)


def _set_asset_tag(context: Context, data: bytes) -> Result:
    """§6.4.3: bytes, in parts."""
    settings = context.bmc.runtime.settings
    written = _written(octets(settings.asset_tag), data, _TAG_SIZE)
    if isinstance(written, Reply):
        return written
    tag = kept(_ended(written))
    total = bytes([GROUP_EXTENSION, len(written)])
    return Ask(SettingsRequested(replace(settings, asset_tag=tag)), total)


def _identifier(context: Context) -> bytes:
    stored = context.bmc.runtime.settings.controller_id
    return octets(stored or context.bmc.state.inventory.name) + b"\0"


def _controller_id(context: Context, data: bytes) -> Result:
    """§6.4.6.1: the node's name until someone sets another; ends with a zero."""
    return _part(_identifier(context), data)


def _set_controller_id(context: Context, data: bytes) -> Result:
    """§6.4.6.2."""
    settings = context.bmc.runtime.settings
    written = _written(_identifier(context), data, _ID_SIZE)
    if isinstance(written, Reply):
        return written
    name = kept(_ended(written))
    total = bytes([GROUP_EXTENSION, len(written)])
    return Ask(SettingsRequested(replace(settings, controller_id=name)), total)


def _sensors(data: bytes) -> tuple[int, list[int]]:
    """How many temperature sensors an entity has, and which of them are asked for: one instance,
    or with 0 all from one on (§6.5.2, bytes 3 to 5).
    """
    _, entity, instance, start = data[:4]
    there = _ENTITIES.get(entity, ())
    wanted = (
        number
        for number in there
        if ENTITIES[number][1] == instance or (not instance and ENTITIES[number][1] >= start)
    )
    return len(there), list(wanted)


def _sensor_info(context: Context, data: bytes) -> Result:
    """§6.5.2: SDR record ids of an entity's temperature sensors."""
    del context
    if data[0] != _TEMPERATURE:
        return Reply(INVALID_FIELD)
    total, found = _sensors(data)
    records = b"".join(number.to_bytes(2, "little") for number in found)
    return Reply(OK, bytes([GROUP_EXTENSION, total, len(found)]) + records)


def _temperatures(context: Context, data: bytes) -> Result:
    """§6.7.3: whole degrees and the entity's instance."""
    if data[0] != _TEMPERATURE:
        return Reply(INVALID_FIELD)
    total, found = _sensors(data)
    told = b""
    for number in found:
        sensor = BY_NUMBER[number]
        assert isinstance(sensor, Analog), "a temperature is"
        value = reading(sensor, context.bmc, context.now)
        if value is not None:
            told += bytes([min(_HIGHEST, round(value)), ENTITIES[number][1]])
    return Reply(OK, bytes([GROUP_EXTENSION, total, len(told) // 2]) + told)


COMMANDS: Group = {
    (0x2C, 0x01): Command("Get DCMI Capabilities", _USER, 2, _dcmi(_capabilities), more=None),
    (0x2C, 0x02): Command("Get Power Reading", _USER, 4, _dcmi(_power_reading), more=None),
    (0x2C, 0x03): Command("Get Power Limit", _USER, 3, _dcmi(_power_limit), more=None),
    (0x2C, 0x06): Command("Get Asset Tag", _USER, 3, _dcmi(_asset_tag), more=None),
    (0x2C, 0x07): Command("Get DCMI Sensor Info", _USER, 5, _dcmi(_sensor_info), more=None),
    (0x2C, 0x08): Command("Set Asset Tag", _OPERATOR, 3, _dcmi(_set_asset_tag), more=None),
    (0x2C, 0x09): Command(
        "Get Management Controller Identifier String", _USER, 3, _dcmi(_controller_id), more=None
    ),
    (0x2C, 0x0A): Command(
        "Set Management Controller Identifier String",
        _ADMINISTRATOR,
        3,
        _dcmi(_set_controller_id),
        more=None,
    ),
    (0x2C, 0x10): Command("Get Temperature Readings", _USER, 5, _dcmi(_temperatures), more=None),
}
