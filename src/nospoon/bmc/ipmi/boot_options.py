"""Boot options (§28.12, §28.13), and what boot flags mean."""

from __future__ import annotations

from collections.abc import Mapping

from nospoon.bmc.ipmi import set_in_progress
from nospoon.bmc.ipmi.vocabulary import (
    INVALID_FIELD,
    OK,
    PARAMETER_NOT_SUPPORTED,
    WRONG_LENGTH,
    Ask,
    Command,
    Context,
    Group,
    Reply,
    Result,
)
from nospoon.bmc.messages import ClearingRequested, OverrideRequested
from nospoon.bmc.state import Parameters
from nospoon.model.boot import ROOT_ALONE, BootDevice, BootMode, BootOverride, OverrideEnabled
from nospoon.protocols.ipmi.session import Privilege

_OPERATOR = Privilege.OPERATOR

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
    BootDevice.HTTP: 0x1,
    BootDevice.DISK: 0x2,
    BootDevice.CDROM: 0x5,
    BootDevice.SETUP: 0x6,
}
VALID, PERSISTENT, EFI = 0x80, 0x40, 0x20
_SIZES = {0: 1, 3: 1, 4: 2, 5: 5}
"""Bytes of each parameter (table 28-14)."""


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
    """Parameter 5 for an override that someone else set."""
    if not override.active or override.target is None:
        return bytes(5)
    first = VALID
    first |= PERSISTENT if override.enabled is OverrideEnabled.CONTINUOUS else 0
    first |= EFI if override.mode is BootMode.UEFI else 0
    return bytes([first, _CODE_OF[override.target] << 2, 0, 0, 0])


def _set_boot_option(context: Context, data: bytes) -> Result:
    """§28.12: parameters 3 and 5 mean something; 4 is a handshake with system firmware. No value
    at all only locks a parameter, which nothing needs here.
    """
    parameter, value = data[0] & 0x7F, data[1:]
    if parameter not in _SIZES:
        return Reply(PARAMETER_NOT_SUPPORTED)
    if len(value) != _SIZES[parameter]:
        return Reply(WRONG_LENGTH)
    match parameter:
        case set_in_progress.PARAMETER:
            return set_in_progress.put(context, Parameters.BOOT, value)
        case 3:
            return Ask(ClearingRequested(value[0] & 0x1F))
        case 5:
            override = decode_flags(value)
            root_only = context.bmc.state.inventory.boots_root
            if override is None or (root_only and override.target not in ROOT_ALONE):
                return Reply(INVALID_FIELD)
            return Ask(OverrideRequested(override, flags=value))
    return Reply(OK)


def _get_boot_option(context: Context, data: bytes) -> Result:
    """§28.13: parameter version 1, then the parameter's number and value."""
    runtime, parameter = context.bmc.runtime, data[0] & 0x7F
    flags = runtime.boot_flags or encode_flags(runtime.override)
    progress = set_in_progress.get(context, Parameters.BOOT)
    values = {0: progress, 3: bytes([runtime.clearing]), 4: b"\x00\x00", 5: flags}
    if parameter not in values:
        return Reply(PARAMETER_NOT_SUPPORTED)
    return Reply(OK, bytes([0x01, parameter]) + values[parameter])


COMMANDS: Group = {
    (0x00, 0x08): Command("Set System Boot Options", _OPERATOR, 1, _set_boot_option, more=None),
    (0x00, 0x09): Command("Get System Boot Options", _OPERATOR, 3, _get_boot_option),
}
