"""Users (§22.26 to §22.30): 1 is no one, 2 the node's account, the rest are added by clients."""

from __future__ import annotations

import hmac
from dataclasses import replace

from nospoon.bmc import users
from nospoon.bmc.ipmi.vocabulary import (
    INVALID_FIELD,
    OK,
    OUT_OF_RANGE,
    WRONG_LENGTH,
    WRONG_PASSWORD,
    WRONG_PASSWORD_SIZE,
    WRONG_STATE,
    Ask,
    Command,
    Context,
    Group,
    Reply,
    Result,
    on_this_channel,
)
from nospoon.bmc.messages import SettingsRequested
from nospoon.bmc.users import LAST, LONG, NO_ACCESS, OWNER, SHORT, User
from nospoon.protocols.ipmi.session import Privilege

_USER, _OPERATOR, _ADMINISTRATOR = Privilege.USER, Privilege.OPERATOR, Privilege.ADMINISTRATOR
NAME_SIZE = 16
_CHANGE, _CALLBACK, _LINK, _MESSAGING = 0x80, 0x40, 0x20, 0x10
_ENABLED, _DISABLED = 0x40, 0x80
_OFF, _ON, _SET, _TEST = range(4)


def _number(data: bytes) -> int:
    return data[0] & 0x3F


def _refusal(number: int) -> Reply | None:
    if not number:
        return Reply(INVALID_FIELD)
    return Reply(OUT_OF_RANGE) if number > LAST else None


def find(context: Context, number: int) -> User:
    """The user with this number, the node's account among them."""
    if number == OWNER:
        identity = context.identity
        name, password = identity.username.decode(), identity.password.decode()
        return User(OWNER, name, password, _ADMINISTRATOR, enabled=True, messaging=True)
    return users.user(context.bmc.runtime.settings.users, number)


def _changed(context: Context, user: User) -> Result:
    """The table with this user; the node's account is the cluster file's alone."""
    if user.id == OWNER:
        same = user == find(context, OWNER)
        return Reply(OK if same else WRONG_STATE)
    settings = context.bmc.runtime.settings
    table = users.with_user(settings.users, user)
    return Ask(SettingsRequested(replace(settings, users=table)))


def _get_access(context: Context, data: bytes) -> Result:
    """§22.27: how many there are, how many are enabled, which names are fixed, and access."""
    number = data[1] & 0x3F
    if not on_this_channel(data):
        return Reply(INVALID_FIELD)
    if (refusal := _refusal(number)) is not None:
        return refusal
    user = find(context, number)
    enabled = 1 + sum(each.enabled for each in context.bmc.runtime.settings.users)
    status = _ENABLED if user.enabled else _DISABLED
    access = user.privilege | (_LINK | _MESSAGING if user.messaging else 0)
    return Reply(OK, bytes([LAST, status | enabled, 0x02, access]))


def _set_access(context: Context, data: bytes) -> Result:
    """§22.26: privilege, and with bit 7 whether the user may send messages."""
    number, wanted = data[1] & 0x3F, data[2] & 0x0F
    if not on_this_channel(data) or wanted not in {1, 2, 3, 4, NO_ACCESS}:
        return Reply(INVALID_FIELD)
    if (refusal := _refusal(number)) is not None:
        return refusal
    user = find(context, number)
    messaging = bool(data[0] & _MESSAGING) if data[0] & _CHANGE else user.messaging
    return _changed(context, replace(user, privilege=wanted, messaging=messaging))


def _get_name(context: Context, data: bytes) -> Result:
    """§22.29: sixteen bytes, padded with zeros."""
    number = _number(data)
    if (refusal := _refusal(number)) is not None:
        return refusal
    return Reply(OK, find(context, number).name.encode()[:NAME_SIZE].ljust(NAME_SIZE, b"\0"))


def _set_name(context: Context, data: bytes) -> Result:
    """§22.28: an empty one takes the user away; no two users have the same."""
    number = _number(data)
    if (refusal := _refusal(number)) is not None:
        return refusal
    try:
        name = data[1 : 1 + NAME_SIZE].split(b"\0")[0].decode()
    except UnicodeDecodeError:
        return Reply(INVALID_FIELD)
    others = [find(context, each) for each in range(OWNER, LAST + 1) if each != number]
    if number == users.ANONYMOUS or (name and name in {each.name for each in others}):
        return Reply(INVALID_FIELD)
    if not name and number != OWNER:
        return _changed(context, User(number))
    return _changed(context, replace(find(context, number), name=name))


def _password(context: Context, data: bytes) -> Result:
    """§22.30: disable, enable, set, test; 16 bytes or 20."""
    number, operation, given = _number(data), data[1] & 0x03, data[2:]
    if (refusal := _refusal(number)) is not None:
        return refusal
    if number == users.ANONYMOUS:
        return Reply(OK if operation == _OFF else INVALID_FIELD)
    user = find(context, number)
    if operation in {_OFF, _ON}:
        return _changed(context, replace(user, enabled=operation == _ON))
    size = LONG if data[0] & 0x80 else SHORT
    if len(given) != size:
        return Reply(WRONG_LENGTH)
    password = given.rstrip(b"\0")
    if operation == _TEST:
        return _tested(user, password, size)
    try:
        changed = replace(user, password=password.decode(), long=size == LONG)
    except UnicodeDecodeError:
        return Reply(INVALID_FIELD)
    return _changed(context, changed)


def _tested(user: User, password: bytes, size: int) -> Reply:
    """§22.30: a wrong size is told before a wrong password."""
    if size != user.password_size:
        return Reply(WRONG_PASSWORD_SIZE)
    same = hmac.compare_digest(password, user.password.encode())
    return Reply(OK if same else WRONG_PASSWORD)


def _get_payload_access(context: Context, data: bytes) -> Result:
    """§24.7: serial over LAN is standard payload 1."""
    number = data[1] & 0x3F
    if not on_this_channel(data):
        return Reply(INVALID_FIELD)
    if (refusal := _refusal(number)) is not None:
        return refusal
    user = find(context, number)
    allowed = user.sol and bool(user.name)
    return Reply(OK, bytes([0x02 if allowed else 0, 0, 0, 0]))


def _set_payload_access(context: Context, data: bytes) -> Result:
    """§24.6: enable or disable those named by bits."""
    number, disable = data[1] & 0x3F, data[1] >> 6
    if not on_this_channel(data) or disable > 1:
        return Reply(INVALID_FIELD)
    if (refusal := _refusal(number)) is not None:
        return refusal
    user = find(context, number)
    return _changed(context, replace(user, sol=not disable) if data[2] & 0x02 else user)


COMMANDS: Group = {
    (0x06, 0x43): Command("Set User Access", _ADMINISTRATOR, 3, _set_access, more=1),
    (0x06, 0x44): Command("Get User Access", _OPERATOR, 2, _get_access),
    (0x06, 0x45): Command("Set User Name", _ADMINISTRATOR, 2, _set_name, more=NAME_SIZE - 1),
    (0x06, 0x46): Command("Get User Name", _OPERATOR, 1, _get_name),
    (0x06, 0x47): Command("Set User Password", _ADMINISTRATOR, 2, _password, more=LONG),
    (0x06, 0x4C): Command("Set User Payload Access", _ADMINISTRATOR, 6, _set_payload_access),
    (0x06, 0x4D): Command("Get User Payload Access", _OPERATOR, 2, _get_payload_access),
}
