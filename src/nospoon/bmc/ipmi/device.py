"""Who the BMC is (§20)."""

from __future__ import annotations

from nospoon.bmc.ipmi.vocabulary import (
    OK,
    Command,
    Context,
    Group,
    Reply,
    Result,
)
from nospoon.protocols.ipmi.session import Privilege

_NONE, _USER = Privilege.NONE, Privilege.USER


def _device_id(context: Context, data: bytes) -> Result:
    """§20.1: device 20h, firmware 1.0, IPMI 2.0, chassis device; no manufacturer is claimed."""
    del context, data
    return Reply(OK, bytes([0x20, 0x01, 0x01, 0x00, 0x02, 0x80, 0, 0, 0, 0, 0]))


def _self_test(context: Context, data: bytes) -> Result:
    del context, data
    return Reply(OK, b"\x55\x00")


def _guid(context: Context, data: bytes) -> Result:
    del data
    return Reply(OK, context.identity.guid)


COMMANDS: Group = {
    (0x06, 0x01): Command(_USER, 0, _device_id),
    (0x06, 0x04): Command(_USER, 0, _self_test),
    (0x06, 0x08): Command(_USER, 0, _guid),
    (0x06, 0x37): Command(_NONE, 0, _guid),
}
