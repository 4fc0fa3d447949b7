"""Who may log in by Redfish, and to which BMCs: found in one step, compared in constant time.

Accounts are indexed by a keyed digest of owner, name and password, so that looking up shows nothing
by its time, and a request costs microseconds: these are passwords of machines that are not there.
Nodes of one owner with the same name and password are one account; nothing here takes longer
because an account has many nodes.

What a caller sees of an account, its BMCs and its sessions, is what belongs to the place that was
asked, an address and port. Whoever has a BMC of his own can give it users with any name and
password: nothing may answer him whether BMCs elsewhere have the same.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from nospoon.bmc.users import ADMINISTRATOR, OWNER, User, added
from nospoon.model.passwords import is_hash
from nospoon.protocols.failures import Failures
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.services.bmcs.account_changes import AccountChanges
from nospoon.services.bmcs.checked_passwords import CheckedPasswords
from nospoon.services.bmcs.guesses import Guesses
from nospoon.services.bmcs.ports import BmcConfig

LEAST_PRIVILEGE, OPERATOR = 2, 3
"""USER may look, as Redfish's ReadOnly; OPERATOR may change, as its Operator (DSP0266 §13.7)."""
_HASHED, _OWNED, _OPEN = b"\xff", b"\xfe", b"\xfd"
"""Begin what is digested: of a hash, of a password, and of BMCs that need no login. No name in
UTF-8, which earlier versions digested alone, begins so."""
_OPEN_BEFORE = b"open"
"""The account that earlier versions gave all those who do not log in."""
JOINED, WITHOUT_LOGIN = -1, 0
"""Numbers of accounts that are no user's: of a password that fits several, and of no login."""
SESSION_TIMEOUT = 1800.0
"""Seconds without a request after which a session ends (DSP0266 §13.3.4.4)."""
SESSIONS_PER_NODE = 16
MOST_SESSIONS = 4096
"""An account may have so many sessions for each of its nodes at a place, and so many in all.

One more ends the account's session that was idle longest. A refusal (503), which the standard
allows too, would lock out a client that restarts without logging out, until its sessions expire.
"""


Place = tuple[str, int]
"""An address, perhaps that of all of its family, and a port."""


@dataclass(slots=True)
class RedfishSession:
    """A session that was logged in, at `place`; `account` is the digest that found it."""

    id: str
    token: str = field(repr=False)
    username: str
    account: bytes = field(repr=False)
    expires: float
    place: Place


@dataclass(slots=True)
class _Here:
    """An account's nodes at one place, and its sessions there by id, the one idle longest first.

    `untried`: nodes whose clients gave a user this name and password, until it logs in.
    """

    systems: set[UUID] = field(default_factory=set)
    untried: set[UUID] = field(default_factory=set)
    sessions: dict[str, RedfishSession] = field(default_factory=dict)


@dataclass(slots=True)
class _Account:
    """Its nodes, and its sessions by id, the one idle longest first: all, and those of each place.

    `limits`: nodes on which its privilege is less than administrator's.
    """

    systems: set[UUID] = field(default_factory=set)
    limits: dict[UUID, int] = field(default_factory=dict)
    sessions: dict[str, RedfishSession] = field(default_factory=dict)
    at: dict[Place, _Here] = field(default_factory=dict)


_NOWHERE = _Here()


class Accounts:
    """All accounts and sessions of the Redfish services.

    `key`: of digests; the same one gives an account the same digest after a restart.
    """

    def __init__(self, key: bytes = b"") -> None:
        self._key = key or secrets.token_bytes(32)
        self._accounts: dict[bytes, _Account] = {}
        self._of: dict[UUID, tuple[bytes, ...]] = {}
        self._where: dict[UUID, tuple[Place, int]] = {}
        self._owners: dict[Place, Counter[int]] = {}
        self._resting: dict[bytes, set[UUID]] = {}
        self._resting_of: dict[UUID, frozenset[bytes]] = {}
        self._hashes: dict[Place, dict[bytes, tuple[str, str]]] = {}
        self._joined: dict[bytes, bytes] = {}
        self.checked = CheckedPasswords()
        self.changes = 0
        """How often who may use a BMC was told."""
        self._by_token: dict[bytes, RedfishSession] = {}
        self._by_id: dict[str, RedfishSession] = {}
        self.failures, self.guesses = Failures(), Guesses()
        self.log = RateLimitedLog()
        self.changing = AccountChanges()

    def put(self, config: BmcConfig, users: Sequence[User] = ()) -> None:
        """Who may use this BMC from now on: its account and further users, as over IPMI.

        Sessions go on where nothing changed. A user who has the name that the file gives the node's
        account now may not log in, as over IPMI (§22.28: no two users have the same).
        """
        uuid = config.bmc.uuid
        self._settle(uuid, (config.bmc.address, config.bmc.redfish_port), config.owner)
        self.changes += 1
        digests = self.numbered(config, users)
        privileges = {
            digests[number]: ADMINISTRATOR
            for number in (OWNER, JOINED, WITHOUT_LOGIN)
            if number in digests
        }
        of_file = frozenset(privileges)
        for user in added(users):
            named = user.name != config.bmc.username
            if named and user.may_log_in and user.privilege >= LEAST_PRIVILEGE:
                privileges[digests[user.id]] = user.privilege
        self._rest(uuid, frozenset(digests.values()) - privileges.keys())
        for digest in set(self._of.get(uuid, ())) - set(privileges):
            self._leave(uuid, digest)
        for digest, privilege in privileges.items():
            if digest not in of_file and uuid not in self.systems(digest):
                self._at(uuid, digest).untried.add(uuid)
            self._enter(uuid, digest, privilege)
        self._of[uuid] = tuple(privileges)
        if is_hash(config.password):
            place, _ = self._where[uuid]
            hashes = self._hashes.setdefault(place, {})
            hashes[digests[OWNER]] = config.bmc.username, config.password

    def _settle(self, uuid: UUID, place: Place, owner: int) -> None:
        """It is this owner's, and here."""
        if self._where.get(uuid) == (place, owner):
            return
        self.remove(uuid)
        self._where[uuid] = place, owner
        self._owners.setdefault(place, Counter())[owner] += 1

    def _enter(self, uuid: UUID, digest: bytes, privilege: int) -> None:
        self._at(uuid, digest).systems.add(uuid)
        account = self._accounts[digest]
        account.systems.add(uuid)
        account.limits.pop(uuid, None)
        if privilege < ADMINISTRATOR:
            account.limits[uuid] = privilege

    def _at(self, uuid: UUID, digest: bytes) -> _Here:
        """What an account has where this BMC is."""
        place, _ = self._where[uuid]
        return self._accounts.setdefault(digest, _Account()).at.setdefault(place, _Here())

    def numbered(self, config: BmcConfig, users: Sequence[User]) -> dict[int, bytes]:
        """The accounts of a BMC's users by number, also of those that may not log in now, and
        those that are no user's (`JOINED`, `WITHOUT_LOGIN`).
        """
        found = {
            **{
                user.id: self._digest(config.owner, user.name, user.password)
                for user in added(users)
                if user.name and user.password
            },
            OWNER: self._of_file(config),
        }
        if found[OWNER] in self._joined:
            found[JOINED] = self._joined[found[OWNER]]
        if not config.bmc.redfish_login:
            found[WITHOUT_LOGIN] = self._open(config.owner)
        return found

    def numbered_before(self, config: BmcConfig, users: Sequence[User]) -> dict[int, bytes]:
        """What earlier versions named the same accounts by, whoever the owner was."""
        pairs = {user.id: (user.name, user.password) for user in added(users)}
        own = config.bmc.username, config.password
        found = {
            number: hmac.digest(self._key, "\0".join(pair).encode(), "sha256")
            for number, pair in pairs.items()
            if all(pair)
        }
        mark = _HASHED if is_hash(config.password) else b""
        found[OWNER] = hmac.digest(self._key, mark + "\0".join(own).encode(), "sha256")
        if not config.bmc.redfish_login:
            found[WITHOUT_LOGIN] = _OPEN_BEFORE
        return found

    def _of_file(self, config: BmcConfig) -> bytes:
        """The account of the file. Where it gives a hash alone, no one logs in with that itself."""
        username, password = config.bmc.username, config.password
        if not is_hash(password):
            return self._digest(config.owner, username, password)
        text = f"{config.owner}\0{username}\0{password}"
        return hmac.digest(self._key, _HASHED + text.encode(), "sha256")

    def _open(self, owner: int) -> bytes:
        """The account of those who do not log in, on BMCs of this owner that need no login."""
        return hmac.digest(self._key, _OPEN + str(owner).encode(), "sha256")

    def resting(self, account: bytes) -> AbstractSet[UUID]:
        """The BMCs that know this account, and where it may not log in now; to be looked at."""
        return self._resting.get(account, frozenset())

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
        """No one may use this BMC; who could use no other at its place is logged out."""
        self.changes += 1
        self._rest(uuid, frozenset())
        for digest in self._of.pop(uuid, ()):
            self._leave(uuid, digest)
        if uuid in self._where:
            place, owner = self._where.pop(uuid)
            self._owners[place][owner] -= 1
            if not self._owners[place][owner]:
                del self._owners[place][owner]
            if not self._owners[place]:
                del self._owners[place]

    def _leave(self, uuid: UUID, digest: bytes) -> None:
        account, (place, _) = self._accounts[digest], self._where[uuid]
        account.systems.discard(uuid)
        account.limits.pop(uuid, None)
        here = account.at[place]
        here.systems.discard(uuid)
        here.untried.discard(uuid)
        if not here.systems:
            for session in list(here.sessions.values()):
                self.log_out(session)
            del account.at[place]
            self._forget_hash(place, digest)
        if not account.systems:
            del self._accounts[digest]
            self._joined.pop(digest, None)

    def _forget_hash(self, place: Place, account: bytes) -> None:
        known = self._hashes.get(place, {})
        known.pop(account, None)
        if not known:
            self._hashes.pop(place, None)

    def of(self, system: UUID) -> tuple[bytes, ...]:
        """The accounts that may use a BMC."""
        return self._of.get(system, ())

    def privilege(self, account: bytes, system: UUID) -> int:
        """What an account may do with a BMC: an IPMI privilege level (§6.8), 0 for nothing."""
        found = self._accounts.get(account)
        if found is None or system not in found.systems:
            return 0
        return found.limits.get(system, ADMINISTRATOR)

    def administers(self, account: bytes, systems: AbstractSet[UUID]) -> bool:
        """Whether it may configure each of these BMCs: they may be ten thousand."""
        found = self._accounts.get(account)
        if found is None or not systems <= found.systems:
            return False
        return all(found.limits[each] >= ADMINISTRATOR for each in found.limits.keys() & systems)

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

    def owners(self, place: Place) -> list[int]:
        """Whose BMCs are at this place. Plans give it to one; earlier versions shared it."""
        return list(self._owners.get(place, ()))

    def find(self, place: Place, username: str, password: str) -> bytes | None:
        """The account with these credentials at this place, None for wrong ones."""
        found = (self._digest(owner, username, password) for owner in self.owners(place))
        return next((each for each in found if self.is_at(each, place)), None)

    def untried(self, account: bytes, place: Place) -> UUID | None:
        """A BMC at this place whose client gave a user this account's name and password, with which
        no one has logged in since; None: there is none.
        """
        return next(iter(self._here(account, place).untried), None)

    def tried(self, account: bytes, place: Place) -> None:
        """Someone logs in with it."""
        self._here(account, place).untried.clear()

    def is_open(self, account: bytes, place: Place) -> bool:
        """Whether it is that of those who do not log in at this place."""
        return any(account == self._open(owner) for owner in self.owners(place))

    def all_are_open(self, place: Place) -> bool:
        """Whether no BMC at this place needs a login."""
        known = self._owners.get(place, Counter())
        is_open = (len(self._here(self._open(each), place).systems) for each in known)
        return sum(is_open) == known.total()

    def open_at(self, place: Place) -> bytes | None:
        """The account of those who do not log in at this place."""
        found = (self._open(owner) for owner in self.owners(place))
        return next((each for each in found if self.is_at(each, place)), None)

    def has_hashes(self, place: Place) -> bool:
        """Whether any account at this place has a hash of its password only."""
        return place in self._hashes

    def hashes(self, place: Place, username: str) -> Mapping[bytes, str]:
        """Account -> the hash of its password, of those of this name at this place."""
        known = self._hashes.get(place, {}).items()
        return {account: text for account, (name, text) in known if name == username}

    def owner_of(self, place: Place, account: bytes) -> int:
        """Whose an account at this place is."""
        return self._where[next(iter(self._here(account, place).systems))][1]

    def owner(self, account: bytes) -> int | None:
        """Whose an account is that may use some BMC; None for others."""
        return next((self._where[each][1] for each in self.systems(account)), None)

    def pair(self, owner: int, username: str, password: str) -> bytes:
        """What these credentials of an owner's are known by."""
        return self._digest(owner, username, password)

    def join(self, account: bytes, pair: bytes) -> None:
        """What this account has is also what the account `pair` has, which takes the same name and
        password (see `pair`): that of BMCs that have the password as it is, and from now on also of
        those that have a hash of it.
        """
        if account == pair or self._joined.get(account) == pair:
            return
        self.changes += 1
        self._joined[account] = pair
        for uuid in list(self.systems(account)):
            self._enter(uuid, pair, ADMINISTRATOR)
            self._of[uuid] = (*self._of[uuid], pair)

    def is_at(self, account: bytes, place: Place) -> bool:
        """Whether it may use a BMC at this place."""
        return bool(self._here(account, place).systems)

    def _here(self, account: bytes, place: Place) -> _Here:
        """What an account has at a place; to be looked at."""
        found = self._accounts.get(account)
        return found.at.get(place, _NOWHERE) if found is not None else _NOWHERE

    def systems(self, account: bytes) -> AbstractSet[UUID]:
        """The BMCs that this account may use; to be looked at, not kept."""
        found = self._accounts.get(account)
        return found.systems if found is not None else frozenset()

    def _digest(self, owner: int, username: str, password: str) -> bytes:
        text = f"{owner}\0{username}\0{password}"
        return hmac.digest(self._key, _OWNED + text.encode(), "sha256")

    def log_in(self, account: bytes, username: str, *, place: Place, now: float) -> RedfishSession:
        """A new session of an account that `find` found, good at this place."""
        self._make_room(account, place, now)
        session = RedfishSession(
            id=uuid4().hex,
            token=secrets.token_urlsafe(24),
            username=username,
            account=account,
            expires=now + SESSION_TIMEOUT,
            place=place,
        )
        known = self._accounts[account]
        for sessions in (known.sessions, known.at[place].sessions, self._by_id):
            sessions[session.id] = session
        self._by_token[_named(session.token)] = session
        return session

    def _make_room(self, account: bytes, place: Place, now: float) -> None:
        known = self._accounts[account]
        here = known.at[place]
        limit = min(SESSIONS_PER_NODE * len(here.systems), MOST_SESSIONS)
        while here.sessions:
            oldest = next(iter(here.sessions.values()))
            if len(here.sessions) < limit and oldest.expires > now:
                break
            self.log_out(oldest)
        while len(known.sessions) >= MOST_SESSIONS:
            self.log_out(next(iter(known.sessions.values())))

    def end_sessions(self, uuid: UUID) -> None:
        """Log out who may use this BMC and no other at its place."""
        for digest in self._of.get(uuid, ()):
            place, _ = self._where[uuid]
            here = self._here(digest, place)
            if len(here.systems) == 1:
                for session in list(here.sessions.values()):
                    self.log_out(session)

    def session(self, token: str, *, place: Place, now: float) -> RedfishSession | None:
        """The session of this token, kept alive; None at another place than it was opened at."""
        found = self._by_token.get(_named(token))
        if found is None or found.place != place:
            return None
        if found.expires <= now:
            self.log_out(found)
            return None
        found.expires = now + SESSION_TIMEOUT
        known = self._accounts[found.account]
        for sessions in (known.sessions, known.at[place].sessions):
            sessions[found.id] = sessions.pop(found.id)
        return found

    def find_session(
        self, account: bytes, wanted: str, *, place: Place, now: float
    ) -> RedfishSession | None:
        """The session of this id, None where the account may not see it or it has expired."""
        found = self._by_id.get(wanted)
        if found is None or found.place != place or found.expires <= now:
            return None
        return found if self._may_see(account, found.account, place) else None

    def sessions(
        self, account: bytes, *, place: Place, now: float
    ) -> Iterator[Sequence[RedfishSession]]:
        """The sessions at a place that an account may see and end, as far as they have not expired.

        Its own, and those of accounts of which it administers all BMCs here (DSP0266 §13.3.4,
        ConfigureManager). They come by account, so that the caller may rest in between, while
        sessions begin and end.
        """
        for digest in [each for each, known in self._accounts.items() if known.sessions]:
            here = self._here(digest, place).sessions.values()
            seen = here and self._may_see(account, digest, place)
            yield [each for each in here if each.expires > now] if seen else ()

    def _may_see(self, account: bytes, other: bytes, place: Place) -> bool:
        return account == other or self._administers(account, other, place)

    def _administers(self, account: bytes, other: bytes, place: Place) -> bool:
        found, theirs = self._accounts.get(account), self._here(other, place).systems
        if found is None or not theirs or not theirs <= self._here(account, place).systems:
            return False
        return theirs.isdisjoint(found.limits)

    def log_out(self, session: RedfishSession) -> None:
        """End a session; harmless when it has ended."""
        account = self._accounts.get(session.account)
        if account is not None:
            account.sessions.pop(session.id, None)
            account.at.get(session.place, _NOWHERE).sessions.pop(session.id, None)
        self._by_id.pop(session.id, None)
        self._by_token.pop(_named(session.token), None)


def _named(token: str) -> bytes:
    """Tokens are looked up by a digest: how long that takes tells nothing of a token."""
    return hashlib.sha256(token.encode()).digest()
