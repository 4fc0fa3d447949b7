"""Virtual media: images fetched for a BMC's client, or uploaded by ours, and put into CD drives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from uuid import UUID
from weakref import WeakValueDictionary

from nospoon.control.content.client_downloads import ClientDownloads
from nospoon.control.content.fetch import Access, Terms, Transfer, separated
from nospoon.control.content.files import Files
from nospoon.control.content.images import refuse_formatted
from nospoon.control.fleet.hosts import Hosts
from nospoon.errors import Conflict, ProviderError
from nospoon.providers.base import Medium

IsKept = Callable[[str], Awaitable[bool]]
"""Whether some cluster file names the file with this digest, so that it has to stay."""

Note = Callable[[UUID, str], Awaitable[None]]
"""Tells a machine's BMC what is in the drive now, "" for nothing."""


class Media:
    """Puts media in and takes them out. A fetched image is ours only until a host has its copy.

    What was asked for last counts: a transfer ends when something else is asked for, or the drive
    is emptied.
    """

    def __init__(
        self,
        files: Files,
        hosts: Hosts,
        downloads: ClientDownloads,
        *,
        is_kept: IsKept,
        note: Note,
    ) -> None:
        self._files, self._hosts, self._downloads = files, hosts, downloads
        self._is_kept, self._note = is_kept, note
        self._awaited: dict[UUID, Transfer] = {}
        self._turns: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()

    async def insert(
        self,
        machine: UUID,
        url: str,
        *,
        username: str = "",
        password: str = "",
        verify: bool = True,
    ) -> None:
        """Fetch an http(s) URL and put it in. `verify`: its server must show a certificate that
        holds. Raises `UsageError` for other URLs, `ProviderError` when it cannot be fetched,
        `Conflict` when something else was asked for meanwhile.
        """
        self._hosts.drives(machine)  # an unknown machine is refused before the transfer
        place, access = separated(url, Access(username, password, verify=verify))
        self._leave(machine)
        mine = self._awaited[machine] = Transfer()
        try:
            async with (
                self._fetched(machine, place, access, mine) as sha256,
                self._turn(machine),
            ):
                self._refuse_old(machine, mine, place)
                await self._put(machine, sha256, place)
        except ProviderError:
            self._refuse_old(machine, mine, place)
            raise
        finally:
            if self._awaited.get(machine) is mine:
                del self._awaited[machine]

    def _leave(self, machine: UUID) -> None:
        """What was asked for before is wanted no more."""
        before = self._awaited.pop(machine, None)
        if before is not None:
            before.stop("something else was asked for meanwhile")

    def _refuse_old(self, machine: UUID, mine: Transfer, place: str) -> None:
        if self._awaited.get(machine) is not mine:
            raise Conflict(f"{place} is not put in: something else was asked for meanwhile")

    @asynccontextmanager
    async def _fetched(
        self, machine: UUID, url: str, access: Access, transfer: Transfer
    ) -> AsyncIterator[str]:
        """Its digest; it is here for that time, from the moment when it has come."""
        arrivals = _Arrivals(self._files)

        def fetch(terms: Terms) -> str:
            held = replace(terms, keep=arrivals.keep)
            return self._files.fetch_blocking(url, access, transfer, held)

        try:
            yield await self._downloads.run(machine, transfer, fetch)
        finally:
            for sha256 in arrivals.end():
                await self._drop(sha256, None)

    async def _put(self, machine: UUID, sha256: str, name: str) -> None:
        path = self._files.path(sha256)
        await asyncio.to_thread(refuse_formatted, path, name)
        medium = Medium(str(path), sha256)
        await self._hosts.drives(machine).insert(machine, medium)
        await self._note(machine, name)

    def _turn(self, machine: UUID) -> asyncio.Lock:
        """One after the other, each with what is told of it."""
        turn = self._turns.get(machine)
        if turn is None:
            turn = self._turns[machine] = asyncio.Lock()
        return turn

    async def fetch(
        self,
        machine: UUID,
        url: str,
        *,
        username: str = "",
        password: str = "",
        verify: bool = True,
    ) -> str:
        """Fetch an http(s) URL as `insert` does, for this machine's BMC, and keep nothing; returns
        its SHA-256 in hex.
        """
        access = Access(username, password, verify=verify)
        async with self._fetched(machine, url, access, Transfer()) as sha256:
            return sha256

    async def insert_uploaded(
        self, machine: UUID, sha256: str, name: str, *, owner: int | None = None
    ) -> None:
        """Put in what a client uploaded before, and calls so. Raises `NotFound` when it did not.

        An empty name would tell the BMC that the drive is empty: then the digest stands for it.
        """
        self._files.path(sha256)
        self._leave(machine)
        async with self._use(sha256, owner), self._turn(machine):
            await self._put(machine, sha256, name or sha256)

    async def eject(self, machine: UUID) -> None:
        """Take out what is in; an empty drive is no error."""
        self._leave(machine)
        async with self._turn(machine):
            await self._hosts.drives(machine).eject(machine)
            await self._note(machine, "")

    @asynccontextmanager
    async def _use(self, sha256: str, owner: int | None) -> AsyncIterator[None]:
        """`owner`: who uploaded it for this."""
        self._files.hold(sha256)
        self._files.answer(sha256, owner)
        try:
            yield
        finally:
            self._files.let_go(sha256)
            await self._drop(sha256, owner)

    async def _drop(self, sha256: str, owner: int | None) -> None:
        if not await self._is_kept(sha256) and not self._files.asked(sha256, owner):
            self._files.release(sha256, owner)


@dataclass(slots=True)
class _Arrivals:
    """What one download brought, in its thread, is held until its end: another machine may give up
    the same content meanwhile.
    """

    files: Files
    digests: list[str] = field(default_factory=list)
    ended: bool = False
    lock: Lock = field(default_factory=Lock)

    def keep(self, sha256: str) -> None:
        with self.lock:
            if not self.ended:
                self.files.hold(sha256)
                self.digests.append(sha256)

    def end(self) -> list[str]:
        """What is to be released; what comes later is not held, and `tidy` removes it."""
        with self.lock:
            self.ended = True
        for each in self.digests:
            self.files.let_go(each)
        return self.digests
