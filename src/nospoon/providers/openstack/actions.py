"""Actions of Nova on servers: one at a time, and until the server is as it should be.

https://docs.openstack.org/api-ref/compute/#servers-run-an-action-servers-action
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Unpack
from uuid import UUID

from nospoon.errors import Conflict, Gone, ProviderError
from nospoon.providers.answers import How
from nospoon.providers.openstack.api import Service
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.looks import Looks
from nospoon.providers.openstack.roster import Roster, Server
from nospoon.runtime import clock

POWER = 240
"""Pauses within which Nova changes a server's power."""
BUSY = "task_state"
"""In Nova's refusal of what it cannot do while it does something else (409)."""
PAUSED = "PAUSED"
STARTED_BY = {"SHELVED": "unshelve", "SHELVED_OFFLOADED": "unshelve", "SUSPENDED": "resume"}
"""Status of a server that others put away -> action that starts it."""


IDLE = 3
"""Looks at a server with which Nova does nothing, until what was begun is over."""


class Settled:
    """Whether a server is what it was to become, or does not become it."""

    def __init__(self, is_it: Callable[[Server], bool]) -> None:
        self._is_it, self._idle = is_it, 0

    def __call__(self, server: Server) -> bool:
        self._idle = 0 if server.task else self._idle + 1
        return self._is_it(server) or self._idle >= IDLE


class Actions:
    def __init__(self, around: Around, roster: Roster, looks: Looks) -> None:
        self._around, self._roster, self._looks = around, roster, looks

    async def act(self, machine: UUID, action: Mapping[str, object], **how: Unpack[How]) -> None:
        """One action; it waits while Nova is doing another. `how`: as `Api.call` has it."""
        self._looks.stir()
        id_ = await self._roster.id_of(machine) or (await self.must(machine)).id
        end = clock.monotonic() + POWER * self._around.pause
        while True:
            try:
                path = f"/servers/{id_}/action"
                await self._around.api.call(Service.NOVA, "POST", path, action, **how)
            except Conflict as error:
                if BUSY not in str(error) or clock.monotonic() > end:
                    raise
                await asyncio.sleep(self._around.pause)
            else:
                return

    async def toward(
        self, machine: UUID, action: Mapping[str, object], is_it: Callable[[Server], bool]
    ) -> None:
        """An action that makes the server so. Nova refuses it to one that has become so meanwhile,
        by another user or by a call whose answer was lost: nothing is left to do then.
        """
        try:
            await self.act(machine, action)
        except Conflict:
            if not is_it(await self.must(machine)):
                raise

    async def must(self, machine: UUID) -> Server:
        """The server of a machine as it is now. Raises `Gone`."""
        return self._there(machine, await self._looks.now(machine))

    def _there(self, machine: UUID, server: Server | None) -> Server:
        if server is None:
            raise Gone(
                f"machine {machine} has no server in cloud {self._around.api.name}",
                hint="`nospoon up` makes it again.",
            )
        return server

    async def going_on(self, machine: UUID) -> tuple[Server, bool]:
        """The server of a machine, and whether it was paused: one that another paused runs on
        first, for Nova stops none that is. Raises `Gone`.
        """
        server = await self.must(machine)
        if server.status != PAUSED:
            return server, False
        await self.act(machine, {"unpause": None})
        return await self.until(machine, lambda each: each.status != PAUSED, POWER), True

    async def until(self, machine: UUID, is_it: Callable[[Server], bool], pauses: int) -> Server:
        """Once the server is so, and Nova does nothing with it."""
        server = await self.must(machine)
        if is_it(server) and not server.task:
            return server
        return await self.afterwards(machine, is_it, pauses)

    async def afterwards(
        self, machine: UUID, is_it: Callable[[Server], bool], pauses: int
    ) -> Server:
        """As `until`, of a server with which something was just begun: it is not so yet."""
        seconds = pauses * self._around.pause
        end = clock.monotonic() + seconds
        while True:
            server = await self.soon(machine)
            if is_it(server) and not server.task:
                return server
            if server.status == "ERROR":
                raise ProviderError(f"server {server.id} is in error: {server.fault}")
            if clock.monotonic() > end:
                raise ProviderError(
                    f"server {server.id} is {server.status} ({server.task or 'no task'}) after "
                    f"{seconds:.0f} s"
                )

    async def soon(self, machine: UUID) -> Server:
        """The server of a machine as it is a pause from now or later. Raises `Gone`."""
        return self._there(machine, await self._looks.soon(machine))
