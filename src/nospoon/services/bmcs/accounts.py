"""Who may log in by Redfish, and to which BMCs: found in one step, compared in constant time.

Accounts are indexed by a keyed digest of name and password, so that looking up tells nothing by
its time, and a request costs microseconds: these are passwords of machines that are not there.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import defaultdict
from dataclasses import dataclass
from uuid import UUID, uuid4

from nospoon.services.bmcs.ports import BmcConfig

SESSION_TIMEOUT = 1800.0
"""Seconds without a request after which a session ends (DSP0266 §13.3.4.4)."""
MAX_SESSIONS = 1000


@dataclass(slots=True)
class RedfishSession:
    """A session that was logged in; `account` is the digest that found it."""

    id: str
    token: str
    username: str
    account: bytes
    expires: float


class Accounts:
    """All accounts and sessions of the Redfish services."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._systems: dict[bytes, set[UUID]] = defaultdict(set)
        self._of: dict[UUID, bytes] = {}
        self._sessions: dict[str, RedfishSession] = {}

    def put(self, config: BmcConfig) -> None:
        """This BMC's account, from now on."""
        self.remove(config.bmc.uuid)
        digest = self._digest(config.bmc.username, config.password)
        self._of[config.bmc.uuid] = digest
        self._systems[digest].add(config.bmc.uuid)

    def remove(self, uuid: UUID) -> None:
        digest = self._of.pop(uuid, None)
        if digest is not None:
            self._systems[digest].discard(uuid)
            if not self._systems[digest]:
                del self._systems[digest]
                self._end_sessions_of(digest)

    def _end_sessions_of(self, digest: bytes) -> None:
        ended = [token for token, s in self._sessions.items() if s.account == digest]
        for token in ended:
            del self._sessions[token]

    def systems(self, username: str, password: str) -> frozenset[UUID]:
        """The BMCs that this account may use; none for a wrong password."""
        return frozenset(self._systems.get(self._digest(username, password), ()))

    def _digest(self, username: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{username}\0{password}".encode(), "sha256")

    def log_in(self, username: str, password: str, *, now: float) -> RedfishSession | None:
        """A new session, or None for wrong credentials."""
        digest = self._digest(username, password)
        if digest not in self._systems:
            return None
        self._sweep(now)
        session = RedfishSession(
            id=uuid4().hex,
            token=secrets.token_urlsafe(24),
            username=username,
            account=digest,
            expires=now + SESSION_TIMEOUT,
        )
        self._sessions[_named(session.token)] = session
        return session

    def session(self, token: str, *, now: float) -> RedfishSession | None:
        """The session of this token, kept alive."""
        found = self._sessions.get(_named(token))
        if found is None or found.expires <= now:
            return None
        found.expires = now + SESSION_TIMEOUT
        return found

    def systems_of(self, session: RedfishSession) -> frozenset[UUID]:
        return frozenset(self._systems.get(session.account, ()))

    def sessions_of(self, systems: frozenset[UUID]) -> list[RedfishSession]:
        """Sessions of accounts that may use one of these BMCs."""
        accounts = {self._of[uuid] for uuid in systems if uuid in self._of}
        return [each for each in self._sessions.values() if each.account in accounts]

    def log_out(self, session: RedfishSession) -> None:
        self._sessions.pop(_named(session.token), None)

    def _sweep(self, now: float) -> None:
        """Bounded: what expired goes, and the oldest when there are too many."""
        for name in [name for name, each in self._sessions.items() if each.expires <= now]:
            del self._sessions[name]
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]


def _named(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
