"""LAN configuration (§23): read, and set where it is ours to set, which is nowhere: addresses are
the plan's.
"""

from __future__ import annotations

from nospoon.bmc.ipmi import set_in_progress
from nospoon.bmc.ipmi.vocabulary import (
    CHANNEL,
    INVALID_FIELD,
    OK,
    OUT_OF_RANGE,
    PARAMETER_NOT_SUPPORTED,
    READ_ONLY,
    WRONG_LENGTH,
    Command,
    Context,
    Group,
    Lan,
    Reply,
    Result,
    on_this_channel,
)
from nospoon.bmc.state import Parameters
from nospoon.protocols.ipmi.crypto import SUITES
from nospoon.protocols.ipmi.session import Privilege

_OPERATOR, _ADMINISTRATOR = Privilege.OPERATOR, Privilege.ADMINISTRATOR
REVISION = 0x11
_STATIC = 1
_STATIC6, _DYNAMIC6 = 56, 59
SELECTED = frozenset({_STATIC6, _DYNAMIC6})
"""Parameters of which there may be several: a set selector goes before their value."""
_NO_ADDRESS6 = bytes([0, *bytes(16), 0, 1])
"""Nowhere from, with prefix length 0, disabled."""


def _suite_privileges() -> bytes:
    """Sixteen nibbles, administrator for each suite. Table 23-4 numbers suites by their place in
    parameter 23, and so does ipmitool; FreeIPMI takes the nibble at the suite's id.
    """
    places = {*range(len(SUITES)), *(suite.id for suite in SUITES if suite.id < 16)}
    nibbles: int = sum(int(Privilege.ADMINISTRATOR) << 4 * place for place in places)
    return nibbles.to_bytes(8, "little")


_SUITE_PRIVILEGES = _suite_privileges()


def _mask(prefix: int) -> bytes:
    return ((1 << 32) - (1 << 32 - prefix)).to_bytes(4)


def parameters(lan: Lan) -> dict[int, bytes]:
    """Table 23-4, as far as it means something without alerting and VLANs."""
    v6 = len(lan.address) != len(bytes(4))
    suites = bytes([0, *(suite.id for suite in SUITES)])
    return {
        0: b"\x00",
        1: b"\x00",
        2: bytes(5),
        3: bytes(4) if v6 else lan.address,
        4: bytes([_STATIC]),
        5: lan.mac,
        6: _mask(32 if v6 else lan.prefix),
        7: b"\x40\x40\x10",
        8: lan.port.to_bytes(2, "little"),
        10: b"\x03",
        11: b"\x00",
        12: lan.gateway,
        13: bytes(6),
        14: bytes(4),
        15: bytes(6),
        16: b"public".ljust(18, b"\0"),
        17: b"\x00",
        20: b"\x00\x00",
        21: b"\x00",
        22: bytes([len(SUITES)]),
        23: suites.ljust(17, b"\0"),
        24: b"\x00" + _SUITE_PRIVILEGES,
        26: bytes(6),
        50: bytes([v6]),
        51: bytes([v6]),
        55: bytes([v6, 0, 0]),
        _STATIC6: bytes([0x80, *lan.address, lan.prefix, 0]) if v6 else _NO_ADDRESS6,
        _DYNAMIC6: _NO_ADDRESS6,
    }


KNOWN = frozenset(parameters(Lan()))


def _value(context: Context, parameter: int) -> bytes:
    if parameter == set_in_progress.PARAMETER:
        return set_in_progress.get(context, Parameters.LAN)
    return parameters(context.lan())[parameter]


def _get(context: Context, data: bytes) -> Result:
    """§23.2: parameter revision alone when bit 7 asks for it."""
    if not on_this_channel(data):
        return Reply(INVALID_FIELD)
    if data[0] & 0x80:
        return Reply(OK, bytes([REVISION]))
    if data[1] not in KNOWN:
        return Reply(PARAMETER_NOT_SUPPORTED)
    value = _value(context, data[1])
    if data[1] not in SELECTED:
        return Reply(OK, bytes([REVISION]) + value)
    if data[2]:
        return Reply(OUT_OF_RANGE)
    return Reply(OK, bytes([REVISION, data[2]]) + value)


def _set(context: Context, data: bytes) -> Result:
    """§23.1: what would change nothing is done; a change of what the plan decided is refused."""
    if not on_this_channel(data):
        return Reply(INVALID_FIELD)
    parameter, value = data[1], data[2:]
    if parameter == set_in_progress.PARAMETER:
        return set_in_progress.put(context, Parameters.LAN, value)
    if parameter not in KNOWN:
        return Reply(PARAMETER_NOT_SUPPORTED)
    known = _value(context, parameter)
    known = b"\x00" + known if parameter in SELECTED else known
    if len(value) > len(known):
        return Reply(WRONG_LENGTH)
    return Reply(OK if value == known else READ_ONLY)


def _statistics(context: Context, data: bytes) -> Result:
    """§23.4: none are kept."""
    del context
    return Reply(OK, bytes(18)) if data[0] & 0x0F == CHANNEL else Reply(INVALID_FIELD)


COMMANDS: Group = {
    (0x0C, 0x01): Command("Set LAN Configuration Parameters", _ADMINISTRATOR, 3, _set, more=None),
    (0x0C, 0x02): Command("Get LAN Configuration Parameters", _OPERATOR, 4, _get),
    (0x0C, 0x04): Command("Get IP/UDP/RMCP Statistics", Privilege.USER, 2, _statistics),
}
