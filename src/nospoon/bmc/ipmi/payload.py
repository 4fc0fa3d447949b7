"""Payloads (§24), of which serial over LAN is one, and its configuration (§26)."""

from __future__ import annotations

from nospoon.bmc.ipmi.vocabulary import (
    CHANNEL,
    INVALID_FIELD,
    NO_PRIVILEGE,
    OK,
    PARAMETER_NOT_SUPPORTED,
    READ_ONLY,
    Activate,
    Command,
    Context,
    Deactivate,
    Group,
    Reply,
    Result,
    on_this_channel,
)
from nospoon.protocols.ipmi.session import Privilege
from nospoon.protocols.ipmi.sol import MAX_CHARACTERS, RETRIES, RETRY_SECONDS
from nospoon.protocols.ipmi.wire import Payload

_USER, _ADMINISTRATOR = Privilege.USER, Privilege.ADMINISTRATOR
_INSTANCE = 1
_ENCRYPTED = 0x80
ALREADY_ACTIVE, TYPE_DISABLED, INSTANCE_LIMIT, ONLY_ENCRYPTED = 0x80, 0x81, 0x82, 0x84
"""Activate Payload (§24.1)."""
ALREADY_INACTIVE = 0x80
NOT_AVAILABLE = 0x80
"""Get Channel Payload Version (§24.9)."""
_VERSION = 0x10
_PAYLOADS = bytes([0x03, 0x00, 0x3F, 0x00, 0, 0, 0, 0])
"""IPMI messages and serial over LAN; the payloads of session setup; none of any OEM (§24.8)."""
_REVISION, _BIT_RATE = 0x11, 0x0A
LEAST_PRIVILEGE = Privilege.OPERATOR
"""A console is more than a look."""


def _is_serial(data: bytes) -> bool:
    return data[0] & 0x3F == Payload.SOL


def _activate(context: Context, data: bytes) -> Result:
    """§24.1: one instance; active elsewhere it must be deactivated first (takeover)."""
    session = context.held
    if not _is_serial(data) or context.sol is None:
        return Reply(TYPE_DISABLED)
    if not session.may_use_sol:
        return Reply(TYPE_DISABLED)
    if session.privilege < LEAST_PRIVILEGE:
        return Reply(NO_PRIVILEGE)
    if data[1] & 0x0F != _INSTANCE:
        return Reply(INSTANCE_LIMIT)
    if not data[2] & _ENCRYPTED:
        return Reply(ONLY_ENCRYPTED)
    if context.sol:
        return Reply(ALREADY_ACTIVE)
    size = MAX_CHARACTERS.to_bytes(2, "little")
    port = context.lan().port.to_bytes(2, "little")
    return Activate(session.id, bytes(4) + size + size + port + b"\xff\xff")


def _deactivate(context: Context, data: bytes) -> Result:
    """§24.2: also somebody else's."""
    if not _is_serial(data) or context.sol is None:
        return Reply(TYPE_DISABLED)
    if context.held.privilege < LEAST_PRIVILEGE:
        return Reply(NO_PRIVILEGE)
    return Deactivate() if context.sol else Reply(ALREADY_INACTIVE)


def _activation_status(context: Context, data: bytes) -> Result:
    """§24.4: how many instances there can be, and which are active."""
    if not _is_serial(data):
        return Reply(OK, bytes(3))
    return Reply(OK, bytes([_INSTANCE, 1 if context.sol else 0, 0]))


def _instance_info(context: Context, data: bytes) -> Result:
    """§24.5: whose session, and the port's number."""
    if not _is_serial(data) or data[1] != _INSTANCE:
        return Reply(INVALID_FIELD)
    return Reply(OK, (context.sol or 0).to_bytes(4, "little") + bytes([1]) + bytes(7))


def _support(context: Context, data: bytes) -> Result:
    """§24.8."""
    del context
    return Reply(OK, _PAYLOADS) if on_this_channel(data) else Reply(INVALID_FIELD)


def _version(context: Context, data: bytes) -> Result:
    """§24.9: 1.0."""
    del context
    if not on_this_channel(data):
        return Reply(INVALID_FIELD)
    served = data[1] & 0x3F in set(Payload)
    return Reply(OK, bytes([_VERSION])) if served else Reply(NOT_AVAILABLE)


def parameters(context: Context) -> dict[int, bytes]:
    """Table 26-5."""
    return {
        0: b"\x00",
        1: bytes([0 if context.sol is None else 1]),
        2: bytes([0xC0 | LEAST_PRIVILEGE]),
        3: bytes([1, 1]),
        4: bytes([RETRIES, round(RETRY_SECONDS * 100)]),
        5: bytes([_BIT_RATE]),
        6: bytes([_BIT_RATE]),
        7: bytes([CHANNEL]),
        8: context.lan().port.to_bytes(2, "little"),
    }


def _get(context: Context, data: bytes) -> Result:
    """§26.3: parameter revision alone when bit 7 asks for it."""
    if not on_this_channel(data):
        return Reply(INVALID_FIELD)
    if data[0] & 0x80:
        return Reply(OK, bytes([_REVISION]))
    values = parameters(context)
    if data[1] not in values:
        return Reply(PARAMETER_NOT_SUPPORTED)
    return Reply(OK, bytes([_REVISION]) + values[data[1]])


def _set(context: Context, data: bytes) -> Result:
    """§26.2: what would change nothing is done; there is nothing to change."""
    if not on_this_channel(data):
        return Reply(INVALID_FIELD)
    values = parameters(context)
    if data[1] == 0:
        return Reply(OK)
    if data[1] not in values:
        return Reply(PARAMETER_NOT_SUPPORTED)
    return Reply(OK if data[2:] == values[data[1]] else READ_ONLY)


COMMANDS: Group = {
    (0x06, 0x48): Command("Activate Payload", _USER, 6, _activate),
    (0x06, 0x49): Command("Deactivate Payload", _USER, 6, _deactivate),
    (0x06, 0x4A): Command("Get Payload Activation Status", _USER, 1, _activation_status),
    (0x06, 0x4B): Command("Get Payload Instance Info", _USER, 2, _instance_info),
    (0x06, 0x4E): Command("Get Channel Payload Support", _USER, 1, _support),
    (0x06, 0x4F): Command("Get Channel Payload Version", _USER, 2, _version),
    (0x0C, 0x21): Command("Set SOL Configuration Parameters", _ADMINISTRATOR, 3, _set),
    (0x0C, 0x22): Command("Get SOL Configuration Parameters", _USER, 4, _get),
}
