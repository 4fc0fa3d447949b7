"""What BMCs keep, made durable: runtime state at once, logs soon and many records at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

from nospoon.bmc.events import EventSettings
from nospoon.bmc.log import Record
from nospoon.bmc.runtime import Runtime
from nospoon.errors import ProviderError
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.tasks import Tasks
from nospoon.store import bmc_log, event_services
from nospoon.store import nodes as node_rows
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database

log = RateLimitedLog()
AGAIN, TRIES = 2.0, 30
"""Seconds until a store that did not take records is tried again, and how often it is."""
MOST_WAITING = 100_000
"""Changes of logs that wait for the store; of more, the oldest are lost."""


class StoredRuntime:
    """The BMC service's store. Records wait while a transaction with those before is written."""

    def __init__(self, database: Database, cipher: Cipher, tasks: Tasks) -> None:
        self._database, self._cipher, self._tasks = database, cipher, tasks
        self._changes: list[bmc_log.Change] = []
        self._writing: asyncio.Task[None] | None = None
        self._stuck = asyncio.Event()

    async def save(self, machine: UUID, runtime: Runtime) -> None:
        kept = machine, sealed(runtime, self._cipher)
        await self._database.call_each(node_rows.save_runtimes, kept)

    def append(self, machine: UUID, record: Record) -> None:
        self._write_soon(bmc_log.Appended(machine, record))

    def erase(self, machine: UUID, number: int | None) -> None:
        self._write_soon(bmc_log.Erased(machine, number))

    def _write_soon(self, change: bmc_log.Change) -> None:
        self._changes.append(change)
        if len(self._changes) > 2 * MOST_WAITING:  # the store hangs
            self._changes = self._changes[-MOST_WAITING:]
        if self._writing is None:
            self._writing = self._tasks.start(self._write(), name="write logs")

    async def _write(self) -> None:
        tries = 0
        try:
            while self._changes:
                changes, self._changes = self._changes, []
                try:
                    await self._database.call(bmc_log.write, changes)
                except ProviderError as error:
                    tries += 1
                    log.warning("BMC logs are not stored", why=str(error), tries=tries)
                    if tries < TRIES:
                        self._changes = [*changes, *self._changes][-MOST_WAITING:]
                    self._stuck.set()
                    await asyncio.sleep(AGAIN)
                else:
                    tries = 0
                    self._stuck.clear()
        finally:
            self._writing = None
            self._stuck.clear()

    async def save_events(self, settings: EventSettings) -> None:
        kept = _with_headers(settings, lambda text: self._cipher.encrypt(text).decode())
        await self._database.call(event_services.put, kept)

    async def events(self) -> Sequence[EventSettings]:
        found = await self._database.call(event_services.everything)
        return [_with_headers(s, lambda text: self._cipher.decrypt(text.encode())) for s in found]

    async def flush(self) -> None:
        """Until everything is written, or waits for a store that does not answer."""
        if self._writing is None:
            return
        stuck = self._tasks.start(self._stuck.wait(), name="see whether the store answers")
        await asyncio.wait([self._writing, stuck], return_when=asyncio.FIRST_COMPLETED)
        stuck.cancel()


def _with_headers(settings: EventSettings, change: Callable[[str], str]) -> EventSettings:
    """Headers of subscriptions hold credentials as a rule: their values are stored encrypted."""
    changed = tuple(
        replace(each, headers=tuple((name, change(value)) for name, value in each.headers))
        for each in settings.subscriptions
    )
    return replace(settings, subscriptions=changed)


def sealed(runtime: Runtime, cipher: Cipher) -> Runtime:
    """As it is stored: passwords of further users and K_G are encrypted."""
    return _with_passwords(runtime, lambda password: cipher.encrypt(password).decode())


def opened(runtime: Runtime, cipher: Cipher) -> Runtime:
    """As it was before `sealed`."""
    return _with_passwords(runtime, lambda password: cipher.decrypt(password.encode()))


def _with_passwords(runtime: Runtime, change: Callable[[str], str]) -> Runtime:
    settings = runtime.settings
    if not settings.users and not settings.kg:
        return runtime
    users = (
        replace(user, password=change(user.password)) if user.password else user
        for user in settings.users
    )
    kg = change(settings.kg) if settings.kg else ""
    return replace(runtime, settings=replace(settings, users=tuple(users), kg=kg))
