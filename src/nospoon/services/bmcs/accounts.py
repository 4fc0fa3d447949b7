"""Who may log in by Redfish, and to which BMCs: found in one step, compared in constant time.

Accounts are indexed by a keyed digest of name and password, so that looking up tells nothing by
its time, and a request costs microseconds: these are passwords of machines that are not there.
Nodes with the same name and password are one account; nothing here takes longer because an
account has many nodes.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from uuid import UUID, uuid4
from weakref import WeakValueDictionary

from nospoon.bmc.users import ADMINISTRATOR, OWNER, User, added
from nospoon.model.passwords import is_hash
from nospoon.protocols.failures import Failures
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.services.bmcs.ports import BmcConfig

LEAST_PRIVILEGE, OPERATOR = 2, 3
"""USER may look, as Redfish's ReadOnly; OPERATOR may change, as its Operator (DSP0266 §13.7)."""
_HASHED = b"\xff"
"""Begins what the account of a hash is named by; no name in UTF-8 begins so."""
OPEN = b"open"
"""The account of those who do not log in, on BMCs that need no login."""
SESSION_TIMEOUT = 1800.0
"""Seconds without a request after which a session ends (DSP0266 §13.3.4.4)."""
SESSIONS_PER_NODE = 16
MOST_SESSIONS = 4096
"""An account may have so many sessions for each of its nodes, and at most so many in all.

One more ends the account's session that was idle longest. A refusal (503), which the standard
allows too, would lock out a client that restarts without logging out, until its sessions expire.
"""


@dataclass(slots=True)
class RedfishSession:
    """A session that was logged in; `account` is the digest that found it."""

    id: str
    token: str = field(repr=False)
    username: str
    account: bytes = field(repr=False)
    expires: float


@dataclass(slots=True)
class _Account:
    """Its nodes, and its sessions by id, the one idle longest first.

    `limits`: nodes on which its privilege is less than administrator's.
    """

    systems: set[UUID] = field(default_factory=set)
    limits: dict[UUID, int] = field(default_factory=dict)
    sessions: dict[str, RedfishSession] = field(default_factory=dict)


class Accounts:
    """All accounts and sessions of the Redfish services.

    `key`: of digests; the same one gives an account the same digest after a restart.
    """

    def __init__(self, key: bytes = b"") -> None:
        self._key = key or secrets.token_bytes(32)
        self._accounts: dict[bytes, _Account] = {}
        self._of: dict[UUID, tuple[bytes, ...]] = {}
        self._resting: dict[bytes, set[UUID]] = {}
        self._resting_of: dict[UUID, frozenset[bytes]] = {}
        self._hashed: dict[str, dict[bytes, str]] = {}
        self._learned: dict[bytes, bytes] = {}
        self.changes = 0
        """How often who may use a BMC was told."""
        self._by_token: dict[bytes, RedfishSession] = {}
        self._by_id: dict[str, RedfishSession] = {}
        self.failures = Failures()
        self.log = RateLimitedLog()
        self._checking: WeakValueDictionary[object, asyncio.Lock] = WeakValueDictionary()
        self.changing = asyncio.Lock()
        """Held while an account is changed on all its BMCs, which takes many turns of the loop."""

    def put(self, config: BmcConfig, users: Sequence[User] = ()) -> None:
        """Who may use this BMC from now on: its account and further users, as over IPMI.

        Sessions go on where nothing changed. A user who has the name that the file gives the node's
        account now may not log in, as over IPMI (§22.28: no two users have the same).
        """
        self.changes += 1
        uuid, digests = config.bmc.uuid, self.numbered(config, users)
        privileges = {digests[OWNER]: ADMINISTRATOR}
        if not config.bmc.redfish_login:
            privileges[OPEN] = ADMINISTRATOR
        for user in added(users):
            named = user.name != config.bmc.username
            if named and user.may_log_in and user.privilege >= LEAST_PRIVILEGE:
                privileges[digests[user.id]] = user.privilege
        self._rest(uuid, frozenset(digests.values()) - privileges.keys())
        for digest in set(self._of.get(uuid, ())) - set(privileges):
            self._leave(uuid, digest)
        for digest, privilege in privileges.items():
            account = self._accounts.setdefault(digest, _Account())
            account.systems.add(uuid)
            account.limits.pop(uuid, None)
            if privilege < ADMINISTRATOR:
                account.limits[uuid] = privilege
        self._of[uuid] = tuple(privileges)

    def numbered(self, config: BmcConfig, users: Sequence[User]) -> dict[int, bytes]:
        """The accounts of a BMC's users by number, also of those that may not log in now."""
        return {
            **{
                user.id: self._digest(user.name, user.password)
                for user in added(users)
                if user.name and user.password
            },
            OWNER: self._owner(config),
        }

    def _owner(self, config: BmcConfig) -> bytes:
        """The account of the file. Where it gives a hash alone, nobody logs in with that itself."""
        username, password = config.bmc.username, config.password
        if not is_hash(password):
            return self._digest(username, password)
        account = hmac.digest(self._key, _HASHED + f"{username}\0{password}".encode(), "sha256")
        self._hashed.setdefault(username, {})[account] = password
        return account

    def checking(self, place: object) -> asyncio.Lock:
        """To be held while a password is compared with hashes of BMCs at one address: each takes
        milliseconds of a thread, and logins at other addresses do not wait for all of them.
        """
        return self._checking.setdefault(place, asyncio.Lock())

    def holders(self, account: bytes) -> Iterator[UUID]:
        """The BMCs that know this account, also where it may not log in now."""
        yield from self.systems(account)
        yield from self._resting.get(account, ())

    def _rest(self, uuid: UUID, accounts: frozenset[bytes]) -> None:
        """These are the accounts that this BMC knows, and that may not log in there."""
        for each in self._resting_of.pop(uuid, frozenset()):
            self._resting[each].discard(uuid)
            if not self._resting[each]:
                del self._resting[each]
        for each in accounts:
            self._resting.setdefault(each, set()).add(uuid)
        if accounts:
            self._resting_of[uuid] = accounts

    def remove(self, uuid: UUID) -> None:
        """Nobody may use this BMC; who could use no other is logged out."""
        self.changes += 1
        self._rest(uuid, frozenset())
        for digest in self._of.pop(uuid, ()):
            self._leave(uuid, digest)

    def _leave(self, uuid: UUID, digest: bytes) -> None:
        account = self._accounts[digest]
        account.systems.discard(uuid)
        account.limits.pop(uuid, None)
        if not account.systems:
            del self._accounts[digest]
            self._unlearn(digest)
            for session in account.sessions.values():
                self._forget(session)

    def of(self, system: UUID) -> tuple[bytes, ...]:
        """The accounts that may use a BMC."""
        return self._of.get(system, ())

    def privilege(self, account: bytes, system: UUID) -> int:
        """What an account may do with a BMC: an IPMI privilege level (§6.8), 0 for nothing."""
        found = self._accounts.get(account)
        if found is None or system not in found.systems:
            return 0
        return found.limits.get(system, ADMINISTRATOR)

    def least_privilege(self, account: bytes, here: AbstractSet[UUID]) -> int:
        """The least that it may do with any of these BMCs that it may use; 0: it may use none."""
        found = self._accounts.get(account)
        if found is None or found.systems.isdisjoint(here):
            return 0
        return min(
            (found.limits[each] for each in found.limits.keys() & here), default=ADMINISTRATOR
        )

    @property
    def tokens(self) -> frozenset[bytes]:
        """Digests of the tokens of all sessions."""
        return frozenset(self._by_token)

    def find(self, username: str, password: str) -> bytes | None:
        """The account with these credentials, None for wrong ones."""
        digest = self._digest(username, password)
        return digest if digest in self._accounts else None

    def hashes(self, username: str) -> Mapping[bytes, str]:
        """Account -> the hash of its password, of those of this name that have no more."""
        known = self._hashed.get(username, {})
        return {account: text for account, text in known.items() if account in self._accounts}

    def learn(self, account: bytes, username: str, password: str) -> None:
        """This password fits the account's hash: no more checks are needed to know it again."""
        if account in self._accounts:
            self._learned[account] = self._digest(username, password)

    def has_learned(self, account: bytes, username: str, password: str) -> bool:
        """Whether this password is known to fit the account's hash."""
        known = self._learned.get(account, b"")
        return hmac.compare_digest(known, self._digest(username, password))

    def _unlearn(self, account: bytes) -> None:
        self._learned.pop(account, None)
        for known in self._hashed.values():
            known.pop(account, None)

    def systems(self, account: bytes) -> AbstractSet[UUID]:
        """The BMCs that this account may use; to be looked at, not kept."""
        found = self._accounts.get(account)
        return found.systems if found is not None else frozenset()

    def _digest(self, username: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{username}\0{password}".encode(), "sha256")

    def log_in(self, account: bytes, username: str, *, now: float) -> RedfishSession:
        """A new session of an account that `find` found."""
        sessions = self._accounts[account].sessions
        self._make_room(account, now)
        session = RedfishSession(
            id=uuid4().hex,
            token=secrets.token_urlsafe(24),
            username=username,
            account=account,
            expires=now + SESSION_TIMEOUT,
        )
        sessions[session.id] = self._by_id[session.id] = session
        self._by_token[_named(session.token)] = session
        return session

    def _make_room(self, account: bytes, now: float) -> None:
        known = self._accounts[account]
        limit = min(SESSIONS_PER_NODE * len(known.systems), MOST_SESSIONS)
        while known.sessions:
            oldest = next(iter(known.sessions.values()))
            if len(known.sessions) < limit and oldest.expires > now:
                return
            self.log_out(oldest)

    def end_sessions(self, uuid: UUID) -> None:
        """Log out who may use this BMC and no other."""
        for digest in self._of.get(uuid, ()):
            account = self._accounts[digest]
            if len(account.systems) == 1:
                for session in list(account.sessions.values()):
                    self.log_out(session)

    def session(self, token: str, *, now: float) -> RedfishSession | None:
        """The session of this token, kept alive."""
        found = self._by_token.get(_named(token))
        if found is None:
            return None
        if found.expires <= now:
            self.log_out(found)
            return None
        found.expires = now + SESSION_TIMEOUT
        sessions = self._accounts[found.account].sessions
        sessions[found.id] = sessions.pop(found.id)
        return found

    def find_session(
        self, account: bytes, here: AbstractSet[UUID], wanted: str, *, now: float
    ) -> RedfishSession | None:
        """The session of this id, None where the account may not see it or it has expired."""
        found = self._by_id.get(wanted)
        if found is None or found.expires <= now or not self._may_see(account, found.account, here):
            return None
        return found

    def sessions(
        self, account: bytes, here: AbstractSet[UUID], *, now: float
    ) -> Iterator[Sequence[RedfishSession]]:
        """The sessions that an account may see and end, as far as they have not expired.

        Its own, and those of accounts that use BMCs `here`, and none but such as it administers:
        a session is good for all BMCs of its account (DSP0266 §13.3.4, ConfigureManager). They come
        by account, so that the caller may rest in between, while sessions begin and end.
        """
        for digest in [each for each, other in self._accounts.items() if other.sessions]:
            other = self._accounts.get(digest)
            if other is None or not self._may_see(account, digest, here):
                yield ()
            else:
                yield [each for each in other.sessions.values() if each.expires > now]

    def _may_see(self, account: bytes, other: bytes, here: AbstractSet[UUID]) -> bool:
        return account == other or self._administers(account, self._accounts[other], here)

    def _administers(self, account: bytes, other: _Account, here: AbstractSet[UUID]) -> bool:
        found = self._accounts.get(account)
        if found is None or other.systems.isdisjoint(here) or not other.systems <= found.systems:
            return False
        return other.systems.isdisjoint(found.limits)

    def log_out(self, session: RedfishSession) -> None:
        """End a session; harmless when it has ended."""
        account = self._accounts.get(session.account)
        if account is not None:
            account.sessions.pop(session.id, None)
        self._forget(session)

    def _forget(self, session: RedfishSession) -> None:
        self._by_id.pop(session.id, None)
        self._by_token.pop(_named(session.token), None)


def _named(token: str) -> bytes:
    """Tokens are looked up by a digest: how long that takes tells nothing of a token."""
    return hashlib.sha256(token.encode()).digest()
