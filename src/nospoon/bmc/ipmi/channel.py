"""Channels, cipher suites, users and sessions (§22)."""

from __future__ import annotations

from nospoon.bmc.ipmi.vocabulary import (
    CHANNEL,
    CURRENT_CHANNEL,
    INVALID_FIELD,
    INVALID_SESSION,
    LEVEL_TOO_HIGH,
    OK,
    OUT_OF_RANGE,
    USER_ID,
    Command,
    Context,
    Group,
    Reply,
    Result,
    WantClose,
)
from nospoon.protocols.ipmi.crypto import SUITES
from nospoon.protocols.ipmi.endpoint import MAX_SESSIONS
from nospoon.protocols.ipmi.session import Privilege

_NONE, _USER, _OPERATOR = Privilege.NONE, Privilege.USER, Privilege.OPERATOR


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


COMMANDS: Group = {
    (0x06, 0x38): Command(_NONE, 2, _authentication_capabilities),
    (0x06, 0x54): Command(_NONE, 3, _cipher_suites),
    (0x06, 0x3B): Command(_USER, 1, _set_privilege),
    (0x06, 0x3C): Command(_USER, 4, _close_session),
    (0x06, 0x3D): Command(_USER, 1, _session_info),
    (0x06, 0x42): Command(_USER, 1, _channel_info),
    (0x06, 0x41): Command(_USER, 2, _channel_access),
    (0x06, 0x44): Command(_OPERATOR, 2, _user_access),
    (0x06, 0x46): Command(_OPERATOR, 1, _user_name),
}
