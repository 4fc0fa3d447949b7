"""The chassis: power, faults, identify, power restore policy (§28)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nospoon.bmc.ipmi.vocabulary import (
    CHANNEL,
    INVALID_FIELD,
    OK,
    UNAVAILABLE,
    Ask,
    Command,
    Context,
    Group,
    Reply,
    Result,
)
from nospoon.bmc.messages import IdentifyRequested, PowerRequested, SettingsRequested
from nospoon.model.machine import PowerCommand, PowerPolicy, PowerState
from nospoon.protocols.ipmi.session import Privilege

_USER, _OPERATOR = Privilege.USER, Privilege.OPERATOR

POLICIES: Mapping[int, PowerPolicy] = {
    0: PowerPolicy.ALWAYS_OFF,
    1: PowerPolicy.PREVIOUS,
    2: PowerPolicy.ALWAYS_ON,
}
"""Power restore policy (§28.8, table 28-9)."""
_POLICY_BITS = {policy: number << 5 for number, policy in POLICIES.items()}
_ALL_POLICIES, _NO_CHANGE = 0x07, 3
_POWER_ON, _POWER_FAULT, _CONTROL_FAULT = 0x01, 0x08, 0x10
_IDENTIFY_SUPPORTED, _IDENTIFY_ON, _IDENTIFY_TIMED = 0x40, 0x20, 0x10

_CONTROL: Mapping[int, PowerCommand] = {
    0x00: PowerCommand.OFF,
    0x01: PowerCommand.ON,
    0x02: PowerCommand.CYCLE,
    0x03: PowerCommand.RESET,
    0x04: PowerCommand.DIAG,
    0x05: PowerCommand.SOFT,
}


def _chassis_capabilities(context: Context, data: bytes) -> Result:
    """§28.1: the BMC is FRU, SDR, SEL and system management device."""
    del context, data
    return Reply(OK, bytes([0x00, 0x20, 0x20, 0x20, 0x20]))


def _chassis_status(context: Context, data: bytes) -> Result:
    """§28.2: power, faults, restore policy, last event, identify.

    Of a machine whose host does not answer nothing is known, so that nothing is told: a client
    that took it for off would power it on.
    """
    del data
    bmc = context.bmc
    if bmc.power is PowerState.UNKNOWN:
        return Reply(UNAVAILABLE)
    runtime = bmc.runtime
    power = _POLICY_BITS[runtime.settings.policy]
    power |= _POWER_ON if bmc.is_on else 0
    power |= _POWER_FAULT if bmc.fault else 0
    power |= _CONTROL_FAULT if runtime.power_fault else 0
    lit = _IDENTIFY_ON if runtime.identify else _IDENTIFY_TIMED if bmc.identify else 0
    misc = _IDENTIFY_SUPPORTED | lit
    return Reply(OK, bytes([power, runtime.last_power_event, misc, 0x00]))


def _chassis_control(context: Context, data: bytes) -> Result:
    del context
    command = _CONTROL.get(data[0] & 0x0F)
    return Ask(PowerRequested(command)) if command is not None else Reply(INVALID_FIELD)


def _identify(context: Context, data: bytes) -> Result:
    """§28.5: seconds, 15 if not told, 0 turns it off; then a bit that keeps it on."""
    del context
    interval = data[0] if data else 15
    if len(data) > 1 and data[1] & 1:
        return Ask(IdentifyRequested(lit=True))
    return Ask(IdentifyRequested(lit=bool(interval), seconds=interval))


def _restore_policy(context: Context, data: bytes) -> Result:
    """§28.8: all three are supported; 3 only asks which are."""
    wanted = data[0] & 0x07
    told = bytes([_ALL_POLICIES])
    if wanted == _NO_CHANGE:
        return Reply(OK, told)
    if wanted not in POLICIES:
        return Reply(INVALID_FIELD)
    settings = replace(context.bmc.runtime.settings, policy=POLICIES[wanted])
    return Ask(SettingsRequested(settings), told)


def _restart_cause(context: Context, data: bytes) -> Result:
    del data
    return Reply(OK, bytes([context.bmc.runtime.restart_cause, CHANNEL]))


COMMANDS: Group = {
    (0x00, 0x00): Command("Get Chassis Capabilities", _USER, 0, _chassis_capabilities),
    (0x00, 0x01): Command("Get Chassis Status", _USER, 0, _chassis_status),
    (0x00, 0x02): Command("Chassis Control", _OPERATOR, 1, _chassis_control),
    (0x00, 0x04): Command("Chassis Identify", _OPERATOR, 0, _identify, more=2),
    (0x00, 0x06): Command("Set Power Restore Policy", _OPERATOR, 1, _restore_policy),
    (0x00, 0x07): Command("Get System Restart Cause", _USER, 0, _restart_cause),
}
