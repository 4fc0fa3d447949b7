"""Limits of an HTTP listener: deadlines, sizes, and how many may be connected at a time.

Deadlines are those of requests. An answer may take as long as it likes, as event streams do, if
its client goes on to read it.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import chain
from typing import Protocol, TypeVar

from nospoon.model.addresses import source_key
from nospoon.runtime.handshakes import Handshakes
from nospoon.runtime.received import Received

RESERVE = 128
"""Descriptors that listeners for strangers leave to the daemon's socket, its store and hosts."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Of one listener. Times in seconds, sizes in bytes.

    `handshake`: of TLS. `head`: from a connection, or the first byte of a request, to the end of
    its headers. `keep_alive`: between requests. `body_rate`: bytes a second that a body must bring,
    measured over `body_window`. `stalled`: how long a client may read nothing of what it is sent.
    `stranger_body`: for the whole body of a request, while no one has logged in by it.
    `linger`: how long a refused client is listened to, so that it can read why.
    `headers`, `header_bytes` (names and values together), `url`: of one request.
    `pipelined`: requests that may wait for the answer to the one before.
    `per_peer`, `per_listener`: connections; `kept` of these are only for the peers `kept_for`.
    `most_gives_way`: on a full listener the peer with most connections loses one to a new one.
    `reserve`: descriptors that are left to others.
    """

    handshake: float = 10.0
    head: float = 10.0
    keep_alive: float = 5.0
    body_rate: int = 1024
    body_window: float = 10.0
    stranger_body: float = 3.0
    stalled: float = 60.0
    linger: float = 2.0
    headers: int = 100
    header_bytes: int = 64 << 10
    url: int = 8 << 10
    pipelined: int = 32
    per_peer: int = 256
    per_listener: int = 1024
    kept: int = 0
    kept_for: frozenset[str] = frozenset()
    most_gives_way: bool = False
    reserve: int = RESERVE

    @property
    def highest_descriptor(self) -> int:
        """A connection with a higher one is refused: descriptors are given lowest first
        (POSIX `accept`), so that all below are in use.
        """
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return soft - min(self.reserve, soft // 4) - 1


LIMITS = HttpLimits()
CONTROL = HttpLimits(reserve=0, kept=64, kept_for=frozenset({"uid=0", f"uid={os.getuid()}"}))
"""Of the daemon's own socket, which may use what the others leave. Members who act together, each
with as many requests as one may have, do not keep administrators out.
"""


def raise_descriptor_limit() -> None:
    """To what this process may have (setrlimit(2)): BMCs and their clients need many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # as many is what it has, then
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Droppable(Protocol):
    """A connection: whether it waits for a request, whether it asks for something without having
    logged in and without an answer so far, whether its latest request has logged in, the account
    that it asks by, and its end.
    """

    @property
    def is_waiting(self) -> bool: ...

    @property
    def is_stranger(self) -> bool: ...

    @property
    def is_known(self) -> bool: ...

    @property
    def account(self) -> Hashable: ...

    def drop(self) -> None: ...


@dataclass(slots=True, eq=False)
class Connection:
    """A place that a connection takes until it is released.

    It knows its subject only until then: cycles would leave thousands of connections to Python's
    garbage collector, which stops the loop for tens of milliseconds.
    """

    peer: str
    listener: int
    subject: Droppable | None
    of: Connections

    def release(self) -> None:
        """Again is harmless."""
        self.subject = None
        self.of.remove(self)


Group = dict[Connection, None]
K = TypeVar("K")


class Connections:
    """Who is connected to some listeners, the oldest first.

    Where a limit is reached, a connection that waits for a request gives way to a new one, else one
    whose client has not logged in and has no answer yet: clients that send nothing, or a body byte
    by byte, cannot keep others out. On a full listener it is one of the source with most that have
    not logged in, where that has such a one: who has some addresses cannot, either. On one without
    either, the oldest of the account with most connections there gives way; of boot files, for
    which there are no accounts, that of the peer with most (`most_gives_way`). Else the new one is
    refused.
    """

    def __init__(self, limits: HttpLimits = LIMITS) -> None:
        self._limits = limits
        self.handshakes, self.received = Handshakes(), Received()
        self._peers: dict[str, Group] = {}
        self._listeners: dict[int, Group] = {}
        self._new: dict[int, dict[str, Group]] = {}
        """Of each listener, by source; those that have logged in leave when it is looked at."""

    def __len__(self) -> int:
        return sum(map(len, self._listeners.values()))

    def admit(
        self, peer: str, listener: int, subject: Droppable, *, descriptor: int = 0
    ) -> Connection | None:
        """A place for one more; None: it is refused. `descriptor`: the number of its socket."""
        limits = self._limits
        same, beside = self._peers.get(peer, {}), self._listeners.get(listener, {})
        if len(same) >= limits.per_peer and not _give_way(same):
            return None
        most = limits.per_listener - (0 if peer in limits.kept_for else limits.kept)
        full = len(beside) >= most
        if full and not (
            self._new_gives_way(listener)
            or _give_way(beside)
            or _give_way(_of_most(beside), anyway=True)
            or (limits.most_gives_way and _give_way(_of_busiest(beside, peer), anyway=True))
        ):
            return None
        if descriptor > limits.highest_descriptor and not _give_way(self._most()):
            return None
        made = Connection(peer, listener, subject, self)
        _add(self._peers, peer, made)
        _add(self._listeners, listener, made)
        _add(self._new.setdefault(listener, {}), source_key(peer), made)
        return made

    def remove(self, connection: Connection) -> None:
        _remove(self._peers, connection.peer, connection)
        _remove(self._listeners, connection.listener, connection)
        self._forget_new(connection)

    def _forget_new(self, connection: Connection) -> None:
        new = self._new.get(connection.listener, {})
        _remove(new, source_key(connection.peer), connection)
        if not new:
            self._new.pop(connection.listener, None)

    def _new_gives_way(self, listener: int) -> bool:
        """Of the source with most connections that have not logged in, the oldest may give way:
        else who has some addresses would have all others lose theirs before these log in.
        """
        while group := max(self._new.get(listener, {}).values(), key=len, default={}):
            oldest = next(iter(group))
            if oldest.subject is None or not oldest.subject.is_known:
                return _give_way(group)
            self._forget_new(oldest)
        return False

    def _most(self) -> Group:
        """The connections of the peer that has the most."""
        return max(self._peers.values(), key=len, default={})


def _add(groups: dict[K, Group], key: K, connection: Connection) -> None:
    groups.setdefault(key, {})[connection] = None


def _remove(groups: dict[K, Group], key: K, connection: Connection) -> None:
    group = groups.get(key, {})
    group.pop(connection, None)
    if not group:
        groups.pop(key, None)


def _of_most(group: Group) -> Group:
    """The connections of the account that has the most of them."""
    accounts = {each: each.subject.account for each in group if each.subject is not None}
    counts = Counter(account for account in accounts.values() if account is not None)
    most = max(counts, key=lambda account: counts[account], default=None)
    return {
        each: None for each, account in accounts.items() if account is not None and account == most
    }


def _of_busiest(group: Group, new: str) -> Group:
    """The connections of the peer that has the most of them, where it would still have as many as a
    new one: else each would take the other's place in turn.
    """
    counts = Counter(each.peer for each in group)
    most = max(counts, key=lambda peer: counts[peer])
    if counts[most] <= counts[new] + 1:
        return {}
    return {each: None for each in group if each.peer == most}


def _give_way(group: Group, *, anyway: bool = False) -> bool:
    """The oldest that may be dropped is, where there is one. `anyway`: all of them may be."""
    waiting = (each for each in group if each.subject is not None and each.subject.is_waiting)
    strangers = (each for each in group if each.subject is not None and each.subject.is_stranger)
    place = next(chain(waiting, strangers, group if anyway else ()), None)
    if place is None or place.subject is None:
        return False
    subject = place.subject
    place.release()
    subject.drop()
    return True
