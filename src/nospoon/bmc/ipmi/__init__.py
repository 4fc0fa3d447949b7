"""IPMI commands, answered from the aggregate: one table, (netfn, command) -> privilege and handler.

A handler gives a reply at once, or an event for the aggregate, whose answer becomes the reply. New
commands are a module with its group of rows; here the groups come together.
"""

from __future__ import annotations

from nospoon.bmc.ipmi import (
    boot_options,
    channel,
    chassis,
    dcmi,
    device,
    fru,
    lan,
    payload,
    sdr,
    sel,
    sensor,
    system_info,
    users,
    watchdog,
)
from nospoon.bmc.ipmi.vocabulary import (
    CODES,
    INVALID_COMMAND,
    NO_PRIVILEGE,
    OK,
    UNAVAILABLE,
    WRONG_LENGTH,
    Activate,
    Ask,
    Close,
    Context,
    Deactivate,
    Group,
    Lan,
    Reply,
    Result,
)
from nospoon.protocols.ipmi.session import Privilege

COMMANDS: Group = {
    **chassis.COMMANDS,
    **boot_options.COMMANDS,
    **sensor.COMMANDS,
    **device.COMMANDS,
    **watchdog.COMMANDS,
    **channel.COMMANDS,
    **users.COMMANDS,
    **system_info.COMMANDS,
    **fru.COMMANDS,
    **sdr.COMMANDS,
    **sel.COMMANDS,
    **payload.COMMANDS,
    **lan.COMMANDS,
    **dcmi.COMMANDS,
}
"""Privileges by appendix G of the specification."""

__all__ = [
    "CODES",
    "COMMANDS",
    "OK",
    "UNAVAILABLE",
    "Activate",
    "Ask",
    "Close",
    "Context",
    "Deactivate",
    "Lan",
    "Reply",
    "Result",
    "answer",
]


def answer(context: Context, netfn: int, command: int, data: bytes) -> Result | None:
    """What a request gets; None: no reply at all (unknown commands of no one)."""
    row = COMMANDS.get((netfn, command))
    held = context.session.privilege if context.session is not None else Privilege.NONE
    if context.session is None and (row is None or row.privilege is not Privilege.NONE):
        return None
    if row is None:
        return Reply(INVALID_COMMAND)
    if held < row.privilege:
        return Reply(NO_PRIVILEGE)
    if not row.takes(len(data)):
        return Reply(WRONG_LENGTH)
    return row.handler(context, data)
