"""IPMI commands, answered from the aggregate: one table, (netfn, command) -> privilege and handler.

A handler gives a reply at once, or a wish for the aggregate, whose answer becomes the reply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from nospoon.bmc.aggregate import Bmc
from nospoon.bmc.messages import Verdict
from nospoon.model.boot import BootDevice, BootMode, BootOverride, OverrideEnabled
from nospoon.model.machine import PowerCommand, PowerState
from nospoon.protocols.ipmi.crypto import SUITES
from nospoon.protocols.ipmi.endpoint import MAX_SESSIONS
from nospoon.protocols.ipmi.session import Identity, Privilege, Session

# Completion codes (§5.2, table 5-2)
OK: Final = 0x00
BUSY: Final = 0xC0
INVALID_COMMAND: Final = 0xC1
WRONG_LENGTH: Final = 0xC7
OUT_OF_RANGE: Final = 0xC9
INVALID_FIELD: Final = 0xCC
UNAVAILABLE: Final = 0xD3
NO_PRIVILEGE: Final = 0xD4
WRONG_STATE: Final = 0xD5
UNSPECIFIED: Final = 0xFF
PARAMETER_NOT_SUPPORTED: Final = 0x80  # command specific: boot options, LAN parameters
INVALID_SESSION: Final = 0x87  # command specific: close session
LEVEL_TOO_HIGH: Final = 0x81  # command specific: set session privilege

CODES: Mapping[Verdict, int] = {
    Verdict.DONE: OK,
    Verdict.ACCEPTED: OK,
    Verdict.BUSY: BUSY,
    Verdict.WRONG_STATE: WRONG_STATE,
    Verdict.GONE: UNAVAILABLE,
    Verdict.UNREACHABLE: UNAVAILABLE,
    Verdict.FAILED: UNSPECIFIED,
}
CHANNEL = 0x01
CURRENT_CHANNEL = 0x0E
USER_ID = 0x02


@dataclass(frozen=True, slots=True)
class Reply:
    """A completion code and data."""

    code: int
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class WantPower:
    """Ask the aggregate for a chassis command."""

    command: PowerCommand


@dataclass(frozen=True, slots=True)
class WantOverride:
    """Set the boot override; `flags` as written."""

    override: BootOverride
    flags: bytes


@dataclass(frozen=True, slots=True)
class WantClearing:
    """Write boot option parameter 3."""

    clearing: int


@dataclass(frozen=True, slots=True)
class WantIdentify:
    """Switch the identify light; `seconds` None: until it is switched again."""

    lit: bool
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class WantClose:
    """End a session, after the reply."""

    session: int


Result = Reply | WantPower | WantOverride | WantClearing | WantIdentify | WantClose


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler may read. `session` None: not logged in. `sessions`: how many are active.

    `address` and `port`: where the console is, for Get Session Info.
    """

    bmc: Bmc
    identity: Identity
    session: Session | None
    sessions: int = 0
    address: bytes = bytes(4)
    port: int = 0


Handler = Callable[[Context, bytes], Result]


@dataclass(frozen=True, slots=True)
class Command:
    """A row of the table. `length`: least number of data bytes. `privilege` NONE: without login."""

    privilege: Privilege
    length: int
    handler: Handler


def answer(context: Context, netfn: int, command: int, data: bytes) -> Result | None:
    """What a request gets; None: no reply at all (unknown commands of nobody)."""
    row = COMMANDS.get((netfn, command))
    held = context.session.privilege if context.session is not None else Privilege.NONE
    if context.session is None and (row is None or row.privilege is not Privilege.NONE):
        return None
    if row is None:
        return Reply(INVALID_COMMAND)
    if held < row.privilege:
        return Reply(NO_PRIVILEGE)
    if len(data) < row.length:
        return Reply(WRONG_LENGTH)
    return row.handler(context, data)


def _device_id(context: Context, data: bytes) -> Result:
    """§20.1: device 20h, firmware 1.0, IPMI 2.0, chassis device; no manufacturer is claimed."""
    del context, data
    return Reply(OK, bytes([0x20, 0x01, 0x01, 0x00, 0x02, 0x80, 0, 0, 0, 0, 0]))


def _self_test(context: Context, data: bytes) -> Result:
    del context, data
    return Reply(OK, b"\x55\x00")


def _guid(context: Context, data: bytes) -> Result:
    del data
    return Reply(OK, context.identity.guid)


def _authentication_capabilities(context: Context, data: bytes) -> Result:
    """§22.13: IPMI 2.0 only, non-null user names, K_g as it is."""
    if data[0] & 0x0F not in {CHANNEL, CURRENT_CHANNEL} or not 1 <= data[1] & 0x0F <= 4:
        return Reply(INVALID_FIELD)
    kg = 0x20 if context.identity.kg else 0x00
    extended = data[0] & 0x80
    return Reply(OK, bytes([CHANNEL, 0x80 if extended else 0, 0x04 | kg, 0x02, 0, 0, 0, 0]))


def _cipher_suites(context: Context, data: bytes) -> Result:
    """§22.15: 16 bytes of records at a time."""
    del context
    if data[0] & 0x0F not in {CHANNEL, CURRENT_CHANNEL}:
        return Reply(INVALID_FIELD)
    records = b"".join(
        bytes([0xC0, s.id, s.authentication, 0x40 | s.integrity, 0x80 | s.confidentiality])
        for s in SUITES
    )
    start = (data[2] & 0x3F) * 16
    return Reply(OK, bytes([CHANNEL]) + records[start : start + 16])


def _set_privilege(context: Context, data: bytes) -> Result:
    """§22.18: 0 asks what it is."""
    session = context.session
    assert session is not None, "the table demands a login"
    wanted = data[0] & 0x0F
    if wanted > Privilege.ADMINISTRATOR or wanted == Privilege.CALLBACK:
        return Reply(INVALID_FIELD)
    if wanted > session.limit:
        return Reply(LEVEL_TOO_HIGH)
    if wanted:
        session.privilege = Privilege(wanted)
    return Reply(OK, bytes([session.privilege]))


def _close_session(context: Context, data: bytes) -> Result:
    """§22.19: one's own; anybody's with administrator privilege is left to a later version."""
    session = context.session
    assert session is not None, "the table demands a login"
    wanted = int.from_bytes(data[:4], "little")
    return WantClose(wanted) if wanted == session.id else Reply(INVALID_SESSION)


def _session_info(context: Context, data: bytes) -> Result:
    """§22.20: of the session that asks; others count only."""
    session = context.session
    assert session is not None, "the table demands a login"
    counts = bytes([1, MAX_SESSIONS, context.sessions])
    own = data[0] == 0x00 or (data[0] == 0xFF and data[1:5] == session.id.to_bytes(4, "little"))
    if not own and data[0] != 0x01 and data[:2] != b"\xfe\x01":
        return Reply(OK, b"\x00" + counts[1:])
    about = bytes([USER_ID, session.privilege, 0x10 | CHANNEL])
    where = context.address + bytes(6) + context.port.to_bytes(2, "little")
    return Reply(OK, counts + about + where)


def _channel_info(context: Context, data: bytes) -> Result:
    """§22.24: one 802.3 LAN channel, multi-session."""
    del context
    if data[0] & 0x0F not in {CHANNEL, CURRENT_CHANNEL}:
        return Reply(INVALID_FIELD)
    return Reply(OK, bytes([CHANNEL, 0x04, 0x01, 0x80, 0xF2, 0x1B, 0x00, 0, 0]))


def _channel_access(context: Context, data: bytes) -> Result:
    """§22.23: always available, administrator at most."""
    del context
    if data[0] & 0x0F not in {CHANNEL, CURRENT_CHANNEL}:
        return Reply(INVALID_FIELD)
    return Reply(OK, b"\x22\x04")


def _user_access(context: Context, data: bytes) -> Result:
    """§22.27: user 1 is reserved, user 2 is the account."""
    del context
    if data[0] & 0x0F not in {CHANNEL, CURRENT_CHANNEL} or not data[1] & 0x3F:
        return Reply(INVALID_FIELD)
    user = data[1] & 0x3F
    if user > USER_ID:
        return Reply(OUT_OF_RANGE)
    access = 0x34 if user == USER_ID else 0x0F
    return Reply(OK, bytes([USER_ID, 0x40 | 1, 0x00, access]))


def _user_name(context: Context, data: bytes) -> Result:
    """§22.29: sixteen bytes, padded with zeros."""
    user = data[0] & 0x3F
    if not 1 <= user <= USER_ID:
        return Reply(OUT_OF_RANGE if user else INVALID_FIELD)
    name = context.identity.username if user == USER_ID else b""
    return Reply(OK, name.ljust(16, b"\0"))


def _chassis_capabilities(context: Context, data: bytes) -> Result:
    del context, data
    return Reply(OK, bytes([0x00, 0x20, 0x20, 0x20, 0x20]))


def _chassis_status(context: Context, data: bytes) -> Result:
    """§28.2: power, faults, last event, identify; policy: stays off.

    Of a machine whose host does not answer nothing is known, so that nothing is told: a client
    that took it for off would power it on.
    """
    del data
    bmc = context.bmc
    if bmc.power is PowerState.UNKNOWN:
        return Reply(UNAVAILABLE)
    power = _POWER_ON if bmc.is_on else 0
    power |= _POWER_FAULT if bmc.fault else 0
    power |= _CONTROL_FAULT if bmc.runtime.power_fault else 0
    lit = _IDENTIFY_ON if bmc.runtime.identify else _IDENTIFY_TIMED if bmc.identify else 0
    misc = _IDENTIFY_SUPPORTED | lit
    return Reply(OK, bytes([power, bmc.runtime.last_power_event, misc, 0x00]))


_POWER_ON, _POWER_FAULT, _CONTROL_FAULT = 0x01, 0x08, 0x10
_IDENTIFY_SUPPORTED, _IDENTIFY_ON, _IDENTIFY_TIMED = 0x40, 0x20, 0x10

_CONTROL: Mapping[int, PowerCommand] = {
    0x00: PowerCommand.OFF,
    0x01: PowerCommand.ON,
    0x02: PowerCommand.CYCLE,
    0x03: PowerCommand.RESET,
    0x04: PowerCommand.DIAG,
    0x05: PowerCommand.SOFT,
}


def _chassis_control(context: Context, data: bytes) -> Result:
    del context
    command = _CONTROL.get(data[0] & 0x0F)
    return WantPower(command) if command is not None else Reply(INVALID_FIELD)


def _identify(context: Context, data: bytes) -> Result:
    """§28.5: seconds, 15 if not told, 0 turns it off; then a bit that keeps it on."""
    del context
    interval = data[0] if data else 15
    if len(data) > 1 and data[1] & 1:
        return WantIdentify(lit=True)
    return WantIdentify(lit=bool(interval), seconds=interval)


def _restart_cause(context: Context, data: bytes) -> Result:
    del data
    return Reply(OK, bytes([context.bmc.runtime.restart_cause, CHANNEL]))


DEVICE_CODES: Mapping[int, BootDevice | None] = {
    0x0: None,
    0x1: BootDevice.NETWORK,
    0x2: BootDevice.DISK,
    0x5: BootDevice.CDROM,
    0x6: BootDevice.SETUP,
    0x8: BootDevice.CDROM,
}
"""Boot device selector (§28.13, table 28-14, parameter 5, data 2, bits 5:2)."""
_CODE_OF = {
    BootDevice.NETWORK: 0x1,
    BootDevice.DISK: 0x2,
    BootDevice.CDROM: 0x5,
    BootDevice.SETUP: 0x6,
}
VALID, PERSISTENT, EFI = 0x80, 0x40, 0x20


def decode_flags(flags: bytes) -> BootOverride | None:
    """The override that parameter 5 asks for; None: a device that no machine of ours has."""
    device_code = flags[1] >> 2 & 0x0F
    if device_code not in DEVICE_CODES:
        return None
    target = DEVICE_CODES[device_code] if flags[0] & VALID else None
    if target is None:
        return BootOverride()
    enabled = OverrideEnabled.CONTINUOUS if flags[0] & PERSISTENT else OverrideEnabled.ONCE
    return BootOverride(target, enabled, BootMode.UEFI if flags[0] & EFI else None)


def encode_flags(override: BootOverride) -> bytes:
    """Parameter 5 for an override that somebody else set."""
    if not override.active or override.target is None:
        return bytes(5)
    first = VALID
    first |= PERSISTENT if override.enabled is OverrideEnabled.CONTINUOUS else 0
    first |= EFI if override.mode is BootMode.UEFI else 0
    return bytes([first, _CODE_OF[override.target] << 2, 0, 0, 0])


def _set_boot_option(context: Context, data: bytes) -> Result:
    """§28.12: parameters 3 and 5 mean something; 0 and 4 are a handshake with system firmware."""
    del context
    parameter, value = data[0] & 0x7F, data[1:]
    match parameter:
        case 0 | 4:
            return Reply(OK)
        case 3 if value:
            return WantClearing(value[0] & 0x1F)
        case 5 if len(value) >= 5:
            override = decode_flags(value[:5])
            flags = value[:5]
            return WantOverride(override, flags) if override else Reply(INVALID_FIELD)
        case 3 | 5:
            return Reply(WRONG_LENGTH)
        case _:
            return Reply(PARAMETER_NOT_SUPPORTED)


def _get_boot_option(context: Context, data: bytes) -> Result:
    """§28.13: parameter version 1, then the parameter's number and value."""
    runtime, parameter = context.bmc.runtime, data[0] & 0x7F
    flags = runtime.boot_flags or encode_flags(runtime.override)
    values = {0: b"\x00", 3: bytes([runtime.clearing]), 4: b"\x00\x00", 5: flags}
    if parameter not in values:
        return Reply(PARAMETER_NOT_SUPPORTED)
    return Reply(OK, bytes([0x01, parameter]) + values[parameter])


def _lan_parameter(context: Context, data: bytes) -> Result:
    """§23.2: what clients ask for before they go on."""
    if data[0] & 0x0F not in {CHANNEL, CURRENT_CHANNEL}:
        return Reply(INVALID_FIELD)
    values = {0: b"\x00", 1: b"\x00", 2: bytes(5), 4: b"\x01", 22: bytes([len(SUITES)])}
    values[23] = bytes([0, *(suite.id for suite in SUITES)]).ljust(17, b"\0")
    del context
    if data[1] not in values:
        return Reply(PARAMETER_NOT_SUPPORTED)
    return Reply(OK, b"\x11" + values[data[1]])


_NONE, _USER, _OPERATOR = Privilege.NONE, Privilege.USER, Privilege.OPERATOR

COMMANDS: Mapping[tuple[int, int], Command] = {
    (0x06, 0x01): Command(_USER, 0, _device_id),
    (0x06, 0x04): Command(_USER, 0, _self_test),
    (0x06, 0x08): Command(_USER, 0, _guid),
    (0x06, 0x37): Command(_NONE, 0, _guid),
    (0x06, 0x38): Command(_NONE, 2, _authentication_capabilities),
    (0x06, 0x3B): Command(_USER, 1, _set_privilege),
    (0x06, 0x3C): Command(_USER, 4, _close_session),
    (0x06, 0x3D): Command(_USER, 1, _session_info),
    (0x06, 0x41): Command(_USER, 2, _channel_access),
    (0x06, 0x42): Command(_USER, 1, _channel_info),
    (0x06, 0x44): Command(_OPERATOR, 2, _user_access),
    (0x06, 0x46): Command(_OPERATOR, 1, _user_name),
    (0x06, 0x54): Command(_NONE, 3, _cipher_suites),
    (0x00, 0x00): Command(_USER, 0, _chassis_capabilities),
    (0x00, 0x01): Command(_USER, 0, _chassis_status),
    (0x00, 0x02): Command(_OPERATOR, 1, _chassis_control),
    (0x00, 0x04): Command(_OPERATOR, 0, _identify),
    (0x00, 0x07): Command(_USER, 0, _restart_cause),
    (0x00, 0x08): Command(_OPERATOR, 1, _set_boot_option),
    (0x00, 0x09): Command(_OPERATOR, 3, _get_boot_option),
    (0x0C, 0x02): Command(_OPERATOR, 4, _lan_parameter),
}
"""Privileges by appendix G of the specification."""
