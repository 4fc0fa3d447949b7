"""How the roles of services go on their nodes: as the consoles of those show it.

A node writes a line when a role begins and another one with its exit status
(`nospoon.clusterfile.vendor_data`). What a guest writes is not trusted: a number is read of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from nospoon.errors import NospoonError
from nospoon.model.service import Service

MOST = 1 << 18
"""Bytes at the end of a console's log that are searched."""


class ConsoleLogs(Protocol):
    """Logs of consoles, as `nospoon.services.consoles.service` has them."""

    async def size(self, machine: UUID, *, user: int = 0) -> int:
        """Bytes so far."""

    async def tail(self, machine: UUID, most: int, *, user: int = 0) -> bytes:
        """The end, at most so many bytes."""


@dataclass(frozen=True, slots=True)
class RoleSeen:
    """`status`: with which it ended, 0 also where nothing is seen of it; `why`: it has not ended,
    or why that is not known, else "".
    """

    status: int = 0
    why: str = ""


class Roles:
    """Of the services that a user's `up` looks at."""

    def __init__(self, logs: ConsoleLogs, user: int) -> None:
        self._logs, self._user = logs, user
        self._begin: dict[UUID, int] = {}

    async def begin(self, machine: UUID) -> None:
        """From here on: it is started now, and what it wrote before is of another boot. The first
        call counts: for one that runs as soon as it is made, it comes before that.
        """
        if machine not in self._begin:
            self._begin[machine] = await self._logs.size(machine, user=self._user)

    async def seen(self, service: Service, machine: UUID) -> RoleSeen:
        """Of the role of a service on a machine."""
        try:
            new = await self._logs.size(machine, user=self._user) - self._begin.get(machine, 0)
            most = min(MOST, max(new, 0))
            log = await self._logs.tail(machine, most, user=self._user) if most else b""
        except NospoonError as error:
            return RoleSeen(why=str(error))
        return role_seen(log, service)


def role_seen(log: bytes, service: Service) -> RoleSeen:
    """What the last line about a role says."""
    line = re.escape(service.role_line.encode()) + rb"(?:begins|exit status (?P<status>\d{1,3})\b)"
    found = list(re.finditer(line, log))
    if not found:
        return RoleSeen()
    last = found[-1]
    if last["status"] is None:
        return RoleSeen(why="its role has not ended")
    return RoleSeen(status=int(last["status"]))
