"""Virtual media: images fetched for a BMC's client, or uploaded by ours, and put into CD drives."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from uuid import UUID
from weakref import WeakValueDictionary

from nospoon.control.fetch import Access, separated
from nospoon.control.files import Files
from nospoon.control.hosts import Hosts
from nospoon.errors import Conflict
from nospoon.providers.base import Medium

IsKept = Callable[[str], Awaitable[bool]]
"""Whether some cluster file names the file with this digest, so that it has to stay."""

Note = Callable[[UUID, str], Awaitable[None]]
"""Tells a machine's BMC what is in the drive now, "" for nothing."""


class Media:
    """Puts media in and takes them out. A fetched image is ours only until a host has its copy.

    What was asked for last counts: an image that arrives after something else was put in, or after
    the drive was emptied, is not put in any more.
    """

    def __init__(self, files: Files, hosts: Hosts, is_kept: IsKept, note: Note) -> None:
        self._files, self._hosts, self._is_kept = files, hosts, is_kept
        self._note = note
        self._in_use: Counter[str] = Counter()
        self._awaited: dict[UUID, object] = {}
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
        holds. Raises `UsageError` for other URLs, `ProviderError` when it cannot be had, `Conflict`
        when something else was asked for meanwhile.
        """
        self._hosts.driver(machine)  # an unknown machine is refused before the transfer
        place, access = separated(url, Access(username, password, verify=verify))
        mine = self._awaited[machine] = object()
        try:
            sha256 = await self._files.fetch(place, access)
            async with self._use(sha256), self._turn(machine):
                if self._awaited.get(machine) is not mine:
                    raise Conflict(f"{place} is not put in: something else was asked for meanwhile")
                await self._put(machine, sha256, place)
        finally:
            if self._awaited.get(machine) is mine:
                del self._awaited[machine]

    async def _put(self, machine: UUID, sha256: str, name: str) -> None:
        medium = Medium(str(self._files.path(sha256)), sha256)
        await self._hosts.driver(machine).insert(machine, medium)
        await self._note(machine, name)

    def _turn(self, machine: UUID) -> asyncio.Lock:
        """One after the other, each with what is told of it."""
        turn = self._turns.get(machine)
        if turn is None:
            turn = self._turns[machine] = asyncio.Lock()
        return turn

    async def fetch(
        self, url: str, *, username: str = "", password: str = "", verify: bool = True
    ) -> str:
        """Fetch an http(s) URL as `insert` does, and keep nothing; returns its SHA-256 in hex."""
        sha256 = await self._files.fetch(url, Access(username, password, verify=verify))
        async with self._use(sha256):
            return sha256

    async def insert_uploaded(self, machine: UUID, sha256: str, name: str) -> None:
        """Put in what a client uploaded before, and calls so. Raises `NotFound` when it did not.

        An empty name would tell the BMC that the drive is empty: then the digest stands for it.
        """
        self._files.path(sha256)
        self._awaited.pop(machine, None)
        async with self._use(sha256), self._turn(machine):
            await self._put(machine, sha256, name or sha256)

    async def eject(self, machine: UUID) -> None:
        """Take out what is in; an empty drive is no error."""
        self._awaited.pop(machine, None)
        async with self._turn(machine):
            await self._hosts.driver(machine).eject(machine)
            await self._note(machine, "")

    @asynccontextmanager
    async def _use(self, sha256: str) -> AsyncIterator[None]:
        self._in_use[sha256] += 1
        try:
            yield
        finally:
            self._in_use[sha256] -= 1
            if not self._in_use[sha256]:
                del self._in_use[sha256]
                await self._drop(sha256)

    async def _drop(self, sha256: str) -> None:
        if not await self._is_kept(sha256) and sha256 not in self._in_use:
            self._files.drop(sha256)
