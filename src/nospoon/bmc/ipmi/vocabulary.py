"""What commands are made of: completion codes, results, and rows of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from nospoon.bmc.aggregate import Bmc
from nospoon.bmc.messages import Verdict
from nospoon.model.boot import BootOverride
from nospoon.model.machine import PowerCommand
from nospoon.protocols.ipmi.session import Identity, Privilege, Session

# Completion codes (§5.2, table 5-2)
OK: Final = 0x00
BUSY: Final = 0xC0
INVALID_COMMAND: Final = 0xC1
WRONG_LENGTH: Final = 0xC7
OUT_OF_RANGE: Final = 0xC9
INVALID_FIELD: Final = 0xCC
UNAVAILABLE: Final = 0xD3
NO_PRIVILEGE: Final = 0xD4
WRONG_STATE: Final = 0xD5
UNSPECIFIED: Final = 0xFF
PARAMETER_NOT_SUPPORTED: Final = 0x80  # command specific: boot options, LAN parameters
INVALID_SESSION: Final = 0x87  # command specific: close session
LEVEL_TOO_HIGH: Final = 0x81  # command specific: set session privilege

CODES: Mapping[Verdict, int] = {
    Verdict.DONE: OK,
    Verdict.ACCEPTED: OK,
    Verdict.BUSY: BUSY,
    Verdict.WRONG_STATE: WRONG_STATE,
    Verdict.GONE: UNAVAILABLE,
    Verdict.UNREACHABLE: UNAVAILABLE,
    Verdict.FAILED: UNSPECIFIED,
}
CHANNEL = 0x01
CURRENT_CHANNEL = 0x0E
USER_ID = 0x02


@dataclass(frozen=True, slots=True)
class Reply:
    """A completion code and data."""

    code: int
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class WantPower:
    """Ask the aggregate for a chassis command."""

    command: PowerCommand


@dataclass(frozen=True, slots=True)
class WantOverride:
    """Set the boot override; `flags` as written."""

    override: BootOverride
    flags: bytes


@dataclass(frozen=True, slots=True)
class WantClearing:
    """Write boot option parameter 3."""

    clearing: int


@dataclass(frozen=True, slots=True)
class WantIdentify:
    """Switch the identify light; `seconds` None: until it is switched again."""

    lit: bool
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class WantClose:
    """End a session, after the reply."""

    session: int


Result = Reply | WantPower | WantOverride | WantClearing | WantIdentify | WantClose


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler may read. `session` None: not logged in. `sessions`: how many are active.

    `address` and `port`: where the console is, for Get Session Info.
    """

    bmc: Bmc
    identity: Identity
    session: Session | None
    sessions: int = 0
    address: bytes = bytes(4)
    port: int = 0


Handler = Callable[[Context, bytes], Result]


@dataclass(frozen=True, slots=True)
class Command:
    """A row of the table. `length`: least number of data bytes. `privilege` NONE: without login."""

    privilege: Privilege
    length: int
    handler: Handler


Group = Mapping[tuple[int, int], Command]
"""Network function and command -> row. A module of commands has one."""
