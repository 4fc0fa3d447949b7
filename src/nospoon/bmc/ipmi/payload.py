"""Payloads (§24), of which serial over LAN is one, and its configuration (§26)."""

from __future__ import annotations

from dataclasses import replace

from nospoon.bmc.ipmi import set_in_progress
from nospoon.bmc.ipmi.vocabulary import (
    CHANNEL,
    INVALID_FIELD,
    NO_PRIVILEGE,
    OK,
    PARAMETER_NOT_SUPPORTED,
    READ_ONLY,
    WRONG_LENGTH,
    Activate,
    Ask,
    Command,
    Context,
    Deactivate,
    Group,
    Reply,
    Result,
    on_this_channel,
)
from nospoon.bmc.messages import SettingsRequested
from nospoon.bmc.runtime import SolSettings
from nospoon.bmc.state import Parameters
from nospoon.protocols.ipmi.session import Privilege
from nospoon.protocols.ipmi.sol import MAX_CHARACTERS
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
_REVISION = 0x11
_FORCED = 0xC0
"""Parameter 2: payloads are authenticated and encrypted, always."""
_PRIVILEGES = range(Privilege.USER, Privilege.ADMINISTRATOR + 1)
_BIT_RATES = range(0x06, 0x0B)
"""9.6 to 115.2 kbit/s; code 0 is that of IPMI's own serial channel, which there is none of."""


def _settings(context: Context) -> SolSettings:
    return context.bmc.runtime.settings.sol


def _is_serial(data: bytes) -> bool:
    return data[0] & 0x3F == Payload.SOL


def _activate(context: Context, data: bytes) -> Result:
    """§24.1: one instance; active elsewhere it must be deactivated first (takeover). Who has it,
    and asks again, did not hear the answer.
    """
    session = context.held
    if not _is_serial(data) or context.sol is None:
        return Reply(TYPE_DISABLED)
    if not session.may_use_sol or not _settings(context).enabled:
        return Reply(TYPE_DISABLED)
    if session.privilege < _settings(context).privilege:
        return Reply(NO_PRIVILEGE)
    if data[1] & 0x0F != _INSTANCE:
        return Reply(INSTANCE_LIMIT)
    if not data[2] & _ENCRYPTED:
        return Reply(ONLY_ENCRYPTED)
    if context.sol not in (0, session.id):
        return Reply(ALREADY_ACTIVE)
    size = MAX_CHARACTERS.to_bytes(2, "little")
    port = context.lan().port.to_bytes(2, "little")
    return Activate(session.id, bytes(4) + size + size + port + b"\xff\xff")


def _deactivate(context: Context, data: bytes) -> Result:
    """§24.2: also another session's, but only by who may use serial over LAN (§24.6)."""
    if not _is_serial(data) or context.sol is None or not context.held.may_use_sol:
        return Reply(TYPE_DISABLED)
    if context.held.privilege < _settings(context).privilege:
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
    now = _settings(context)
    return {
        0: set_in_progress.get(context, Parameters.SOL),
        1: bytes([context.sol is not None and now.enabled]),
        2: bytes([_FORCED | now.privilege]),
        3: bytes([now.interval, now.threshold]),
        4: bytes([now.retries, now.retry_interval]),
        5: bytes([now.bit_rate]),
        6: bytes([now.volatile_bit_rate]),
        7: bytes([CHANNEL]),
        8: context.lan().port.to_bytes(2, "little"),
    }


def _with(now: SolSettings, parameter: int, value: bytes) -> SolSettings | None:
    """The settings after a parameter was set; None: it cannot have this value."""
    match parameter, *value:
        case 1, enabled:
            return replace(now, enabled=bool(enabled & 1))
        case 2, access if access & _FORCED == _FORCED and access & 0x0F in _PRIVILEGES:
            return replace(now, privilege=access & 0x0F)
        case 3, interval, threshold if interval:
            return replace(now, interval=interval, threshold=threshold)
        case 4, retries, interval:
            return replace(now, retries=retries & 0x07, retry_interval=interval)
        case 5, rate if rate & 0x0F in _BIT_RATES:
            return replace(now, bit_rate=rate & 0x0F)
        case 6, rate if rate & 0x0F in _BIT_RATES:
            return replace(now, volatile_bit_rate=rate & 0x0F)
    return None


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
    """§26.2: the channel and the port are what they are; writing them as they are is no error."""
    if not on_this_channel(data):
        return Reply(INVALID_FIELD)
    parameter, value = data[1], data[2:]
    if parameter == set_in_progress.PARAMETER:
        return set_in_progress.put(context, Parameters.SOL, value)
    values = parameters(context)
    if parameter not in values:
        return Reply(PARAMETER_NOT_SUPPORTED)
    if len(value) != len(values[parameter]):
        return Reply(WRONG_LENGTH)
    if value == values[parameter]:
        return Reply(OK)
    if parameter in _FIXED:
        return Reply(READ_ONLY)
    if parameter == 1 and context.sol is None:
        return Reply(INVALID_FIELD)
    changed = _with(_settings(context), parameter, value)
    if changed is None:
        return Reply(INVALID_FIELD)
    settings = context.bmc.runtime.settings
    return Ask(SettingsRequested(replace(settings, sol=changed)))


_FIXED = frozenset({7, 8})
"""The payload channel and port."""
COMMANDS: Group = {
    (0x06, 0x48): Command("Activate Payload", _USER, 6, _activate),
    (0x06, 0x49): Command("Deactivate Payload", _USER, 6, _deactivate),
    (0x06, 0x4A): Command("Get Payload Activation Status", _USER, 1, _activation_status),
    (0x06, 0x4B): Command("Get Payload Instance Info", _USER, 2, _instance_info),
    (0x06, 0x4E): Command("Get Channel Payload Support", _USER, 1, _support),
    (0x06, 0x4F): Command("Get Channel Payload Version", _USER, 2, _version),
    (0x0C, 0x21): Command("Set SOL Configuration Parameters", _ADMINISTRATOR, 3, _set, more=None),
    (0x0C, 0x22): Command("Get SOL Configuration Parameters", _USER, 4, _get),
}
