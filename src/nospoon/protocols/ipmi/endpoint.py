"""One BMC's side of RMCP+: datagrams in, datagrams and calls out; no socket, no clock.

Rules:

- Garbage gets no reply. What is answered without authentication is what the standard requires:
  the presence pong, channel authentication capabilities, cipher suites, the GUID, the handshake.
- Who sends what has no valid MAC of an active session gets so many answers a second, and no more
  bytes than it sent but for an allowance, of this BMC and of all together (`limit`). Bits in a
  header prove nothing.
- Where logins failed, handshakes for that user from there get no answer for a while (`failures`);
  a source cannot be forged here, for what proves it was sent to it.
- State is bounded: so many sessions that are active and so many that are being opened, of one
  address and in all; a handshake gives way to a new one, first of the same address, so that a flood
  from one does not shut out others; else one of an address from which no one logged in, the oldest
  that did not go on, which forged sources never do. An active session never gives way, and one more
  than there may be is refused at every step (§13.24, status 01h).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nospoon.model.addresses import peer_key
from nospoon.protocols.failures import Failures
from nospoon.protocols.ipmi.session import (
    OWNER,
    GaveUp,
    Identity,
    Privilege,
    Session,
    Source,
    Status,
    decode_open,
    refuse,
)
from nospoon.protocols.ipmi.sol import Sol
from nospoon.protocols.ipmi.wire import (
    Garbage,
    Message,
    Packet,
    Payload,
    Ping,
    Plain,
    decode,
    decode_message,
    encode_reply,
    plain,
    plus,
    pong,
    rmcp,
)
from nospoon.protocols.limit import OF_A_BMC, Asking, Budgets, Limiter

MAX_SESSIONS = 16
OF_A_USER, FOR_THE_OWNER = 4, 4
"""Sessions of one added user, of which the oldest gives way, and those that only the node's own
account gets: no other user can keep the owner out.
"""
MAX_HANDSHAKES = 16
HANDSHAKES_PER_ADDRESS = 8
KNOWN = 16
"""Sources that are remembered because a password was proved from there."""
FORGOTTEN = 60.0
"""Seconds after the last of those who did not log in, when what is left of their allowances is as
it was in the beginning.
"""
Random = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Send:
    """A datagram to where the request came from."""

    data: bytes
    to: Source


@dataclass(frozen=True, slots=True)
class Call:
    """A request that someone must answer, by `Endpoint.reply`. `session` 0: not logged in.

    `legacy`: it came in an IPMI 1.5 packet and is answered in one.
    """

    message: Message
    session: int
    source: Source
    legacy: bool = False


@dataclass(frozen=True, slots=True)
class LoginFailed:
    """Someone did not prove the password. `count`: how often, from there and for this user."""

    user: bytes
    source: Source
    count: int


@dataclass(frozen=True, slots=True)
class Typed:
    """A console typed these characters, and, with `breaks`, a break."""

    data: bytes
    breaks: bool = False


Event = Send | Call | Typed | LoginFailed


def _is_protected(decoded: Ping | Plain | Packet) -> bool:
    """Whether it is for an active session, which answers nothing that has no valid MAC."""
    return (
        isinstance(decoded, Packet)
        and decoded.session != 0
        and decoded.payload_type in (Payload.IPMI, Payload.SOL)
    )


_CONTINUING = (Payload.RAKP1, Payload.RAKP3)
"""Parts of a handshake that begin with the number of a session that we gave (§13.20, §13.22)."""


def _kind(decoded: Ping | Plain | Packet) -> Asking:
    if isinstance(decoded, Ping):
        return Asking.PING
    begins = isinstance(decoded, Packet) and decoded.payload_type == Payload.OPEN_REQUEST
    return Asking.LOGIN if begins else Asking.COMMAND


class Endpoint:
    """Sessions of one BMC, and its serial over LAN while that is active.

    `now` in seconds of any clock that does not go back.
    """

    __slots__ = (
        "_budget",
        "_failures",
        "_heard",
        "_known",
        "_limiter",
        "_shared",
        "identity",
        "most",
        "sessions",
        "sol",
    )

    def __init__(self, identity: Identity, shared: Budgets | None = None) -> None:
        """`shared`: the budgets of all BMCs together."""
        self.identity, self._shared = identity, shared
        self._budget: Budgets | None = None
        self.most = MAX_SESSIONS
        self.sessions: dict[int, Session] = {}
        self.sol: Sol | None = None
        self._limiter: Limiter | None = None
        self._heard = 0.0
        self._known: tuple[str, ...] = ()
        self._failures: Failures | None = None

    @property
    def deadline(self) -> float | None:
        """When the next session ends by itself."""
        return min((each.expires for each in self.sessions.values()), default=None)

    def expire(self, now: float) -> None:
        """End what timed out."""
        expired = [id_ for id_, each in self.sessions.items() if each.expires <= now]
        for id_ in expired:
            del self.sessions[id_]
        if expired:
            self._end_sol()

    def rest(self, now: float) -> bool:
        """Let go of what is over: who forges sources may begin logins at thousands of BMCs, and say
        nothing more. Returns whether something is left.
        """
        self.expire(now)
        if self._limiter is not None and now - self._heard >= FORGOTTEN:
            self._limiter = self._budget = None
        return self.is_awake

    @property
    def is_awake(self) -> bool:
        """Whether `rest` has something to let go of, by and by."""
        return bool(self.sessions) or self._limiter is not None

    def _end_sol(self) -> None:
        """Serial over LAN ends with its session."""
        if self.sol is not None and self.sol.session not in self.sessions:
            self.sol = None

    def renew(self, identity: Identity) -> None:
        """Other credentials: whoever logged in with what has changed is logged out."""
        if identity != self.identity:
            self.identity = identity
            kept = (each for each in self.sessions.values() if each.is_of(identity))
            self.sessions = {each.id: each for each in kept}
            self._end_sol()

    def receive(
        self, data: bytes, source: Source, *, now: float, random: Random
    ) -> tuple[Event, ...]:
        """Take a datagram. Never raises."""
        self.expire(now)
        try:
            return tuple(self._receive(data, source, now, random))
        except Garbage:
            return ()

    def _receive(self, data: bytes, source: Source, now: float, random: Random) -> Iterator[Event]:
        decoded = decode(data)
        if _is_protected(decoded):
            yield from self._decoded(decoded, source, now, random)
            return
        kind = _kind(decoded)
        free = self._is_reachable(decoded, source)
        known = free or peer_key(source.address) in self._known
        self._limit(kind, source, now, len(data), known=known)
        for each in self._decoded(decoded, source, now, random):
            if free or not isinstance(each, Send) or self._pays(kind, source, len(each.data)):
                yield each

    def _is_reachable(self, decoded: Ping | Plain | Packet, source: Source) -> bool:
        """Whether this continues a handshake with the number that was sent to this very source: it
        is not forged (compare RFC 9000 §8.1).
        """
        if not isinstance(decoded, Packet) or decoded.payload_type not in _CONTINUING:
            return False
        session = self.sessions.get(int.from_bytes(decoded.payload[4:8], "little"))
        return session is not None and session.source.address == source.address

    def _decoded(
        self, decoded: Ping | Plain | Packet, source: Source, now: float, random: Random
    ) -> Iterator[Event]:
        match decoded:
            case Ping(tag=tag):
                yield Send(pong(tag), source)
            case Plain(session=0, message=message):
                yield Call(decode_message(message), 0, source, legacy=True)
            case Plain():
                raise Garbage("IPMI 1.5 sessions are not offered")
            case Packet() as packet:
                yield from self._packet(packet, source, now, random)

    def _limit(self, kind: Asking, source: Source, now: float, size: int, *, known: bool) -> None:
        """Nothing is kept for a BMC that no stranger ever spoke to."""
        if self._limiter is None or self._budget is None:
            self._limiter, self._budget = Limiter(), Budgets(OF_A_BMC)
        self._heard = now
        if not self._limiter.allows(source.address, now, known=known):
            raise Garbage("too many requests without login")
        self._budget.came(kind, source.address, size, now)
        if self._shared is not None:
            self._shared.came(kind, source.address, size, now)

    def _pays(self, kind: Asking, source: Source, size: int) -> bool:
        """Whether an answer of this size may go to who did not log in."""
        if self._budget is None or not self._budget.pays(kind, source.address, size):
            return False
        return self._shared is None or self._shared.pays(kind, source.address, size)

    def _remember(self, source: Source) -> None:
        """A client logged in from there."""
        peer = peer_key(source.address)
        others = tuple(each for each in self._known if each != peer)
        self._known = (*others[-KNOWN + 1 :], peer)

    def _proved(self, source: Source) -> None:
        """It knows a password."""
        if self._budget is not None:
            self._budget.proved(source.address)
            if self._shared is not None:
                self._shared.proved(source.address)

    def _packet(
        self, packet: Packet, source: Source, now: float, random: Random
    ) -> Iterator[Event]:
        match packet.payload_type:
            case Payload.OPEN_REQUEST:
                yield Send(self._open(packet.payload, source, now, random), source)
            case Payload.RAKP1:
                yield from self._named(packet.payload, source, now, random)
            case Payload.RAKP3:
                session = self._handshaking(packet.payload)
                yield from self._finish(session, packet.payload, source, now)
            case Payload.IPMI if packet.session == 0:
                yield Call(decode_message(packet.payload), 0, source)
            case Payload.IPMI:
                session = self._session(packet.session)
                plain_payload = session.open_packet(packet, now=now)
                session.source = source
                self._proved(source)
                yield Call(decode_message(plain_payload), session.id, source)
            case Payload.SOL if packet.session:
                yield from self._serial(packet, source, now, random)
            case _:
                raise Garbage("no payload that we serve")

    def _serial(
        self, packet: Packet, source: Source, now: float, random: Random
    ) -> Iterator[Send | Typed]:
        session, sol = self._session(packet.session), self.sol
        if sol is None or sol.session != session.id:
            raise Garbage("serial over LAN is not active in this session")
        payload = session.open_packet(packet, now=now)
        session.source = source
        heard = sol.receive(payload, now)
        for each in heard.send:
            yield self._sealed(session, each, random)
        if heard.typed or heard.breaks:
            yield Typed(heard.typed, heard.breaks)

    def _sealed(self, session: Session, payload: bytes, random: Random) -> Send:
        return Send(session.seal(payload, iv=random(16), kind=Payload.SOL), session.source)

    def serial(self, payload: bytes, *, random: Random) -> Send | None:
        """A payload of serial over LAN to its console; None when that is not active."""
        session = self.sessions.get(self.sol.session) if self.sol is not None else None
        return self._sealed(session, payload, random) if session is not None else None

    def _open(self, payload: bytes, source: Source, now: float, random: Random) -> bytes:
        asked = decode_open(payload)
        if asked.suite is None:
            return self._refused(asked.tag, asked.console, Status.NO_CIPHER_SUITE_MATCH)
        if asked.privilege > Privilege.ADMINISTRATOR:
            return self._refused(asked.tag, asked.console, Status.INVALID_ROLE)
        if self._active >= self.most:
            return self._refused(asked.tag, asked.console, Status.NO_RESOURCES)
        self._make_room(source)
        session = Session(
            id=self._fresh_id(random),
            asked=asked,
            suite=asked.suite,
            identity=self.identity,
            source=source,
            now=now,
        )
        self.sessions[session.id] = session
        return session.opened(asked.tag)

    def _refused(self, tag: int, console: int, status: Status) -> bytes:
        return refuse(Payload.OPEN_RESPONSE, tag=tag, status=status, console=console)

    @property
    def _active(self) -> int:
        return sum(each.active for each in self.sessions.values())

    def _named(
        self, payload: bytes, source: Source, now: float, random: Random
    ) -> Iterator[Send | LoginFailed]:
        session = self._handshaking(payload)
        if session.active:
            raise Garbage("the handshake is over")
        if self._active >= self.most:
            yield Send(self._full(session, Payload.RAKP2, payload), source)
            return
        answer = session.rakp1(payload, random=random(16))
        if session.claims:
            self._check_wait(session, source, now)
        elif session.unknown:
            yield LoginFailed(session.unknown, source, 0)
        yield Send(answer, source)

    def _has_place(self, session: Session) -> bool:
        """Whether an added user may have one more session; the user's oldest gives way."""
        others = [each for each in self.sessions.values() if each.active and each is not session]
        mine = [each for each in others if each.user == session.user]
        if len(mine) >= OF_A_USER:
            del self.sessions[mine[0].id]
            self._end_sol()
            return True
        added = sum(each.user != OWNER for each in others)
        return added < self.most - FOR_THE_OWNER

    def _check_wait(self, session: Session, source: Source, now: float) -> None:
        """Silence, and a client that repeats what it sent is answered later."""
        failures = self._failures
        if failures is not None and failures.wait("", source.address, session.claims, now=now) > 0:
            raise Garbage("logins failed: the next one has to wait")

    def _full(self, session: Session, kind: Payload, payload: bytes) -> bytes:
        """Others were quicker: this handshake ends here."""
        del self.sessions[session.id]
        return session.refused(kind, tag=payload[0], status=Status.NO_RESOURCES)

    def _make_room(self, source: Source) -> None:
        """Dictionaries keep the order of arrival, of which `min` takes the first: the oldest."""
        opening = [each for each in self.sessions.values() if not each.active]
        peer = peer_key(source.address)
        same = [each for each in opening if peer_key(each.source.address) == peer]
        if len(same) >= HANDSHAKES_PER_ADDRESS:
            del self.sessions[min(same, key=self._worth).id]
        elif len(opening) >= MAX_HANDSHAKES:
            del self.sessions[min(opening, key=self._worth).id]

    def _worth(self, session: Session) -> tuple[bool, bool]:
        """Of a handshake, where others want its place."""
        return peer_key(session.source.address) in self._known, bool(session.claims)

    def _fresh_id(self, random: Random) -> int:
        while True:
            id_ = int.from_bytes(random(4))
            if id_ and id_ not in self.sessions:
                return id_

    def _handshaking(self, payload: bytes) -> Session:
        return self._session(int.from_bytes(payload[4:8], "little"))

    def _session(self, id_: int) -> Session:
        session = self.sessions.get(id_)
        if session is None:
            raise Garbage("no such session")
        return session

    def _finish(
        self, session: Session, payload: bytes, source: Source, now: float
    ) -> Iterator[Send | LoginFailed]:
        if session.active:
            yield Send(session.confirmed_again(payload), source)
            return
        if self._active >= self.most:
            yield Send(self._full(session, Payload.RAKP4, payload), source)
            return
        self._check_wait(session, source, now)
        try:
            answer = session.rakp3(payload, now=now)
        except GaveUp:
            del self.sessions[session.id]
            raise
        failed = not session.active
        if not failed and session.user != OWNER and not self._has_place(session):
            yield Send(self._full(session, Payload.RAKP4, payload), source)
            return
        if failed:
            del self.sessions[session.id]
            self._failures = self._failures or Failures()
            count = self._failures.failed("", source.address, session.claims, now=now)
            yield LoginFailed(session.claims.encode("latin-1"), source, count)
        else:
            self._proved(source)
            self._remember(source)
            if self._failures is not None:
                self._failures.worked("", source.address, session.claims)
        yield Send(answer, source)

    def reply(self, call: Call, code: int, data: bytes = b"", *, random: Random) -> Send | None:
        """The answer to a call; None when its session has ended meanwhile, or enough went to one
        who did not log in.
        """
        message = encode_reply(call.message, code, data)
        if call.session:
            session = self.sessions.get(call.session)
            return Send(session.seal(message, iv=random(16)), call.source) if session else None
        data = plain(message) if call.legacy else rmcp(plus(Payload.IPMI, message))
        return (
            Send(data, call.source) if self._pays(Asking.COMMAND, call.source, len(data)) else None
        )

    def close(self, session: int | None) -> None:
        """End a session, or with None all of them."""
        if session is None:
            self.sessions.clear()
        else:
            self.sessions.pop(session, None)
        self._end_sol()
