"""The channel, its cipher suites, and sessions (§22)."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import AddressValueError, IPv4Address

from nospoon.bmc.ipmi.vocabulary import (
    CHANNEL,
    INVALID_FIELD,
    INVALID_HANDLE,
    INVALID_SESSION,
    LEVEL_TOO_HIGH,
    NO_PRIVILEGE,
    OK,
    READ_ONLY,
    WRONG_LENGTH,
    Ask,
    Close,
    Command,
    Context,
    Group,
    Reply,
    Result,
    on_this_channel,
)
from nospoon.bmc.messages import SettingsRequested
from nospoon.protocols.ipmi.crypto import SUITES
from nospoon.protocols.ipmi.endpoint import MAX_SESSIONS
from nospoon.protocols.ipmi.session import Privilege, Session

_NONE, _USER, _ADMINISTRATOR = Privilege.NONE, Privilege.USER, Privilege.ADMINISTRATOR
_ACCESS = bytes([0x22, Privilege.ADMINISTRATOR])
"""§22.23: always available, every message authenticated, no alerts; administrator at most."""
_OEM = 5
"""The level of OEMs, above administrator: no one here has it (§6.8)."""
_MULTI_SESSION = 0x80
_RMCP_PLUS = 0x10
_SESSION_INFO_MORE = {0xFE: 1, 0xFF: 4}
"""Bytes of a handle and of an id, which follow the index that says so (§22.20)."""
_READ_KEY, _SET_KEY = 0, 1
_KG, _KEY_SIZE, _NOT_LOCKABLE = 1, 20, 0x00
KEY_TOO_SHORT, KEY_TOO_LONG, KR_NOT_USED = 0x81, 0x82, 0x84
"""Set Channel Security Keys (§22.25)."""


def _authentication_capabilities(context: Context, data: bytes) -> Result:
    """§22.13: IPMI 2.0 only, non-null user names, K_g as it is."""
    if not on_this_channel(data) or not 1 <= data[1] & 0x0F <= 4:
        return Reply(INVALID_FIELD)
    kg = 0x20 if context.identity.kg else 0x00
    extended = data[0] & 0x80
    return Reply(OK, bytes([CHANNEL, 0x80 if extended else 0, 0x04 | kg, 0x02, 0, 0, 0, 0]))


def _cipher_suites(context: Context, data: bytes) -> Result:
    """§22.15: 16 bytes of records at a time."""
    del context
    if not on_this_channel(data):
        return Reply(INVALID_FIELD)
    records = b"".join(
        bytes([0xC0, s.id, s.authentication, 0x40 | s.integrity, 0x80 | s.confidentiality])
        for s in SUITES
    )
    start = (data[2] & 0x3F) * 16
    return Reply(OK, bytes([CHANNEL]) + records[start : start + 16])


def _set_privilege(context: Context, data: bytes) -> Result:
    """§22.18: 0 asks what it is."""
    session = context.held
    wanted = data[0] & 0x0F
    if wanted > _OEM or wanted == Privilege.CALLBACK:
        return Reply(INVALID_FIELD)
    if wanted > session.limit:
        return Reply(LEVEL_TOO_HIGH)
    if wanted:
        session.privilege = Privilege(wanted)
    return Reply(OK, bytes([session.privilege]))


def _active(context: Context) -> list[Session]:
    """In the order of their handles, which begin with 1."""
    return [each for each in context.sessions.values() if each.active]


def _close_session(context: Context, data: bytes) -> Result:
    """§22.19: one's own, or as an administrator anybody's, by id or, when that is 0, by handle."""
    wanted, active = int.from_bytes(data[:4], "little"), _active(context)
    if not wanted and len(data) > 4:
        if not 0 < data[4] <= len(active):
            return Reply(INVALID_HANDLE)
        wanted = active[data[4] - 1].id
    if wanted not in {each.id for each in active}:
        return Reply(INVALID_SESSION)
    if wanted != context.held.id and context.held.privilege < Privilege.ADMINISTRATOR:
        return Reply(NO_PRIVILEGE)
    return Close(wanted)


def _session_info(context: Context, data: bytes) -> Result:
    """§22.20: of the session that asks, the nth, or one by handle or id."""
    if len(data) != 1 + _SESSION_INFO_MORE.get(data[0], 0):
        return Reply(WRONG_LENGTH)
    active = _active(context)
    handle = _handle(context, active, data)
    if not 0 < handle <= len(active):
        return Reply(OK, bytes([0, MAX_SESSIONS, len(active)]))
    session = active[handle - 1]
    counts = bytes([handle, MAX_SESSIONS, len(active)])
    about = bytes([session.user, session.privilege, _RMCP_PLUS | CHANNEL])
    where = _address(session.source.address) + bytes(6) + session.source.port.to_bytes(2, "little")
    return Reply(OK, counts + about + where)


def _handle(context: Context, active: list[Session], data: bytes) -> int:
    ids = [each.id for each in active]
    match data[0]:
        case 0x00:
            wanted = context.held.id
        case 0xFF:
            wanted = int.from_bytes(data[1:5], "little")
        case 0xFE:
            return data[1] if len(data) > 1 else 0
        case nth:
            return nth
    return ids.index(wanted) + 1 if wanted in ids else 0


def _address(text: str) -> bytes:
    """The field has room for IPv4 only."""
    try:
        return IPv4Address(text).packed
    except AddressValueError:
        return bytes(4)


def _channel_info(context: Context, data: bytes) -> Result:
    """§22.24: one 802.3 LAN channel, multi-session, and how many sessions there are."""
    if not on_this_channel(data):
        return Reply(INVALID_FIELD)
    sessions = _MULTI_SESSION | len(_active(context))
    return Reply(OK, bytes([CHANNEL, 0x04, 0x01, sessions, 0xF2, 0x1B, 0x00, 0, 0]))


def _channel_access(context: Context, data: bytes) -> Result:
    """§22.23: the present and the stored settings are the same."""
    del context
    if not on_this_channel(data) or not 1 <= data[1] >> 6 <= 2:
        return Reply(INVALID_FIELD)
    return Reply(OK, _ACCESS)


def _set_channel_access(context: Context, data: bytes) -> Result:
    """§22.22: fixed (82h); a request that changes nothing is done."""
    del context
    if not on_this_channel(data):
        return Reply(INVALID_FIELD)
    access = not data[1] >> 6 or data[1] & 0x3F == _ACCESS[0]
    limit = not data[2] >> 6 or data[2] & 0x0F == _ACCESS[1]
    return Reply(OK if access and limit else READ_ONLY)


def _security_keys(context: Context, data: bytes) -> Result:
    """§22.25: K_G is read and set; zeros take it away. K_R is the user's password here."""
    operation, key, value = data[1] & 0x03, data[2], data[3:]
    if not on_this_channel(data) or operation > _SET_KEY:
        return Reply(INVALID_FIELD)
    if key != _KG:
        return Reply(KR_NOT_USED)
    if operation == _READ_KEY:
        return Reply(OK, bytes([_NOT_LOCKABLE]) + context.identity.kg.ljust(_KEY_SIZE, b"\0"))
    if len(value) != _KEY_SIZE:
        return Reply(KEY_TOO_SHORT if len(value) < _KEY_SIZE else KEY_TOO_LONG)
    settings = context.bmc.runtime.settings
    kept = replace(settings, kg=value.hex() if any(value) else "")
    return Ask(SettingsRequested(kept), bytes([_NOT_LOCKABLE]))


COMMANDS: Group = {
    (0x06, 0x38): Command(
        "Get Channel Authentication Capabilities", _NONE, 2, _authentication_capabilities
    ),
    (0x06, 0x54): Command("Get Channel Cipher Suites", _NONE, 3, _cipher_suites),
    (0x06, 0x3B): Command("Set Session Privilege Level", _USER, 1, _set_privilege),
    (0x06, 0x3C): Command("Close Session", Privilege.CALLBACK, 4, _close_session, more=1),
    (0x06, 0x3D): Command("Get Session Info", _USER, 1, _session_info, more=4),
    (0x06, 0x40): Command("Set Channel Access", _ADMINISTRATOR, 3, _set_channel_access),
    (0x06, 0x41): Command("Get Channel Access", _USER, 2, _channel_access),
    (0x06, 0x56): Command(
        "Set Channel Security Keys", _ADMINISTRATOR, 3, _security_keys, more=None
    ),
    (0x06, 0x42): Command("Get Channel Info", _USER, 1, _channel_info),
}
