"""One agent: datagrams in, datagrams out; no socket, no clock.

- Garbage, a wrong community and a wrong user get no answer but what RFC 3414 §3.2 requires: reports
  of v3. They are longer than what asks for them, and a source gets no more bytes of them than came
  from there but for an allowance, so that a forged one is not worth forging (`limit`).
- A SET is checked as a whole before anything of it is done (RFC 3416 §4.2.5).
- v1 has five errors and no exceptions: the others are mapped (RFC 3584 §4.4).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from nospoon.protocols.limit import OF_A_BMC, Budget
from nospoon.protocols.snmp import ber, usm
from nospoon.protocols.snmp.ber import Garbage, Oid, Reader, Value
from nospoon.protocols.snmp.pdu import (
    Binding,
    Pdu,
    Status,
    Type,
    Version,
    read_message,
    read_pdu,
    version_of,
    write_message,
    write_pdu,
)
from nospoon.protocols.snmp.usm import AUTH, PRIV, REPORTABLE, Secured, Security, User

MAX_REPLY = 1400
"""Bytes of a response, so that it is one datagram on every network."""
MAX_REPEATS = 1000
"""Repetitions of a GetBulk (RFC 3416 §4.2.3)."""
MAX_LOOKS = 256
"""Variables that a GetBulk looks up, whatever it asks for; more hardly fit into MAX_REPLY."""
Random = Callable[[int], bytes]

_V1_STATUS = {
    Status.NO_ERROR: Status.NO_ERROR,
    Status.TOO_BIG: Status.TOO_BIG,
    Status.WRONG_TYPE: Status.BAD_VALUE,
    Status.WRONG_LENGTH: Status.BAD_VALUE,
    Status.WRONG_ENCODING: Status.BAD_VALUE,
    Status.WRONG_VALUE: Status.BAD_VALUE,
    Status.INCONSISTENT_VALUE: Status.BAD_VALUE,
    Status.NO_ACCESS: Status.NO_SUCH_NAME,
    Status.NOT_WRITABLE: Status.NO_SUCH_NAME,
    Status.NO_CREATION: Status.NO_SUCH_NAME,
    Status.NO_SUCH_NAME: Status.NO_SUCH_NAME,
}
"""RFC 3584 §4.4; all others are genErr."""
_REQUESTS = frozenset({Type.GET, Type.GET_NEXT, Type.GET_BULK, Type.SET})
_SNMP_MODULES = (1, 3, 6, 1, 6, 3)


class Report(Enum):
    """The counters that reports carry: usmStats (RFC 3414 §5), snmpUnknownPDUHandlers (RFC 3412
    §5) of a context engine that is not ours, snmpUnknownContexts (RFC 3413 §4.1.1).
    """

    UNSUPPORTED_SEC_LEVELS = (15, 1, 1, 1, 0)
    NOT_IN_TIME_WINDOWS = (15, 1, 1, 2, 0)
    UNKNOWN_USER_NAMES = (15, 1, 1, 3, 0)
    UNKNOWN_ENGINE_IDS = (15, 1, 1, 4, 0)
    WRONG_DIGESTS = (15, 1, 1, 5, 0)
    DECRYPTION_ERRORS = (15, 1, 1, 6, 0)
    UNKNOWN_PDU_HANDLERS = (11, 2, 1, 3, 0)
    UNKNOWN_CONTEXTS = (12, 1, 5, 0)

    @property
    def oid(self) -> Oid:
        return (*_SNMP_MODULES, *self.value)


_WRONG = frozenset({Report.UNKNOWN_USER_NAMES, Report.WRONG_DIGESTS, Report.DECRYPTION_ERRORS})


class Mib(Protocol):
    """What the agent answers from."""

    def get(self, oid: Oid, now: float) -> Value:
        """The value, or NO_SUCH_OBJECT or NO_SUCH_INSTANCE."""

    def next(self, oid: Oid) -> Oid | None:
        """The first instance after this one; None at the end."""

    def check(self, oid: Oid, value: Value) -> Status:
        """Whether this may be set."""

    def set(self, oid: Oid, value: Value, now: float) -> None:
        """Do it; it was checked."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask. `boots` grows with every start of the daemon, which was at `started`.

    `community` b"": v1 and v2c are not answered.
    """

    community: bytes = field(repr=False)
    user: User
    engine: bytes
    boots: int
    started: float


class Refused(Exception):
    """A v3 message is answered by a report. `key`: signs it, None: it goes unsigned."""

    def __init__(self, report: Report, key: tuple[bytes, str, int] | None = None) -> None:
        super().__init__(report.name)
        self.report, self.key = report, key


@dataclass(frozen=True, slots=True)
class _Scoped:
    """A scoped PDU (RFC 3412 §6.8): for which engine, and which context of it."""

    engine: bytes
    context: bytes
    pdu: Pdu


class Agent:
    """Answers for one MIB. `now` in seconds of any clock that does not go back. `shared`: what all
    agents together may report to strangers.
    """

    __slots__ = ("_budgets", "_counts", "_keys", "access", "failed_logins", "mib")

    def __init__(self, access: Access, mib: Mib, shared: Budget | None = None) -> None:
        self.access, self.mib = access, mib
        self._keys: dict[tuple[str, str], bytes] = {}
        self._counts = dict.fromkeys(Report, 0)
        self._budgets = [Budget(OF_A_BMC), *([shared] if shared is not None else [])]
        self.failed_logins = 0
        """Wrong communities, users and digests. They delay no one: a source is forged too easily,
        and who forges another's would shut it out."""

    def receive(self, data: bytes, *, source: str, now: float, random: Random) -> bytes | None:
        """The answer to a datagram from an address, None for silence. Never raises."""
        try:
            if version_of(data) is Version.V3:
                return self._secured(data, source, now, random)
            message = read_message(data)
        except Garbage:
            return None
        known = self.access.community
        if not known or not hmac.compare_digest(message.community, known):
            self.failed_logins += 1
            return None
        answer = self._answer(message.pdu, message.version, now)
        return write_message(replace(message, pdu=answer)) if answer is not None else None

    def _secured(self, data: bytes, source: str, now: float, random: Random) -> bytes | None:
        message = usm.read(data)
        try:
            key = self._authenticated(data, message, now)
            asked, cipher = self._opened(message, key)
        except Refused as refused:
            self.failed_logins += refused.report in _WRONG
            for each in self._budgets:
                each.came(source, len(data), now)
            report = self._report(message, refused, now)
            return report if report is not None and self._pays(source, len(report)) else None
        for each in self._budgets:
            each.proved(source)
        stray = self._stray(asked)
        answer = self._counted(stray, asked.pdu.request) if stray is not None else None
        answer = answer or self._answer(asked.pdu, Version.V3, now)
        if answer is None:
            return None
        scoped = _in_context(asked.engine, asked.context, answer)
        return self._seal(message, scoped, key, cipher, now, random)

    def _pays(self, source: str, size: int) -> bool:
        """Whether a report of so many bytes may go there."""
        return all(each.pays(source, size) for each in self._budgets)

    def _authenticated(self, data: bytes, message: Secured, now: float) -> tuple[bytes, str, int]:
        """The key, digest and length of what signed it (RFC 3414 §3.2, steps 3 to 7)."""
        security = message.security
        if security.engine != self.access.engine:
            raise Refused(Report.UNKNOWN_ENGINE_IDS)
        if security.user != self.access.user.name:
            raise Refused(Report.UNKNOWN_USER_NAMES)
        if not message.flags & AUTH:
            raise Refused(Report.UNSUPPORTED_SEC_LEVELS)
        size = len(security.auth)
        digest = usm.DIGESTS.get(size)
        if digest is None:
            raise Refused(Report.WRONG_DIGESTS)
        key = self._key("auth", digest)
        if not usm.is_signed(data, security, key, digest):
            raise Refused(Report.WRONG_DIGESTS)
        late = abs(security.time - self._time(now)) > usm.WINDOW
        if security.boots != self.access.boots or late:
            raise Refused(Report.NOT_IN_TIME_WINDOWS, (key, digest, size))
        return key, digest, size

    def _key(self, use: str, digest: str) -> bytes:
        """Made once each, and only for who is known by name."""
        known = self._keys.get((use, digest))
        if known is None:
            user = self.access.user
            phrase = user.auth if use == "auth" else user.priv
            known = usm.localized(phrase, self.access.engine, digest)
            self._keys[use, digest] = known
        return known

    def _time(self, now: float) -> int:
        return int(now - self.access.started)

    def _stray(self, asked: _Scoped) -> Report | None:
        """Why a request is for no one here: we are one engine with one context, named ""."""
        if asked.pdu.type not in _REQUESTS:
            return None
        if asked.engine != self.access.engine:
            return Report.UNKNOWN_PDU_HANDLERS
        return Report.UNKNOWN_CONTEXTS if asked.context else None

    def _opened(
        self, message: Secured, key: tuple[bytes, str, int]
    ) -> tuple[_Scoped, bytes | None]:
        """What was asked, and the key that encrypted it."""
        if not message.flags & PRIV:
            return _scoped(message.data), None
        digest = key[1]
        for size in usm.KEY_SIZES if len(message.security.priv) == usm.SALT else ():
            cipher = usm.extended(self._key("priv", digest), size, digest)
            decryptor = usm.cipher(cipher, message.security).decryptor()
            try:
                return _scoped(decryptor.update(message.data)), cipher
            except Garbage:
                continue  # of the other size
        raise Refused(Report.DECRYPTION_ERRORS)

    def _seal(
        self,
        asked: Secured,
        scoped: bytes,
        key: tuple[bytes, str, int],
        cipher: bytes | None,
        now: float,
        random: Random,
    ) -> bytes:
        secret, digest, size = key
        security = self._security(asked, now, auth=bytes(size))
        if cipher is not None:
            security = replace(security, priv=random(usm.SALT))
            scoped = usm.cipher(cipher, security).encryptor().update(scoped)
        flags = asked.flags & (AUTH | PRIV)
        made = usm.write(Secured(asked.id, ber.MAX_MESSAGE, flags, security, scoped))
        return usm.sign(made, secret, digest, size)

    def _security(self, asked: Secured, now: float, *, auth: bytes) -> Security:
        access = self.access
        user = asked.security.user
        return Security(access.engine, access.boots, self._time(now), user, auth, b"")

    def _report(self, asked: Secured, refused: Refused, now: float) -> bytes | None:
        """RFC 3412 §7.1: only to whom it helps."""
        pdu = self._counted(refused.report, _request_of(asked))
        if not asked.flags & REPORTABLE:
            return None
        scoped = _in_context(self.access.engine, b"", pdu)
        plain = replace(asked, flags=AUTH)
        if refused.key is not None:
            return self._seal(plain, scoped, refused.key, None, now, bytes)
        security = self._security(asked, now, auth=b"")
        return usm.write(Secured(asked.id, ber.MAX_MESSAGE, 0, security, scoped))

    def _counted(self, report: Report, request: int) -> Pdu:
        """A report, after one more was counted."""
        self._counts[report] = self._counts[report] + 1 & 0xFFFFFFFF
        counted = Binding(report.oid, Value(ber.Tag.COUNTER32, self._counts[report]))
        return Pdu(Type.REPORT, request, (counted,))

    def _answer(self, pdu: Pdu, version: Version, now: float) -> Pdu | None:
        match pdu.type:
            case Type.GET:
                answer = self._read(pdu, self._get, now)
            case Type.GET_NEXT:
                answer = self._read(pdu, self._next, now)
            case Type.GET_BULK if version is not Version.V1:
                return self._bulk(pdu, now)
            case Type.SET if len(write_pdu(_response(pdu, pdu.bindings))) > MAX_REPLY:
                return _failed(pdu, Status.TOO_BIG, 0)
            case Type.SET:
                answer = self._set(pdu, now)
            case _:
                return None
        answer = answer if version is not Version.V1 else _as_v1(pdu, answer)
        if len(write_pdu(answer)) > MAX_REPLY:
            return _failed(pdu, Status.TOO_BIG, 0)
        return answer

    def _read(self, pdu: Pdu, read: Callable[[Oid, float], Binding], now: float) -> Pdu:
        return _response(pdu, tuple(read(each.oid, now) for each in pdu.bindings))

    def _get(self, oid: Oid, now: float) -> Binding:
        return Binding(oid, self.mib.get(oid, now))

    def _next(self, oid: Oid, now: float) -> Binding:
        found = self.mib.next(oid)
        return Binding(oid, ber.END_OF_MIB) if found is None else self._get(found, now)

    def _bulk(self, pdu: Pdu, now: float) -> Pdu:
        """RFC 3416 §4.2.3: as many as fit."""
        bindings, room = [], MAX_REPLY
        for each in self._bulk_bindings(pdu, now):
            room -= len(write_pdu(_response(pdu, (each,)))) - len(write_pdu(_response(pdu, ())))
            if room < 0:
                break
            bindings.append(each)
        return _response(pdu, tuple(bindings))

    def _bulk_bindings(self, pdu: Pdu, now: float) -> Iterator[Binding]:
        asked = pdu.bindings[:MAX_LOOKS]
        once = max(0, min(pdu.status, len(asked)))
        for each in asked[:once]:
            yield self._next(each.oid, now)
        row = [each.oid for each in asked[once:]]
        most = (MAX_LOOKS - once) // len(row) if row else 0
        for _ in range(max(0, min(pdu.index, MAX_REPEATS, most))):
            found = [self._next(oid, now) for oid in row]
            yield from found
            row = [each.oid for each in found]
            if all(each.value == ber.END_OF_MIB for each in found):
                return

    def _set(self, pdu: Pdu, now: float) -> Pdu:
        """All or nothing. An object is named once: one may switch hundreds of outlets."""
        named = set[Oid]()
        for number, each in enumerate(pdu.bindings, start=1):
            status = self.mib.check(each.oid, each.value)
            if status is Status.NO_ERROR and each.oid in named:
                status = Status.INCONSISTENT_VALUE
            named.add(each.oid)
            if status is not Status.NO_ERROR:
                return _failed(pdu, status, number)
        for each in pdu.bindings:
            self.mib.set(each.oid, each.value, now)
        return _response(pdu, pdu.bindings)


def _scoped(data: bytes) -> _Scoped:
    inside = Reader(data).inside()
    return _Scoped(inside.octets(), inside.octets(), read_pdu(inside))


def _in_context(engine: bytes, name: bytes, pdu: Pdu) -> bytes:
    return ber.sequence(ber.encode_octets(engine), ber.encode_octets(name), write_pdu(pdu))


def _request_of(asked: Secured) -> int:
    """RFC 3412 §7.1, step 3c: that of the request where it can be read."""
    if asked.flags & PRIV:
        return 0
    try:
        return _scoped(asked.data).pdu.request
    except Garbage:
        return 0


def _response(pdu: Pdu, bindings: tuple[Binding, ...]) -> Pdu:
    return Pdu(Type.RESPONSE, pdu.request, bindings)


def _failed(pdu: Pdu, status: Status, index: int) -> Pdu:
    bindings = pdu.bindings if status is not Status.TOO_BIG else ()
    return Pdu(Type.RESPONSE, pdu.request, bindings, status, index)


_EXCEPTIONS = (ber.NO_SUCH_OBJECT, ber.NO_SUCH_INSTANCE, ber.END_OF_MIB)


def _as_v1(asked: Pdu, answer: Pdu) -> Pdu:
    """RFC 3584 §4.2.2.1, §4.4."""
    if answer.status:
        status = _V1_STATUS.get(Status(answer.status), Status.GEN_ERR)
        return _failed(asked, status, answer.index)
    for number, each in enumerate(answer.bindings, start=1):
        if each.value in _EXCEPTIONS or each.value.tag is ber.Tag.COUNTER64:
            return _failed(asked, Status.NO_SUCH_NAME, number)
    return answer
