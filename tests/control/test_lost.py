"""Machines that the database does not know: a new cluster of their name is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast
from uuid import UUID

import pytest

from nospoon.control.fleet.lost import LOOKS, refuse_lost
from nospoon.errors import HostUnreachable, PlanRefused
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Observed
from nospoon.model.resources.storage import Pool as Shape
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.base import Driver
from nospoon.store.database import Database

KNOWN, NEW = UUID(int=1), UUID(int=2)
HERE = Observed(Key(Kind.MACHINE, "a", "n"), Shape("p"), OwnerTag("d", KNOWN, name="dev", uid=7))


class Machines:
    """Tells what is on a host, or that the host does not answer."""

    kind = Kind.MACHINE

    def __init__(self, found: Sequence[Observed], *, failures: int = 0) -> None:
        self._found, self._failures = found, failures

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        assert cluster is None
        if self._failures:
            self._failures -= 1
            raise HostUnreachable("host b: no answer")
        return self._found


async def look(place: Path, *machines: Machines) -> dict[str, str]:
    database = Database.open(f"sqlite:///{place}/store.db")
    drivers = {
        (name, Kind.MACHINE): cast("Driver", each)
        for name, each in zip("ab", machines, strict=False)
    }
    try:
        away = await refuse_lost(database, drivers, name="dev", cluster=NEW, owner=7)
    finally:
        database.close()
    return dict(away)


async def test_a_host_that_has_lost_machines_refuses_the_new_cluster(tmp_path: Path) -> None:
    with pytest.raises(PlanRefused, match="cluster dev has 1 machine on a"):
        await look(tmp_path, Machines([HERE]))


async def test_a_host_that_does_not_tell_whether_it_has_some_is_named(tmp_path: Path) -> None:
    silent = Machines([], failures=LOOKS)
    assert await look(tmp_path, Machines([]), silent) == {"b": "machine: host b: no answer"}


async def test_a_host_that_fails_at_first_is_asked_again(tmp_path: Path) -> None:
    assert await look(tmp_path, Machines([], failures=1), Machines([])) == {}
    with pytest.raises(PlanRefused, match="cluster dev has 1 machine on a"):
        await look(tmp_path, Machines([HERE], failures=1), Machines([]))
