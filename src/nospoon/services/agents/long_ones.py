"""Long commands and answers of agents, of which few are held at a time.

Who knows an agent's token, which its API chooses, may send 8 MiB of a command on each of a thousand
connections, and ask for as much. One of each agent, and some of all agents of a user, are received,
worked on or sent at a time; further ones wait where they are. A conductor gives a node one command
at a time, and most are short.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID
from weakref import WeakValueDictionary

from nospoon.errors import Busy
from nospoon.runtime.turns import Turns

LONG = 64 << 10
"""Bytes of a body or answer that needs a turn: a thousand connections have 64 MiB of shorter ones.
"""
AT_ONCE = 8
"""Of one user's agents."""
UNDER_WAY = 512
"""Of one user's agents, waiting ones included: who hung up meanwhile waits on."""


class LongOnes:
    """Their turns."""

    def __init__(self) -> None:
        self._of_agents = Turns()
        self._of_owners: WeakValueDictionary[int, asyncio.Semaphore] = WeakValueDictionary()
        self._under_way = Counter[int]()

    @asynccontextmanager
    async def turn(self, machine: UUID, owner: int, size: int) -> AsyncIterator[None]:
        """For the time in which so many bytes are held. Raises `Busy`."""
        if size <= LONG:
            yield
            return
        if self._under_way[owner] >= UNDER_WAY:
            raise Busy(f"{UNDER_WAY} long commands of agents are under way, as many as may be")
        self._under_way[owner] += 1
        try:
            async with self._of_agents.of(str(machine)), self._of(owner):
                yield
        finally:
            self._under_way[owner] -= 1
            if not self._under_way[owner]:
                del self._under_way[owner]

    def _of(self, owner: int) -> asyncio.Semaphore:
        found = self._of_owners.get(owner)
        if found is None:
            found = self._of_owners[owner] = asyncio.Semaphore(AT_ONCE)
        return found
