"""Sensor readings (§35), and the little of platform event filtering that clients ask for (§30)."""

from __future__ import annotations

from collections.abc import Mapping

from nospoon.bmc.ipmi import set_in_progress
from nospoon.bmc.ipmi.sdr import SENSOR_SPECIFIC, raw, threshold_bytes
from nospoon.bmc.ipmi.vocabulary import (
    NOT_PRESENT,
    OK,
    PARAMETER_NOT_SUPPORTED,
    READ_ONLY,
    WRONG_RECORD_TYPE,
    Ask,
    Command,
    Context,
    Group,
    Reply,
    Result,
)
from nospoon.bmc.messages import LogAddRequested
from nospoon.bmc.sensors import BY_NUMBER, Analog, Discrete, reading, states
from nospoon.bmc.state import Parameters
from nospoon.protocols.ipmi.session import Privilege

_USER, _OPERATOR = Privilege.USER, Privilege.OPERATOR
_SCANNING, _UNAVAILABLE = 0x40, 0x20
_NO_RECORD = 0xFFFF
_REMOTE_CONSOLE = 0x81
"""Software id of a remote console (table 5-4)."""
_NO_READING = bytes([0x00, _SCANNING | _UNAVAILABLE, 0x00, 0x80])


def crossed(sensor: Analog, value: int) -> int:
    """Which thresholds a raw reading is at or beyond, by bit (§35.14, byte 3)."""
    mask, limits = threshold_bytes(sensor)
    bits = 0
    for bit, limit in enumerate(limits):
        beyond = value <= limit if bit < 3 else value >= limit
        bits |= 1 << bit if mask >> bit & 1 and beyond else 0
    return bits


def _reading(context: Context, data: bytes) -> Result:
    """§35.14."""
    sensor = BY_NUMBER.get(data[0])
    match sensor:
        case None:
            return Reply(NOT_PRESENT)
        case Analog():
            value = reading(sensor, context.bmc, context.now)
            if value is None:
                return Reply(OK, _NO_READING[:3])
            byte = raw(sensor, value)
            return Reply(OK, bytes([byte, _SCANNING, 0xC0 | crossed(sensor, byte)]))
        case Discrete():
            bits = states(sensor, context.bmc, context.now)
            if bits is None:
                return Reply(OK, _NO_READING)
            return Reply(OK, bytes([0, _SCANNING, bits & 0xFF, 0x80 | bits >> 8]))


def _event_status(context: Context, data: bytes) -> Result:
    """§35.13: what is asserted now."""
    sensor = BY_NUMBER.get(data[0])
    match sensor:
        case None:
            return Reply(NOT_PRESENT)
        case Analog():
            value = reading(sensor, context.bmc, context.now)
            bits = 0 if value is None else crossed(sensor, raw(sensor, value))
            status = _SCANNING | (_UNAVAILABLE if value is None else 0)
            return Reply(OK, bytes([status, *_events(bits), 0, 0]))
        case Discrete():
            told = states(sensor, context.bmc, context.now)
            status = _SCANNING | (_UNAVAILABLE if told is None else 0)
            return Reply(OK, bytes([status]) + (told or 0).to_bytes(2, "little") + b"\0\0")


def _events(bits: int) -> bytes:
    """Comparison bits as assertion events: lower thresholds going low, upper ones going high."""
    places = (0, 2, 4, 7, 9, 11)
    word = sum(1 << place for bit, place in enumerate(places) if bits >> bit & 1)
    return word.to_bytes(2, "little")


def _event_enable(context: Context, data: bytes) -> Result:
    """§35.11: scanning is on; the log is written by the aggregate, not by sensor events."""
    del context
    return Reply(OK, bytes([_SCANNING])) if data[0] in BY_NUMBER else Reply(NOT_PRESENT)


def _thresholds(context: Context, data: bytes) -> Result:
    """§35.9."""
    del context
    match BY_NUMBER.get(data[0]):
        case Analog() as sensor:
            mask, limits = threshold_bytes(sensor)
            return Reply(OK, bytes([mask]) + limits)
        case Discrete():
            return Reply(WRONG_RECORD_TYPE)
        case None:
            return Reply(NOT_PRESENT)


def _hysteresis(context: Context, data: bytes) -> Result:
    """§35.7: none."""
    del context
    match BY_NUMBER.get(data[0]):
        case Analog():
            return Reply(OK, b"\0\0")
        case Discrete():
            return Reply(WRONG_RECORD_TYPE)
        case None:
            return Reply(NOT_PRESENT)


def _factors(context: Context, data: bytes) -> Result:
    """§35.5: linear, the same for all readings; the next reading has them too."""
    del context
    match BY_NUMBER.get(data[0]):
        case Analog(step=step):
            following = min(255, data[1] + 1)
            return Reply(OK, bytes([following, step, 0, 0, 0, 0, 0]))
        case Discrete():
            return Reply(WRONG_RECORD_TYPE)
        case None:
            return Reply(NOT_PRESENT)


def _type(context: Context, data: bytes) -> Result:
    """§35.16."""
    del context
    match BY_NUMBER.get(data[0]):
        case Analog(type=kind):
            return Reply(OK, bytes([kind, 0x01]))
        case Discrete(type=kind):
            return Reply(OK, bytes([kind, SENSOR_SPECIFIC]))
        case None:
            return Reply(NOT_PRESENT)


def _event_receiver(context: Context, data: bytes) -> Result:
    """§29.2: there is none to whom events are sent."""
    del context, data
    return Reply(OK, b"\xff\x00")


def _platform_event(context: Context, data: bytes) -> Result:
    """§29.3: an event of someone else's sensor goes to the log as it is."""
    del context
    generator, event = (data[0], data[1:8]) if len(data) > 7 else (_REMOTE_CONSOLE, data[:7])
    raw_event = bytes([0, 0, 0x02, 0, 0, 0, 0, generator, 0]) + event
    return Ask(LogAddRequested(raw_event))


def _pef_capabilities(context: Context, data: bytes) -> Result:
    """§30.1: version 1.5, no actions, no filters."""
    del context, data
    return Reply(OK, b"\x51\x00\x00")


_PEF: Mapping[int, bytes] = {
    1: b"\0", 2: b"\0", 3: b"\0", 4: b"\0", 5: b"\0", 8: b"\0", 11: b"\0",
}  # fmt: skip
"""§30.3: all off, and empty tables."""


def _pef(context: Context, data: bytes) -> Result:
    parameter = data[0] & 0x7F
    if parameter == set_in_progress.PARAMETER:
        return Reply(OK, b"\x11" + set_in_progress.get(context, Parameters.PEF))
    if parameter == 10:
        return Reply(OK, b"\x11\x00" + context.identity.guid)
    if parameter not in _PEF:
        return Reply(PARAMETER_NOT_SUPPORTED)
    return Reply(OK, b"\x11" + _PEF[parameter])


def _set_pef(context: Context, data: bytes) -> Result:
    """§30.2: nothing can be filtered, so nothing can be set."""
    if data[0] == set_in_progress.PARAMETER:
        return set_in_progress.put(context, Parameters.PEF, data[1:])
    return Reply(READ_ONLY if data[0] in _PEF else PARAMETER_NOT_SUPPORTED)


def _last_processed(context: Context, data: bytes) -> Result:
    """§30.6: when the log last grew, and to which record; no one processed any."""
    del data
    log = context.bmc.log
    stamp = (int(log.added_at) & 0xFFFFFFFF).to_bytes(4, "little")
    last = log.records[-1].id if log.records else _NO_RECORD
    return Reply(OK, stamp + last.to_bytes(2, "little") + bytes(4))


COMMANDS: Group = {
    (0x04, 0x01): Command("Get Event Receiver", _USER, 0, _event_receiver),
    (0x04, 0x02): Command("Platform Event Message", _OPERATOR, 7, _platform_event, more=1),
    (0x04, 0x10): Command("Get PEF Capabilities", _USER, 0, _pef_capabilities),
    (0x04, 0x12): Command(
        "Set PEF Configuration Parameters", Privilege.ADMINISTRATOR, 2, _set_pef, more=None
    ),
    (0x04, 0x13): Command("Get PEF Configuration Parameters", _OPERATOR, 3, _pef),
    (0x04, 0x15): Command(
        "Get Last Processed Event ID", Privilege.ADMINISTRATOR, 0, _last_processed
    ),
    (0x04, 0x23): Command("Get Sensor Reading Factors", _USER, 2, _factors),
    (0x04, 0x25): Command("Get Sensor Hysteresis", _USER, 1, _hysteresis, more=1),
    (0x04, 0x27): Command("Get Sensor Thresholds", _USER, 1, _thresholds),
    (0x04, 0x29): Command("Get Sensor Event Enable", _USER, 1, _event_enable),
    (0x04, 0x2B): Command("Get Sensor Event Status", _USER, 1, _event_status),
    (0x04, 0x2D): Command("Get Sensor Reading", _USER, 1, _reading),
    (0x04, 0x2F): Command("Get Sensor Type", _USER, 1, _type),
}
