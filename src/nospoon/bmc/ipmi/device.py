"""Who the BMC is, its reset, its enables (§20, §22.1), and ACPI power state (§20.6, §20.7)."""

from __future__ import annotations

import re

from nospoon.bmc.ipmi.vocabulary import (
    INVALID_FIELD,
    OK,
    Ask,
    Command,
    Context,
    Group,
    Reply,
    Result,
)
from nospoon.bmc.messages import RestartRequested
from nospoon.bmc.software import Component, told
from nospoon.protocols.ipmi.session import Privilege

_NONE, _USER, _ADMINISTRATOR = Privilege.NONE, Privilege.USER, Privilege.ADMINISTRATOR
_SUPPORTS = 0x8F
"""§20.1, byte 6: chassis, FRU inventory, SEL, SDR repository, sensor device."""
_LOGGING_ENABLED = 0x08
_NUMBERED = re.compile(r"v?\d+[._-]\d", re.ASCII)


def _device_id(context: Context, data: bytes) -> Result:
    """§20.1: device 20h, firmware's version, IPMI 2.0; no manufacturer is claimed."""
    del data
    state = context.bmc.state
    major, minor, *rest = _revision(told(state.runtime.software, Component.BMC, state.inventory))
    fixed = bytes([0x20, 0x01, major, minor, 0x02, _SUPPORTS, 0, 0, 0, 0, 0])
    return Reply(OK, fixed + bytes(rest))


def _revision(version: str) -> tuple[int, ...]:
    """Major of 7 bits, minor in BCD, and the rest as 4 auxiliary bytes (§20.1), each at most what
    there is room for; 1.0 for what has no numbers, as the digest of an image.
    """
    found = re.findall(r"\d+", version) if _NUMBERED.match(version) else ["1", "0"]
    major, minor, *rest = (int(each[:9]) for each in [*found, *"0000"][:6])
    tens, ones = divmod(min(minor, 99), 10)
    return min(major, 0x7F), tens << 4 | ones, *(min(each, 0xFF) for each in rest)


def _reset(context: Context, data: bytes) -> Result:
    """§20.2, §20.3: sessions end and it is silent for a while; what is kept is kept."""
    del context, data
    return Ask(RestartRequested())


def _self_test(context: Context, data: bytes) -> Result:
    del context, data
    return Reply(OK, b"\x55\x00")


def _guid(context: Context, data: bytes) -> Result:
    del data
    return Reply(OK, context.identity.guid)


def _acpi_state(context: Context, data: bytes) -> Result:
    """§20.7: system S0/G0 or S5/G2 with device D0 or D3."""
    del data
    return Reply(OK, b"\x00\x00" if context.bmc.is_on else b"\x05\x03")


def _set_acpi_state(context: Context, data: bytes) -> Result:
    """§20.6: told by system software; the machine's own state is what counts here."""
    del context
    system, device = data[0] & 0x7F, data[1] & 0x7F
    known = {*range(8), 0x20, 0x21, 0x2A, 0x7F}
    return Reply(OK) if system in known and device in {0, 1, 2, 3, 0x2A, 0x7F} else _INVALID


_INVALID = Reply(INVALID_FIELD)


def _global_enables(context: Context, data: bytes) -> Result:
    """§22.2: system event logging, and nothing else."""
    del context, data
    return Reply(OK, bytes([_LOGGING_ENABLED]))


def _set_global_enables(context: Context, data: bytes) -> Result:
    """§22.1: there is no system interface to enable anything for, and logging stays on."""
    del context
    return Reply(OK) if data[0] == _LOGGING_ENABLED else _INVALID


COMMANDS: Group = {
    (0x06, 0x01): Command("Get Device ID", _USER, 0, _device_id),
    (0x06, 0x02): Command("Cold Reset", _ADMINISTRATOR, 0, _reset),
    (0x06, 0x03): Command("Warm Reset", _ADMINISTRATOR, 0, _reset),
    (0x06, 0x04): Command("Get Self Test Results", _USER, 0, _self_test),
    (0x06, 0x06): Command("Set ACPI Power State", _ADMINISTRATOR, 2, _set_acpi_state),
    (0x06, 0x07): Command("Get ACPI Power State", _USER, 0, _acpi_state),
    (0x06, 0x08): Command("Get Device GUID", _USER, 0, _guid),
    (0x06, 0x2E): Command("Set BMC Global Enables", _ADMINISTRATOR, 1, _set_global_enables),
    (0x06, 0x2F): Command("Get BMC Global Enables", _USER, 0, _global_enables),
    (0x06, 0x37): Command("Get System GUID", _NONE, 0, _guid),
}
