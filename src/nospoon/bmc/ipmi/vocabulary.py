"""What commands are made of: completion codes, results, and rows of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from nospoon.bmc.aggregate import Bmc
from nospoon.bmc.messages import Request, Verdict
from nospoon.protocols.ipmi.session import Identity, Privilege, Session

# Completion codes (§5.2, table 5-2)
OK: Final = 0x00
BUSY: Final = 0xC0
INVALID_COMMAND: Final = 0xC1
WRONG_LENGTH: Final = 0xC7
RESERVATION_CANCELLED: Final = 0xC5
OUT_OF_RANGE: Final = 0xC9
CANNOT_RETURN_SO_MANY: Final = 0xCA
NOT_PRESENT: Final = 0xCB
INVALID_FIELD: Final = 0xCC
WRONG_RECORD_TYPE: Final = 0xCD  # illegal for this type of sensor or record
UNAVAILABLE: Final = 0xD3
NO_PRIVILEGE: Final = 0xD4
WRONG_STATE: Final = 0xD5
UNSPECIFIED: Final = 0xFF
PARAMETER_NOT_SUPPORTED: Final = 0x80  # command specific: boot options, LAN parameters
INVALID_SESSION: Final = 0x87  # command specific: close session
INVALID_HANDLE: Final = 0x88  # command specific: close session
LEVEL_TOO_HIGH: Final = 0x81  # command specific: set session privilege
NEVER_SET: Final = 0x80  # command specific: reset watchdog timer
WRONG_PASSWORD: Final = 0x80  # command specific: set user password, test
WRONG_PASSWORD_SIZE: Final = 0x81  # the same
SET_IN_PROGRESS: Final = 0x81  # command specific: set parameters
READ_ONLY: Final = 0x82  # command specific: set parameters
WRITE_PROTECTED: Final = 0x80  # command specific: write FRU data

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


@dataclass(frozen=True, slots=True)
class Reply:
    """A completion code and data."""

    code: int
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Ask:
    """Put this to the aggregate: its verdict becomes the code, `data` follows a good one.

    The event's ticket is left to whoever asks.
    """

    event: Request
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Close:
    """Done; after the reply, end a session, or with None all sessions."""

    session: int | None


@dataclass(frozen=True, slots=True)
class Activate:
    """Attach this session to the machine's console; then reply with `data`."""

    session: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Deactivate:
    """Detach whoever is attached, and tell him."""


Result = Reply | Ask | Close | Activate | Deactivate


@dataclass(frozen=True, slots=True)
class Lan:
    """Where the BMC is: its address of IPv4 or, of 16 bytes, of IPv6, with its prefix length; MAC
    address, gateway (of IPv4), and UDP port.
    """

    address: bytes = bytes(4)
    prefix: int = 24
    mac: bytes = bytes(6)
    gateway: bytes = bytes(4)
    port: int = 623


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler may read. `session` None: not logged in. `sessions`: those of this BMC.

    `now`: of the aggregate's clock. `sol`: the session with serial over LAN, 0 when it is not
    active, None when it cannot be.
    """

    bmc: Bmc
    identity: Identity
    session: Session | None
    now: float = 0.0
    sessions: Mapping[int, Session] = field(default_factory=dict)
    lan: Callable[[], Lan] = Lan
    sol: int | None = None

    @property
    def held(self) -> Session:
        """The session of a command whose row demands a login."""
        assert self.session is not None, "the table demands a login"
        return self.session


def on_this_channel(data: bytes) -> bool:
    """Whether the low half of the first byte names our one channel (§6.3)."""
    return data[0] & 0x0F in {CHANNEL, CURRENT_CHANNEL}


Handler = Callable[[Context, bytes], Result]


@dataclass(frozen=True, slots=True)
class Command:
    """A row of the table. `length`: least number of data bytes. `privilege` NONE: without login.

    `name`: the standard's, for the reference. `more`: data bytes that may follow the least, None
    for any number: where the handler looks itself, or clients are known to differ.
    """

    name: str
    privilege: Privilege
    length: int
    handler: Handler
    more: int | None = 0

    def takes(self, size: int) -> bool:
        """Whether so many data bytes are right for it; else C7h (§5.2, table 5-2)."""
        return size >= self.length and (self.more is None or size <= self.length + self.more)


Group = Mapping[tuple[int, int], Command]
"""Network function and command -> row. A module of commands has one."""
