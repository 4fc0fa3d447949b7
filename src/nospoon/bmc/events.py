"""Redfish events: what happened, in the words of DMTF's registries, and who wants to be told.

Rules (DSP0266 §12.2, EventDestination v1.16):

- Each filter of a subscription that is set must fit; one that is not set fits everything. Prefixes
  of registries and identifiers of messages are one filter: it fits what either names.
- Event type Other stands for all that is not sorted by type.
- A message identifier fits whatever version of its registry was written.
- `subordinate`: what is below an origin fits, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from nospoon.bmc.log import Severity

_ARGUMENT = re.compile("%([1-9][0-9]{0,3})", re.ASCII)


class EventType(StrEnum):
    """The older way to sort events."""

    STATUS_CHANGE = "StatusChange"
    RESOURCE_UPDATED = "ResourceUpdated"
    RESOURCE_ADDED = "ResourceAdded"
    RESOURCE_REMOVED = "ResourceRemoved"
    ALERT = "Alert"


class RetryPolicy(StrEnum):
    """What becomes of a subscription whose destination does not take events."""

    TERMINATE = "TerminateAfterRetries"
    SUSPEND = "SuspendRetries"
    FOREVER = "RetryForever"
    BACKOFF = "RetryForeverWithBackoff"


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a registry; `%1` and so on in its text stand for its arguments."""

    id: str
    text: str
    type: EventType
    severity: Severity = Severity.OK

    @property
    def prefix(self) -> str:
        """Of its registry."""
        return self.id.partition(".")[0]

    def told(self, args: tuple[str, ...]) -> str:
        """The text with its arguments."""
        return filled(self.text, args)


def filled(text: str, args: Sequence[str]) -> str:
    """A registry's text with its arguments in the place of `%1` and so on.

    In one pass: what stands in an argument stays as it is. Otherwise arguments that name one
    another multiply, ten of them to gigabytes.
    """

    def argument(found: re.Match[str]) -> str:
        number = int(found[1])
        return args[number - 1] if number <= len(args) else found[0]

    return _ARGUMENT.sub(argument, text)


def count_of(text: str) -> int:
    """How many arguments a registry's text has."""
    return max((int(each) for each in _ARGUMENT.findall(text)), default=0)


RESOURCE, TASK = "ResourceEvent.1.3", "TaskEvent.1.0"
_T = EventType
POWERED_ON = Message(
    f"{RESOURCE}.ResourcePoweredOn", "The resource `%1` has powered on.", _T.STATUS_CHANGE
)
POWERED_OFF = Message(
    f"{RESOURCE}.ResourcePoweredOff", "The resource `%1` has powered off.", _T.STATUS_CHANGE
)
CREATED = Message(
    f"{RESOURCE}.ResourceCreated", "The resource was created successfully.", _T.RESOURCE_ADDED
)
CHANGED = Message(
    f"{RESOURCE}.ResourceChanged",
    "One or more resource properties have changed.",
    _T.RESOURCE_UPDATED,
)
HEALTHY = Message(
    f"{RESOURCE}.ResourceStatusChangedOK",
    "The health of resource `%1` has changed to %2.",
    _T.STATUS_CHANGE,
)
CRITICAL = Message(
    f"{RESOURCE}.ResourceStatusChangedCritical",
    "The health of resource `%1` has changed to %2.",
    _T.ALERT,
    Severity.CRITICAL,
)
TEST = Message(f"{RESOURCE}.TestMessage", "Test message.", _T.ALERT)
LOST = Message(
    "Base.1.18.EventBufferExceeded",
    "Undelivered events may have been lost due to exceeding the event buffer.",
    _T.ALERT,
    Severity.WARNING,
)
TASK_STARTED = Message(
    f"{TASK}.TaskStarted", "The task with Id '%1' has started.", _T.STATUS_CHANGE
)
TASK_COMPLETED = Message(
    f"{TASK}.TaskCompletedOK", "The task with Id '%1' has completed.", _T.STATUS_CHANGE
)
TASK_ABORTED = Message(
    f"{TASK}.TaskAborted",
    "The task with Id '%1' has completed with errors.",
    _T.ALERT,
    Severity.CRITICAL,
)
EVENTS = (
    POWERED_ON, POWERED_OFF, CREATED, CHANGED, HEALTHY, CRITICAL, TEST, LOST,
    TASK_STARTED, TASK_COMPLETED, TASK_ABORTED,
)  # fmt: skip
PREFIXES = ("ResourceEvent", "TaskEvent")


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened to the resource at `origin`, of type `kind`, at Unix time `at`.

    `entry`: the log entry about it, "" for none. `id`: given from outside, "" for the next one.
    """

    message: Message
    origin: str
    kind: str
    at: float
    args: tuple[str, ...] = ()
    entry: str = ""
    id: str = ""

    @property
    def origins(self) -> Iterator[str]:
        """Where it happened, and everything above."""
        path = self.origin
        while path:
            yield path
            path = path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Filter:
    """What a subscription is about; a tuple that is empty fits everything."""

    prefixes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    message_ids: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    severities: tuple[str, ...] = ()
    no_prefixes: tuple[str, ...] = ()
    no_message_ids: tuple[str, ...] = ()
    subordinate: bool = False

    def accepts(self, what: Happening) -> bool:
        """Whether a subscriber with this filter is told."""
        message = what.message
        wanted = (
            (self.kinds, what.kind),
            (() if "Other" in self.types else self.types, message.type),
            (self.severities, message.severity),
        )
        if any(some and one not in some for some, one in wanted):
            return False
        named = message.prefix in self.prefixes or _names(self.message_ids, message.id)
        if (self.prefixes or self.message_ids) and not named:
            return False
        if message.prefix in self.no_prefixes or _names(self.no_message_ids, message.id):
            return False
        places = set(what.origins) if self.subordinate else {what.origin}
        return not self.origins or any(each.rstrip("/") in places for each in self.origins)


def _names(ids: tuple[str, ...], id_: str) -> bool:
    return bool(ids) and unversioned(id_) in _unversioned(ids)


@lru_cache(maxsize=1024)
def _unversioned(ids: tuple[str, ...]) -> frozenset[tuple[str, str]]:
    """Each event is compared with the lists of hundreds of subscriptions."""
    return frozenset(map(unversioned, ids))


def unversioned(message_id: str) -> tuple[str, str]:
    """Registry and key of a message identifier, such as Base.1.18.Success or Base.Success."""
    return message_id.partition(".")[0], message_id.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A receiver of events by HTTP. `headers` go with each request; stored encrypted.

    `verify`: the destination's certificate must hold. `suspended`: it did not take events.
    """

    id: str
    destination: str
    context: str | None = None
    filter: Filter = Filter()
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    policy: RetryPolicy = RetryPolicy.TERMINATE
    verify: bool = False
    suspended: bool = False


@dataclass(frozen=True, slots=True)
class EventSettings:
    """The event service of one account at one endpoint: kept as a whole.

    `place`: the endpoint's address and port. `account`: its digest (see `Accounts`) in hex.
    `attempts` again after the first, `interval` seconds apart.
    """

    place: str
    account: str
    enabled: bool = True
    attempts: int = 3
    interval: int = 30
    subscriptions: tuple[Subscription, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """There is one for each endpoint and account."""
        return self.place, self.account
