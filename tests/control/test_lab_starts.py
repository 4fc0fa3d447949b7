"""Machines of a set that were made and do not start."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from typing_extensions import override

from nospoon.control.labs.access import KnownLab
from nospoon.control.labs.racks import NotMade, Racks
from nospoon.errors import (
    HostUnreachable,
    NoCapacity,
    NospoonError,
    PlanRefused,
    ProviderError,
    QuotaUsed,
)
from nospoon.lab.work import Again, Asked, RecipeSet, Run, Size
from nospoon.model.lab import Lab
from nospoon.model.principal import Administrators, Principal

SIZE = Size("small", 1, 1 << 30)


class Made(Racks):
    @override
    async def _up(self, found: RecipeSet, known: KnownLab) -> None:
        del found, known


@dataclass
class Starts:
    """All are asked to start before one of them has. `faults`: node -> why it does not."""

    faults: dict[str, str]
    met: asyncio.Barrier = field(default_factory=lambda: asyncio.Barrier(3))

    async def start(self, caller: Principal, node: str) -> str:
        del caller
        async with asyncio.timeout(30):
            await self.met.wait()
        return self.faults.get(node, "")


def racks(starts: Starts, kind: type[Racks] = Made) -> Racks:
    nothing = cast("Any", None)
    return kind(
        admins=Administrators(), kept=nothing, clusters=nothing, power=nothing, start=starts.start,
        operations=nothing, machines=nothing, consoles=nothing, database=nothing, cipher=nothing,
        workers=nothing, installers=nothing, logins=nothing,
    )  # fmt: skip


async def test_machines_of_a_set_start_together_and_one_that_does_not_is_named() -> None:
    runs = tuple(Run(Asked("r"), {}, size=SIZE, node=f"recipe-{n}") for n in range(3))
    found = RecipeSet("1", 1, 1000, "x", runs, lab="k")
    known = KnownLab("k", 1000, "c", Lab("dev"))
    await racks(Starts({})).build(found, known)
    with pytest.raises(NotMade, match=r"^recipe-1 does not start: no memory is left$") as refused:
        await racks(Starts({"lab-dev-1/recipe-1": "no memory is left"})).build(found, known)
    assert refused.value.again is Again.LATER


async def test_a_set_whose_owner_has_all_that_a_member_may_have_waits_for_another() -> None:
    """It was asked for again for a minute, in a place of eight, and then counted as failed."""
    asked = 0

    class Clusters:
        async def up(self, _: object) -> Any:
            nonlocal asked
            asked += 1
            raise QuotaUsed("you have 100 clusters")

    made = racks(Starts({}), Racks)
    made.clusters = lambda: cast("Any", Clusters())
    with pytest.raises(QuotaUsed):
        await made._begun(cast("Any", None))
    assert asked == 1


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (PlanRefused([NoCapacity("here: it is drained.")]), Again.CAPACITY),
        (PlanRefused(["here: no firmware"]), Again.NEVER),
        (HostUnreachable("here: no route"), Again.CAPACITY),
        (ProviderError("no disk"), Again.LATER),
        (QuotaUsed("you have 100 clusters"), Again.CAPACITY),
    ],
)
async def test_a_set_waits_for_hosts_that_are_drained_or_unreachable(
    error: NospoonError, again: Again
) -> None:
    class Refused(Made):
        @override
        async def _up(self, found: RecipeSet, known: KnownLab) -> None:
            raise error

    runs = (Run(Asked("r"), {}, size=SIZE, node="recipe-0"),)
    found = RecipeSet("1", 1, 1000, "x", runs, lab="k")
    with pytest.raises(NotMade) as refused:
        await racks(Starts({}), Refused).build(found, KnownLab("k", 1000, "c", Lab("dev")))
    assert refused.value.again is again
