"""Who is told of what: event services of all endpoints, their subscriptions and streams.

An event service belongs to an account at an endpoint, and tells of the systems that the account may
use and the endpoint serves: a BMC with an address of its own tells of itself alone. An endpoint of
all addresses has one for all of them, as any local user reaches millions. It stays with
the user whose name or password changes, waits while the user is disabled, and ends when the last
BMC there knows the user no more. Without subscriptions and streams nothing is made of what happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid4

from nospoon.bmc import events
from nospoon.bmc.events import EventSettings, Happening, RetryPolicy, Subscription
from nospoon.runtime import clock
from nospoon.runtime.reach import Reach
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.accounts import Accounts
from nospoon.services.bmcs.ports import RuntimeStore
from nospoon.services.bmcs.redfish.events.delivery import Deliveries
from nospoon.services.bmcs.redfish.messages.jobs import when
from nospoon.services.bmcs.redfish.messages.metadata import odata_type
from nospoon.services.bmcs.redfish.messages.uris import ROOT

MOST = 32
"""Subscriptions and streams of one account at one endpoint."""
BEHIND = 256
"""Events that a stream may be behind; one that is further behind ends."""
ServedAt = Callable[[tuple[str, int]], AbstractSet[UUID]]
IsAt = Callable[[UUID, tuple[str, int]], bool]
"""Whether this BMC answers at that endpoint, or would if it had AC power."""
MayUse = Callable[[bytes, tuple[str, int]], bool]
"""Whether this account may use a BMC that answers there, or would if it had AC power. By an index:
an account may use thousands of BMCs, and have as many streams as there may be at one of them.
"""
Here = Callable[[tuple[str, int]], bool]
Wants = Callable[[Happening], bool]


@dataclass(slots=True)
class Stream:
    """One who reads server-sent events; `queue` ends with None. `client`: where from, as a URI.
    `session`: by which it was opened, "" for none.
    """

    place: tuple[str, int]
    account: bytes
    wants: Wants
    client: str = ""
    session: str = ""
    id: str = field(default_factory=lambda: uuid4().hex)
    queue: asyncio.Queue[dict[str, object] | None] = field(
        default_factory=lambda: asyncio.Queue(BEHIND)
    )

    def put(self, event: dict[str, object]) -> bool:
        """Whether there was room."""
        if self.queue.full():
            return False
        self.queue.put_nowait(event)
        return True

    def end(self) -> None:
        """Nothing more comes."""
        if self.queue.full():
            self.queue.get_nowait()
        self.queue.put_nowait(None)


class Events:
    """All event services. Everything happens on the loop's thread."""

    def __init__(
        self,
        store: RuntimeStore,
        tasks: Tasks,
        accounts: Accounts,
        *,
        served_at: ServedAt,
        is_at: IsAt,
        may_use: MayUse,
        reach: Reach,
    ) -> None:
        self._store, self._accounts = store, accounts
        self._served_at, self._is_at, self._may_use = served_at, is_at, may_use
        self._settings: dict[tuple[str, str], EventSettings] = {}
        self._of: dict[str, tuple[str, str]] = {}
        self._held: dict[str, set[tuple[str, str]]] = {}
        self.streams: dict[str, Stream] = {}
        self._deliveries = Deliveries(
            tasks,
            self._look,
            self._gave_up,
            _event,
            overrun=self._overrun,
            owner_of=self._owner_of,
            reach=reach,
        )
        self._writing, self._following = asyncio.Lock(), asyncio.Lock()
        self._number = 0

    def restore(self, kept: Iterable[EventSettings]) -> None:
        """At start-up: go on with those that were kept."""
        for each in kept:
            self._take(each)

    @property
    def asked(self) -> bool:
        """Whether anybody listens at all."""
        return bool(self._settings) or bool(self.streams)

    def at(self, place: tuple[str, int], account: bytes) -> EventSettings:
        """The event service of an account at an endpoint."""
        key = _name(place), account.hex()
        return self._settings.get(key) or EventSettings(*key)

    async def change(
        self, key: tuple[str, str], change: Callable[[EventSettings], EventSettings]
    ) -> EventSettings:
        """One after the other; durable when this returns. What `change` raises, this does."""
        async with self._writing:
            before = self._settings.get(key)
            settings = change(before or EventSettings(*key))
            await self._store.save_events(settings)
            self._take(settings)
        self._forget(before, settings)
        if not settings.enabled:
            self._end_streams(settings)
        return settings

    def _end_streams(self, settings: EventSettings) -> None:
        """Those of a service that is disabled (EventService v1.12, `ServiceEnabled`)."""
        for each in self.streams.values():
            if (_name(each.place), each.account.hex()) == settings.key:
                each.end()

    def _forget(self, before: EventSettings | None, settings: EventSettings) -> None:
        """What is on its way to subscriptions that are no more."""
        kept = {each.id for each in settings.subscriptions if not each.suspended}
        for each in before.subscriptions if before is not None else ():
            if each.id not in kept:
                self._deliveries.forget(each.id)

    def _take(self, settings: EventSettings) -> None:
        before = self._settings.pop(settings.key, None)
        held = self._held.pop(settings.account, set()) - {settings.key}
        if held:  # clients change their passwords on and on: each makes another account
            self._held[settings.account] = held
        for each in before.subscriptions if before is not None else ():
            self._of.pop(each.id, None)
        if settings == EventSettings(*settings.key):
            return
        self._settings[settings.key] = settings
        self._held.setdefault(settings.account, set()).add(settings.key)
        for each in settings.subscriptions:
            self._of[each.id] = settings.key

    async def follow(
        self,
        here: Here,
        before: Mapping[int, bytes],
        after: Mapping[int, bytes],
        *,
        to: tuple[str, int] | None = None,
    ) -> None:
        """Users of one BMC, by number, had these accounts and have those; it answers `here`, or did
        before it went `to` another endpoint.
        """
        async with self._following:
            for number, account in before.items():
                if to is not None or after.get(number) != account:
                    await self._follow(here, account, after.get(number), to)
        for stream in [each for each in self.streams.values() if here(each.place)]:
            if not self._may_use(stream.account, stream.place):
                stream.end()

    def logged_out(self, session: str) -> None:
        """Who opened streams by it may use it no more, and neither may who took it from them."""
        for stream in self.streams.values():
            if stream.session == session:
                stream.end()

    async def followed(self) -> None:
        """Until what `follow` was told before is so."""
        async with self._following:
            pass

    async def _follow(
        self, here: Here, account: bytes, heir: bytes | None, to: tuple[str, int] | None
    ) -> None:
        """Where no BMC knows the account any more, it is another one's now, or ends."""
        for key in [key for key in self._held.get(account.hex(), ()) if here(_place(key[0]))]:
            if self._knows(account, _place(key[0])):
                continue
            if heir is None:
                await self.change(key, lambda settings: EventSettings(*settings.key))
            else:
                await self._move(key, (_name(to) if to is not None else key[0], heir.hex()))

    async def gather(self, place: tuple[str, int], here: Here) -> None:
        """BMCs answer at all addresses of this place, which earlier versions kept apart: services
        of each of those addresses become one.
        """
        name = _name(place)
        for key in [key for key in self._settings if key[0] != name and here(_place(key[0]))]:
            await self._move(key, (name, key[1]))

    def _knows(self, account: bytes, place: tuple[str, int]) -> bool:
        """Whether a BMC there knows the account, also where it may not log in now."""
        resting = self._accounts.resting(account)
        return self._may_use(account, place) or any(self._is_at(each, place) for each in resting)

    async def _move(self, key: tuple[str, str], to: tuple[str, str]) -> None:
        """Subscriptions keep their ids, and what is on its way to them. An account that has some
        gets as many more as it may have: clients choose which accounts become one.
        """
        async with self._writing:
            nothing, before = EventSettings(*key), self._settings.get(key)
            if before is None:
                return
            own = self._settings.get(to, replace(before, place=to[0], account=to[1]))
            others = tuple(each for each in before.subscriptions if each not in own.subscriptions)
            after = replace(own, subscriptions=(*own.subscriptions, *others)[:MOST])
            await self._store.save_events(after)
            await self._store.save_events(nothing)
            self._take(nothing)
            self._take(after)
        for each in set(others).difference(after.subscriptions):
            self._deliveries.forget(each.id)

    def happened(self, system: UUID, what: Iterable[Happening]) -> None:
        """Tell everybody who may know of this system and wants to."""
        holders = {each.hex() for each in self._accounts.of(system)}
        settings = [
            self._settings[key]
            for account in holders
            for key in self._held.get(account, ())
            if system in self._served_at(_place(key[0]))
        ]
        streams = [
            each
            for each in self.streams.values()
            if each.account.hex() in holders and system in self._served_at(each.place)
        ]
        if settings or streams:
            for each in what:
                self._tell(each, settings, streams)

    def tell(
        self,
        what: Happening,
        place: tuple[str, int],
        account: bytes,
        told: Mapping[str, object] | None = None,
    ) -> None:
        """Tell the listeners of one event service: a test. `told`: its record, as it is."""
        here = [s for s in self.streams.values() if (s.place, s.account) == (place, account)]
        self._tell(what, [self.at(place, account)], here, told)

    def _tell(
        self,
        what: Happening,
        settings: list[EventSettings],
        streams: list[Stream],
        told: Mapping[str, object] | None = None,
    ) -> None:
        self._number += 1
        record = _record(what, self._number)
        if told is not None:
            record = {"MemberId": "0", "EventId": record["EventId"], **told}
        for service in settings:
            for each in service.subscriptions if service.enabled else ():
                if not each.suspended and each.filter.accepts(what):
                    self._deliveries.put(each.id, record)
        for stream in streams:
            enabled = self.at(stream.place, stream.account).enabled
            if enabled and stream.wants(what) and not stream.put(_event(None, [record])):
                stream.end()

    def _overrun(self) -> dict[str, object]:
        """The record that others were lost (DSP8011, Base registry)."""
        self._number += 1
        lost = Happening(events.LOST, f"{ROOT}/EventService", "EventService", clock.unix())
        return _record(lost, self._number)

    def _look(self, subscription: str) -> tuple[EventSettings, Subscription] | None:
        key = self._of.get(subscription)
        if key is None:
            return None
        settings = self._settings[key]
        found = (each for each in settings.subscriptions if each.id == subscription)
        return settings, next(found)

    def _owner_of(self, subscription: str) -> int | None:
        """Whose BMCs it is about; None where no one may use them now."""
        _, account = self._of.get(subscription, ("", ""))
        return self._accounts.owner(bytes.fromhex(account))

    async def _gave_up(self, subscription: str) -> None:
        """End it or suspend it, as its policy says."""
        key = self._of.get(subscription)
        if key is not None:
            await self.change(key, lambda settings: _given_up(settings, subscription))

    def close(self) -> None:
        """The service ends; streams end with it."""
        for stream in self.streams.values():
            stream.end()
        self._deliveries.close()


def _given_up(settings: EventSettings, subscription: str) -> EventSettings:
    kept = tuple(
        replace(each, suspended=True) if each.id == subscription else each
        for each in settings.subscriptions
        if each.id != subscription or each.policy is RetryPolicy.SUSPEND
    )
    return replace(settings, subscriptions=kept)


def _name(place: tuple[str, int]) -> str:
    return f"{place[0]} {place[1]}"


def _place(name: str) -> tuple[str, int]:
    address, port = name.split()
    return address, int(port)


def _record(what: Happening, number: int) -> dict[str, object]:
    """An event record (Event v1.11, `Events`)."""
    message = what.message
    record: dict[str, object] = {
        "MemberId": "0",
        "EventId": what.id or str(number),
        "EventType": str(message.type),
        "EventTimestamp": when(what.at),
        "Severity": str(message.severity),
        "MessageSeverity": str(message.severity),
        "Message": message.told(what.args),
        "MessageId": message.id,
        "MessageArgs": list(what.args),
    }
    if what.origin:
        record["OriginOfCondition"] = {"@odata.id": what.origin}
    if what.entry:
        record["LogEntry"] = {"@odata.id": what.entry}
    return record


def _event(to: Subscription | None, records: list[dict[str, object]]) -> dict[str, object]:
    """The Event object that is sent."""
    body = {
        "@odata.type": odata_type("Event"),
        "Id": str(records[0]["EventId"]),
        "Name": "Event",
        "Events": [{**each, "MemberId": str(i)} for i, each in enumerate(records)],
        "Events@odata.count": len(records),
    }
    return {**body, "Context": to.context} if to is not None and to.context is not None else body
