"""A member's cloud may list thousands of things without a cluster: an administrator's look at them
takes time in proportion, and leaves the event loop to others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast
from uuid import UUID

import pytest

from nospoon.control.maintenance.orphans import rows
from nospoon.control.maintenance.survey import Seen
from nospoon.model.cluster import Host
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.networks import Link
from nospoon.model.resources.resource import Observed
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.base import Driver


class Counted(tuple[Any, ...]):  # noqa: SLOT001  (it counts)
    """Counts how often it is gone through."""

    looks = 0

    def __iter__(self) -> Iterator[Any]:
        self.looks += 1
        return super().__iter__()


@pytest.mark.parametrize("clusters", [1, 500])
def test_orphans_are_gone_through_a_few_times_however_many_there_are(clusters: int) -> None:
    driver = cast("Driver", object())
    things = Counted(
        (
            Observed(
                Key(Kind.NETWORK, "cloud", f"n{number}"),
                Link(name=f"n{number}"),
                OwnerTag("d", UUID(int=number % clusters), 1, name=f"c{number % clusters}", uid=7),
            ),
            driver,
        )
        for number in range(1000)
    )
    seen = Seen(Host("cloud"), cast("tuple[tuple[Observed, Driver], ...]", things))
    found = rows([seen], {7: "seven"})
    assert len(found) == 1000
    assert {row.cluster for row in found} == {f"c{number}" for number in range(clusters)}
    assert things.looks < 10
    parts = seen.clusters()
    assert sum(len(part.things) for part in parts.values()) == 1000
    assert all(part.drivers == {("cloud", Kind.NETWORK): driver} for part in parts.values())
