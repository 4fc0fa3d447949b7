"""Looks at the states of all nodes, which those who wait for some of them share."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from uuid import UUID

from nospoon.errors import NospoonError, ProviderError
from nospoon.providers.answers import text_of
from nospoon.providers.ironic.api import Api
from nospoon.providers.ironic.progress import FIELDS, said_of
from nospoon.providers.ironic.records import Record
from nospoon.providers.polling import LEAST, rest_after
from nospoon.providers.understood import ODD, odd
from nospoon.runtime import clock
from nospoon.runtime.paced import paced
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.telling import tell


def _brief(record: Record) -> tuple[UUID, Record]:
    """A node's id, and what `FIELDS` say of it."""
    return UUID(record["uuid"]), said_of(record)


class States:
    """One look at all nodes a second, for all who wait; none when no one does."""

    def __init__(self, api: Api, tasks: Tasks) -> None:
        self._api, self._tasks = api, tasks
        self._pause = LEAST
        self._next: asyncio.Future[Mapping[UUID, Record]] | None = None

    async def settled(self, node: UUID, *, until: float, moving: Collection[str]) -> Record | None:
        """The node once it is in none of these states; None where there is none.

        Raises `ProviderError` when no one answers, or with errors, for longer than a restart takes.
        """
        said, heard = "", clock.monotonic()
        while True:
            try:
                record = (await self._look()).get(node)
            except ProviderError:  # away, or out of order for a moment
                if clock.monotonic() > heard + self._api.patience:
                    raise
                continue
            heard = clock.monotonic()
            if record is None or record["provision_state"] not in moving:
                return record
            if record["provision_state"] != said:
                said = record["provision_state"]
                tell(text_of(said))
            if clock.monotonic() > until:
                raise TimeoutError(f"node {node} is still {text_of(record['provision_state'])}")

    async def _look(self) -> Mapping[UUID, Record]:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            self._tasks.start(self._tell(self._next), name="look at Ironic's nodes")
        return await asyncio.shield(self._next)

    async def _tell(self, told: asyncio.Future[Mapping[UUID, Record]]) -> None:
        await asyncio.sleep(self._pause)  # Ironic tells no one of its states: it is asked
        self._next, began = None, clock.monotonic()
        try:
            listed = await self._api.listed("nodes", read=_brief, query=f"&fields={FIELDS}")
            told.set_result({node: each async for node, each in paced(listed)})
        except NospoonError as error:
            told.set_exception(error)
        except ODD as error:
            told.set_exception(odd(error))
        finally:
            self._pause = rest_after(clock.monotonic() - began)
            told.cancel()  # no one waits for a look that was cancelled
