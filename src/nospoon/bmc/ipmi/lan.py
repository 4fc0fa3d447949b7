"""LAN configuration (§23), to be read."""

from __future__ import annotations

from nospoon.bmc.ipmi.vocabulary import (
    CHANNEL,
    CURRENT_CHANNEL,
    INVALID_FIELD,
    OK,
    PARAMETER_NOT_SUPPORTED,
    Command,
    Context,
    Group,
    Reply,
    Result,
)
from nospoon.protocols.ipmi.crypto import SUITES
from nospoon.protocols.ipmi.session import Privilege

_OPERATOR = Privilege.OPERATOR


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


COMMANDS: Group = {
    (0x0C, 0x02): Command(_OPERATOR, 4, _lan_parameter),
}
