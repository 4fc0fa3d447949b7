"""One BMC's side of RMCP+: datagrams in, datagrams and calls out; no socket, no clock.

Rules:

- Garbage gets no reply. What is answered without authentication is what the standard requires:
  the presence pong, channel authentication capabilities, cipher suites, the GUID, the handshake.
- Who did not log in gets so many answers a second, and no more (`limit`).
- State is bounded: so many sessions that are active and so many that are being opened, of one
  address and in all; the oldest handshake gives way to a new one, first of the same address, so
  that a flood from one does not shut out others. An active session never gives way, and one more
  than there may be is refused at every step (§13.24, status 01h).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nospoon.protocols.ipmi.session import (
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
from nospoon.protocols.limit import Limiter

MAX_SESSIONS = 16
MAX_HANDSHAKES = 16
HANDSHAKES_PER_ADDRESS = 8
Random = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Send:
    """A datagram to where the request came from."""

    data: bytes
    to: Source


@dataclass(frozen=True, slots=True)
class Call:
    """A request that somebody must answer, by `Endpoint.reply`. `session` 0: not logged in.

    `legacy`: it came in an IPMI 1.5 packet and is answered in one.
    """

    message: Message
    session: int
    source: Source
    legacy: bool = False


@dataclass(frozen=True, slots=True)
class Typed:
    """A console typed these characters, and, with `breaks`, a break."""

    data: bytes
    breaks: bool = False


class Endpoint:
    """Sessions of one BMC, and its serial over LAN while that is active.

    `now` in seconds of any clock that does not go back.
    """

    __slots__ = ("_limiter", "identity", "most", "sessions", "sol")

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.most = MAX_SESSIONS
        self.sessions: dict[int, Session] = {}
        self.sol: Sol | None = None
        self._limiter: Limiter | None = None

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
    ) -> tuple[Send | Call | Typed, ...]:
        """Take a datagram. Never raises."""
        self.expire(now)
        try:
            return tuple(self._receive(data, source, now, random))
        except Garbage:
            return ()

    def _receive(
        self, data: bytes, source: Source, now: float, random: Random
    ) -> Iterator[Send | Call | Typed]:
        decoded = decode(data)
        if not isinstance(decoded, Packet) or not decoded.authenticated:
            self._limit(source, now)
        match decoded:
            case Ping(tag=tag):
                yield Send(pong(tag), source)
            case Plain(session=0, message=message):
                yield Call(decode_message(message), 0, source, legacy=True)
            case Plain():
                raise Garbage("IPMI 1.5 sessions are not offered")
            case Packet() as packet:
                yield from self._packet(packet, source, now, random)

    def _limit(self, source: Source, now: float) -> None:
        if self._limiter is None:
            self._limiter = Limiter()
        if not self._limiter.allows(source.address, now):
            raise Garbage("too many at once from somebody who did not log in")

    def _packet(
        self, packet: Packet, source: Source, now: float, random: Random
    ) -> Iterator[Send | Call | Typed]:
        match packet.payload_type:
            case Payload.OPEN_REQUEST:
                yield Send(self._open(packet.payload, source, now, random), source)
            case Payload.RAKP1:
                yield Send(self._named(packet.payload, random), source)
            case Payload.RAKP3:
                session = self._handshaking(packet.payload)
                yield from self._finish(session, packet.payload, source, now)
            case Payload.IPMI if packet.session == 0:
                yield Call(decode_message(packet.payload), 0, source)
            case Payload.IPMI:
                session = self._session(packet.session)
                plain_payload = session.open_packet(packet, now=now)
                session.source = source
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

    def _named(self, payload: bytes, random: Random) -> bytes:
        session = self._handshaking(payload)
        if session.active:
            raise Garbage("the handshake is over")
        if self._active >= self.most:
            return self._full(session, Payload.RAKP2, payload)
        return session.rakp1(payload, random=random(16))

    def _full(self, session: Session, kind: Payload, payload: bytes) -> bytes:
        """Others were quicker: this handshake ends here."""
        del self.sessions[session.id]
        return session.refused(kind, tag=payload[0], status=Status.NO_RESOURCES)

    def _make_room(self, source: Source) -> None:
        """Dictionaries keep the order of arrival: the first is the oldest."""
        opening = [each for each in self.sessions.values() if not each.active]
        same = [each for each in opening if each.source.address == source.address]
        if len(same) >= HANDSHAKES_PER_ADDRESS:
            del self.sessions[same[0].id]
        elif len(opening) >= MAX_HANDSHAKES:
            del self.sessions[opening[0].id]

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
    ) -> Iterator[Send]:
        if session.active:
            yield Send(session.confirmed_again(payload), source)
            return
        if self._active >= self.most:
            yield Send(self._full(session, Payload.RAKP4, payload), source)
            return
        try:
            answer = session.rakp3(payload, now=now)
        except GaveUp:
            del self.sessions[session.id]
            raise
        if not session.active:
            del self.sessions[session.id]
        yield Send(answer, source)

    def reply(self, call: Call, code: int, data: bytes = b"", *, random: Random) -> Send | None:
        """The answer to a call; None when its session has ended meanwhile."""
        message = encode_reply(call.message, code, data)
        if call.session:
            session = self.sessions.get(call.session)
            return Send(session.seal(message, iv=random(16)), call.source) if session else None
        if call.legacy:
            return Send(plain(message), call.source)
        return Send(rmcp(plus(Payload.IPMI, message)), call.source)

    def close(self, session: int | None) -> None:
        """End a session, or with None all of them."""
        if session is None:
            self.sessions.clear()
        else:
            self.sessions.pop(session, None)
        self._end_sol()
