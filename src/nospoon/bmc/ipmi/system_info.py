"""System Info parameters (§22.14a, §22.14b): texts in blocks of 16 bytes."""

from __future__ import annotations

from dataclasses import replace

from nospoon.bmc.ipmi import set_in_progress
from nospoon.bmc.ipmi.vocabulary import (
    INVALID_FIELD,
    OK,
    PARAMETER_NOT_SUPPORTED,
    READ_ONLY,
    WRONG_LENGTH,
    Ask,
    Command,
    Context,
    Group,
    Reply,
    Result,
)
from nospoon.bmc.messages import SettingsRequested
from nospoon.bmc.software import Component, told
from nospoon.bmc.state import Parameters
from nospoon.protocols.ipmi.session import Privilege

_REVISION, _BLOCK, _LAST_BLOCK = 0x11, 16, 15
_FIRMWARE, _NAME, _TEXTS = 1, 2, range(1, 8)
"""1 version of the system's firmware, not the BMC's, 2 system name, 3 and 4 operating system, 5 its
version, 6 and 7 URLs.
"""


def _text(context: Context, parameter: int) -> bytes:
    """Encoding (Latin-1), length and text, as the first block begins."""
    for number, stored in context.bmc.runtime.settings.system_info:
        if number == parameter:
            return stored
    state = context.bmc.state
    version = told(state.runtime.software, Component.BIOS, state.inventory)
    known = {_FIRMWARE: version, _NAME: state.inventory.name}.get(parameter, "")
    text = known.encode("latin-1", "replace")
    return bytes([0, len(text)]) + text


def _get(context: Context, data: bytes) -> Result:
    """§22.14b: parameter version alone when bit 7 asks for it."""
    if data[0] & 0x80:
        return Reply(OK, bytes([_REVISION]))
    parameter, block = data[1], data[2]
    if parameter == set_in_progress.PARAMETER:
        progress = set_in_progress.get(context, Parameters.SYSTEM_INFO)
        return Reply(OK, bytes([_REVISION]) + progress)
    if parameter not in _TEXTS:
        return Reply(PARAMETER_NOT_SUPPORTED)
    content = _text(context, parameter)[block * _BLOCK : (block + 1) * _BLOCK]
    if block > _LAST_BLOCK:
        return Reply(INVALID_FIELD)
    return Reply(OK, bytes([_REVISION, block]) + content.ljust(_BLOCK, b"\0"))


def _set(context: Context, data: bytes) -> Result:
    """§22.14a."""
    parameter, content = data[0] & 0x7F, data[1:]
    if parameter == set_in_progress.PARAMETER:
        return set_in_progress.put(context, Parameters.SYSTEM_INFO, content)
    if parameter not in _TEXTS:
        return Reply(PARAMETER_NOT_SUPPORTED)
    if parameter == _FIRMWARE:
        return Reply(READ_ONLY)
    if not 2 <= len(content) <= 1 + _BLOCK:
        return Reply(WRONG_LENGTH)
    block, text = content[0], content[1:]
    if block > _LAST_BLOCK:
        return Reply(INVALID_FIELD)
    return _stored(context, parameter, block, text)


def _stored(context: Context, parameter: int, block: int, text: bytes) -> Result:
    settings = context.bmc.runtime.settings
    before = _text(context, parameter).ljust(block * _BLOCK, b"\0") if block else b""
    after = before[: block * _BLOCK] + text
    rest = [each for each in settings.system_info if each[0] != parameter]
    info = tuple(sorted([*rest, (parameter, after)]))
    return Ask(SettingsRequested(replace(settings, system_info=info)))


COMMANDS: Group = {
    (0x06, 0x58): Command(
        "Set System Info Parameters", Privilege.ADMINISTRATOR, 2, _set, more=None
    ),
    (0x06, 0x59): Command("Get System Info Parameters", Privilege.USER, 4, _get),
}
