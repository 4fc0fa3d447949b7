"""One RMCP+ session: its handshake (§13.17 to §13.23), its keys, and its protected packets.

    Open Session  ->  suite agreed, two session ids
    RAKP 1        ->  user and role known, our random number chosen
    RAKP 3        ->  the user proved the password: active; a wrong one ends the handshake

A packet of an active session is authentic, encrypted and fresh, or it is `Garbage`. Sequence
numbers may come out of order, at most 15 behind and 16 ahead of the highest seen, each once.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from nospoon.protocols.ipmi.crypto import BLOCK, SUITES, Damaged, Suite, decrypt, encrypt, mac
from nospoon.protocols.ipmi.wire import Garbage, Packet, Payload, plus, rmcp

HANDSHAKE_TIMEOUT = 20.0
SESSION_TIMEOUT = 60.0
"""§6.12.15: 60 seconds without a packet."""
AHEAD, BEHIND = 16, 15
NAME_LIMIT = 16
_CONSTANT_1, _CONSTANT_2 = b"\x01" * 20, b"\x02" * 20
_OPEN = struct.Struct("<BB2xI8s8s8s")
_RAKP1 = struct.Struct("<B3xI16sB2xB")
_RAKP3 = struct.Struct("<BB2xI")
_HEAD = struct.Struct("<BBBxI")


class Source(Protocol):
    """Where a client is; only compared, and handed back with what is sent there."""

    @property
    def address(self) -> str: ...

    @property
    def port(self) -> int: ...


class Privilege(IntEnum):
    """Privilege levels (§6.8); NONE is what someone has who did not log in."""

    NONE = 0
    CALLBACK = 1
    USER = 2
    OPERATOR = 3
    ADMINISTRATOR = 4


class Status(IntEnum):
    """RMCP+ and RAKP status codes (§13.24)."""

    OK = 0x00
    NO_RESOURCES = 0x01
    INVALID_ROLE = 0x09
    UNAUTHORIZED_ROLE = 0x0A
    INVALID_NAME_LENGTH = 0x0C
    UNAUTHORIZED_NAME = 0x0D
    INVALID_INTEGRITY_CHECK = 0x0F
    NO_CIPHER_SUITE_MATCH = 0x11


OWNER = 2
"""The user number of a BMC's own account."""


@dataclass(frozen=True, slots=True)
class Login:
    """A user who may log in. `id`: the user's number; `limit`: the highest privilege."""

    name: bytes
    password: bytes = field(repr=False)
    id: int = OWNER
    limit: Privilege = Privilege.ADMINISTRATOR
    sol: bool = True


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the BMC is and who may log in: its own account and `others`.

    `guid`: 16 bytes in SMBIOS order; `kg` b"": not set.
    """

    username: bytes
    password: bytes = field(repr=False)
    guid: bytes
    kg: bytes = field(default=b"", repr=False)
    others: tuple[Login, ...] = ()

    @property
    def logins(self) -> tuple[Login, ...]:
        return (Login(self.username, self.password), *self.others)

    def find(self, name: bytes) -> Login | None:
        """The first of this name: the node's account goes before those that clients made. Every
        name is compared, so that the time tells nothing of them.
        """
        found = None
        for login in self.logins:
            if hmac.compare_digest(login.name, name) and found is None:
                found = login
        return found


@dataclass(frozen=True, slots=True)
class Asked:
    """An Open Session Request (§13.17). `suite` None: none of ours matches; `console`: its id."""

    tag: int
    privilege: int
    console: int
    suite: Suite | None


def decode_open(payload: bytes) -> Asked:
    """Raises `Garbage`."""
    if len(payload) != _OPEN.size:
        raise Garbage("an open session request has 32 bytes")
    tag, privilege, console, *blocks = _OPEN.unpack(payload)
    if not console or any(block[0] != kind for kind, block in enumerate(blocks)):
        raise Garbage("no open session request")
    return Asked(tag, privilege & 0x0F, console, _suite([_algorithm(block) for block in blocks]))


def _algorithm(block: bytes) -> int | None:
    """None: a payload length of zero, which leaves the choice to us."""
    return block[4] & 0x3F if block[3] else None


def _suite(wanted: list[int | None]) -> Suite | None:
    """The strongest that matches."""
    for suite in reversed(SUITES):
        offered = (suite.authentication, suite.integrity, suite.confidentiality)
        if all(w in (None, o) for w, o in zip(wanted, offered, strict=True)):
            return suite
    return None


def refuse(kind: Payload, *, tag: int, status: Status, console: int) -> bytes:
    """The datagram that ends a handshake: 8 bytes of payload."""
    return rmcp(plus(kind, _HEAD.pack(tag, status, 0, console)))


@dataclass(frozen=True, slots=True)
class _Named:
    """What RAKP 1 told, and our random number: all that goes into the hashes."""

    console_random: bytes
    random: bytes
    role: int
    name: bytes

    @property
    def who(self) -> bytes:
        return bytes([self.role, len(self.name)]) + self.name


NOBODY = Login(b"", b"", 0, Privilege.NONE, sol=False)


class GaveUp(Garbage):
    """The console ends its handshake (§13.22): there is nothing to answer."""


class Session:
    """From the open request to its end. `limit`: the highest privilege that it may take."""

    __slots__ = (
        "_asked",
        "_confirmed",
        "_encryption_key",
        "_highest",
        "_identity",
        "_integrity_key",
        "_login",
        "_named",
        "_seen",
        "_sent",
        "_suite",
        "active",
        "expires",
        "id",
        "limit",
        "privilege",
        "source",
        "unknown",
    )

    def __init__(
        self,
        *,
        id: int,  # noqa: A002  (what the standard calls it)
        asked: Asked,
        suite: Suite,
        identity: Identity,
        source: Source,
        now: float,
    ) -> None:
        self.id, self.source = id, source
        self.active = False
        self.unknown = b""
        self.expires = now + HANDSHAKE_TIMEOUT
        self.limit = Privilege(asked.privilege or Privilege.ADMINISTRATOR)
        self.privilege = Privilege.NONE
        self._asked, self._suite, self._identity = asked, suite, identity
        self._named: _Named | None = None
        self._login = NOBODY
        self._confirmed: tuple[bytes, bytes] | None = None
        self._integrity_key = self._encryption_key = b""
        self._highest = self._seen = self._sent = 0

    @property
    def user(self) -> int:
        """The number of the user who logged in."""
        return self._login.id

    @property
    def claims(self) -> str:
        """The user that RAKP 1 named and that there is, "" before."""
        return self._named.name.decode("latin-1") if self._named is not None else ""

    @property
    def may_use_sol(self) -> bool:
        return self._login.sol

    def is_of(self, identity: Identity) -> bool:
        """Whether who logged in still may, as it was. Keys were derived: K_G counts no more."""
        return self._identity.guid == identity.guid and self._login in identity.logins

    def opened(self, tag: int) -> bytes:
        """The Open Session Response (§13.18)."""
        suite = self._suite
        chosen = (suite.authentication, suite.integrity, suite.confidentiality)
        blocks = (bytes([kind, 0, 0, 8, number, 0, 0, 0]) for kind, number in enumerate(chosen))
        head = _HEAD.pack(tag, Status.OK, self.limit, self._asked.console)
        return rmcp(
            plus(Payload.OPEN_RESPONSE, head + struct.pack("<I", self.id) + b"".join(blocks))
        )

    def refused(self, kind: Payload, *, tag: int, status: Status) -> bytes:
        """The datagram that ends this handshake."""
        return refuse(kind, tag=tag, status=status, console=self._asked.console)

    def rakp1(self, payload: bytes, *, random: bytes) -> bytes:
        """Message 1 -> message 2 (§13.20, §13.21). A repeated one gets the same answer."""
        tag, named = self._decode_rakp1(payload, random)
        login = self._identity.find(named.name)
        status = self._check(named, login)
        self.unknown = named.name if status is Status.UNAUTHORIZED_NAME else b""
        if status is not Status.OK:
            return self.refused(Payload.RAKP2, tag=tag, status=status)
        self._named, self._login = named, login or NOBODY
        head = _HEAD.pack(tag, Status.OK, 0, self._asked.console)
        ids = struct.pack("<II", self._asked.console, self.id)
        signed = ids + named.console_random + named.random + self._identity.guid + named.who
        code = mac(self._suite, self._login.password, signed)
        return rmcp(plus(Payload.RAKP2, head + named.random + self._identity.guid + code))

    def _decode_rakp1(self, payload: bytes, random: bytes) -> tuple[int, _Named]:
        if len(payload) < _RAKP1.size:
            raise Garbage("short RAKP message 1")
        tag, _, console_random, role, length = _RAKP1.unpack_from(payload)
        name = payload[_RAKP1.size :]
        if len(name) != length:
            raise Garbage("a user name that is not as long as it says")
        fresh = _Named(console_random, random, role, name)
        known = self._named
        if known is not None and (known.console_random, known.who) == (console_random, fresh.who):
            return tag, known
        return tag, fresh

    def _check(self, named: _Named, login: Login | None) -> Status:
        role = named.role & 0x0F
        if len(named.name) > NAME_LIMIT:
            return Status.INVALID_NAME_LENGTH
        if role > Privilege.ADMINISTRATOR:
            return Status.INVALID_ROLE
        if role > self.limit:
            return Status.UNAUTHORIZED_ROLE
        if login is None:
            return Status.UNAUTHORIZED_NAME
        return Status.OK if role <= login.limit else Status.UNAUTHORIZED_ROLE

    def rakp3(self, payload: bytes, *, now: float) -> bytes:
        """Message 3 -> message 4 (§13.22, §13.23). Not active afterwards: the proof was wrong."""
        if len(payload) < _RAKP3.size or self._named is None:
            raise Garbage("RAKP message 3 before 1, or short")
        tag, status, _ = _RAKP3.unpack_from(payload)
        if status != Status.OK:
            raise GaveUp
        named, console = self._named, struct.pack("<I", self._asked.console)
        proof = mac(self._suite, self._login.password, named.random + console + named.who)
        if not hmac.compare_digest(payload[_RAKP3.size :], proof):
            return self.refused(Payload.RAKP4, tag=tag, status=Status.INVALID_INTEGRITY_CHECK)
        answer = self._activate(tag, named, now)
        self._confirmed = (payload, answer)
        return answer

    def _activate(self, tag: int, named: _Named, now: float) -> bytes:
        """Derive the keys (§13.31, §13.32); K_UID takes the place of a K_G that is not set."""
        suite = self._suite
        key = self._identity.kg or self._login.password
        sik = mac(suite, key, named.console_random + named.random + named.who)
        self._integrity_key = mac(suite, sik, _CONSTANT_1)
        self._encryption_key = mac(suite, sik, _CONSTANT_2)[:BLOCK]
        self.limit = min(Privilege(named.role & 0x0F or self.limit), self._login.limit)
        self.privilege = min(self.limit, Privilege.USER)
        self.active, self.expires = True, now + SESSION_TIMEOUT
        signed = named.console_random + struct.pack("<I", self.id) + self._identity.guid
        code = mac(suite, sik, signed)[: suite.rakp4_length]
        head = _HEAD.pack(tag, Status.OK, 0, self._asked.console)
        return rmcp(plus(Payload.RAKP4, head + code))

    def confirmed_again(self, payload: bytes) -> bytes:
        """Message 4 again, for a console that missed it and has sent nothing since."""
        if self._confirmed is None or self._confirmed[0] != payload:
            raise Garbage("the handshake is over")
        return self._confirmed[1]

    def open_packet(self, packet: Packet, *, now: float) -> bytes:
        """The payload in the clear. Raises `Garbage` unless it is authentic, fresh and whole."""
        if not (self.active and packet.authenticated and packet.encrypted):
            raise Garbage("no protected packet of an active session")
        code = mac(self._suite, self._integrity_key, packet.covered)[: self._suite.trailer_length]
        if not hmac.compare_digest(code, packet.trailer):
            raise Garbage("not authentic")
        if not self._is_fresh(packet.sequence):
            raise Garbage("replayed, or out of the window")
        try:
            payload = decrypt(self._encryption_key, packet.payload)
        except Damaged as error:
            raise Garbage(str(error)) from error
        self.expires, self._confirmed = now + SESSION_TIMEOUT, None
        return payload

    def _is_fresh(self, number: int) -> bool:
        """Take a sequence number, once. Bit n of `_seen`: the highest less n was seen."""
        step = number - self._highest
        if step > 0:
            if step > AHEAD:
                return False
            self._seen = (self._seen << step | 1) & ((1 << BEHIND + 1) - 1)
            self._highest = number
            return True
        if number == 0 or -step > BEHIND or self._seen >> -step & 1:
            return False
        self._seen |= 1 << -step
        return True

    def seal(self, message: bytes, *, iv: bytes, kind: Payload = Payload.IPMI) -> bytes:
        """A datagram for the console. `iv`: 16 fresh random bytes."""
        self._sent += 1
        body = plus(
            kind,
            encrypt(self._encryption_key, message, iv),
            session=self._asked.console,
            sequence=self._sent,
            encrypted=True,
            authenticated=True,
        )
        return rmcp(
            body + mac(self._suite, self._integrity_key, body)[: self._suite.trailer_length]
        )
