"""IPMI commands, answered from the aggregate: one table, (netfn, command) -> privilege and handler.

A handler gives a reply at once, or a wish for the aggregate, whose answer becomes the reply. New
commands are a module with its group of rows; here the groups come together.
"""

from __future__ import annotations

from nospoon.bmc.ipmi import boot_options, channel, chassis, device, lan
from nospoon.bmc.ipmi.vocabulary import (
    CODES,
    INVALID_COMMAND,
    NO_PRIVILEGE,
    OK,
    WRONG_LENGTH,
    Context,
    Group,
    Reply,
    Result,
    WantClearing,
    WantClose,
    WantIdentify,
    WantOverride,
    WantPower,
)
from nospoon.protocols.ipmi.session import Privilege

COMMANDS: Group = {
    **device.COMMANDS,
    **channel.COMMANDS,
    **chassis.COMMANDS,
    **boot_options.COMMANDS,
    **lan.COMMANDS,
}
"""Privileges by appendix G of the specification."""

__all__ = [
    "CODES",
    "COMMANDS",
    "OK",
    "Context",
    "Reply",
    "Result",
    "WantClearing",
    "WantClose",
    "WantIdentify",
    "WantOverride",
    "WantPower",
    "answer",
]


def answer(context: Context, netfn: int, command: int, data: bytes) -> Result | None:
    """What a request gets; None: no reply at all (unknown commands of nobody)."""
    row = COMMANDS.get((netfn, command))
    held = context.session.privilege if context.session is not None else Privilege.NONE
    if context.session is None and (row is None or row.privilege is not Privilege.NONE):
        return None
    if row is None:
        return Reply(INVALID_COMMAND)
    if held < row.privilege:
        return Reply(NO_PRIVILEGE)
    if len(data) < row.length:
        return Reply(WRONG_LENGTH)
    return row.handler(context, data)
