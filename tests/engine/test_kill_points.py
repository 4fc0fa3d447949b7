"""Killed before and after every driver call of up, change and down: the next run ends as if nothing
had been.

The process's death is an exception that is no `Exception`, from one call on and from every call
after it, the journal's too; what lives on is the host. Then a new run starts from what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

import pytest

from nospoon.engine.execute import Limits, execute
from nospoon.engine.observe import observe
from nospoon.engine.progress import Progress
from nospoon.model.cluster import Cluster
from nospoon.model.resources import Key, Kind, Observed, OwnerTag, Resource, Shape
from nospoon.plan.allocate import Allocations, Occupied, allocate
from nospoon.plan.diff import diff, removal
from nospoon.plan.order import Half
from nospoon.plan.resolve import Surroundings, resolve
from nospoon.plan.steps import Plan
from nospoon.providers.base import Driver
from nospoon.providers.simulated import SimulatedConnection, World
from nospoon.providers.simulated.connection import RULES
from nospoon.runtime import clock
from nospoon.spec.load import load

ID = UUID("5d0f2f0e-0000-4000-8000-000000000002")
HOST = "hosts: {sim: simulated}\n"
BEFORE = "nodes: [{count: 2, disks: [2GiB, 1GiB]}]"
AFTER = """
networks: {provision: {netboot: builtin, mtu: 9000}, more: {}}
nodes:
  - {name: node-0, cpus: 2, disks: [4GiB, 1GiB], nics: [provision, more]}
  - {name: node-2, disks: [1GiB]}
"""
"""Against BEFORE: a machine changed, a disk grown, a network changed, a node gone, a node new."""
SHRUNK = "nodes: [{count: 2, disks: [1GiB]}]"
"""Against BEFORE: disks replaced and removed under both machines."""


class Killed(BaseException):
    """The process is no more."""


@dataclass(eq=False)
class Death:
    """Comes at the call of this number, counted from 0: before it, or after it."""

    at: int
    after: bool
    calls: int = 0
    dead: bool = False

    def check(self) -> None:
        if self.dead:
            raise Killed

    async def around(self, call: Callable[[], object]) -> None:
        self.check()
        mine, self.calls = self.calls, self.calls + 1
        if mine == self.at and not self.after:
            self.dead = True
            raise Killed
        await call()  # type: ignore[misc]  # a coroutine
        if mine == self.at:
            self.dead = True
            raise Killed


@dataclass(frozen=True)
class Mortal:
    """A driver of a process that dies."""

    inner: Driver
    death: Death

    @property
    def kind(self) -> Kind:
        return self.inner.kind

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        return await self.inner.observe(cluster)

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        await self.death.around(lambda: self.inner.create(resource, tag))

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        await self.death.around(lambda: self.inner.change(observed, desired, tag))

    async def delete(self, observed: Observed) -> None:
        await self.death.around(lambda: self.inner.delete(observed))


@dataclass
class Notes:
    """A journal that a dead process writes no more."""

    death: Death
    entries: int = 0

    async def intend(self, key: Key, half: Half, token: str) -> int:
        del key, half, token
        self.death.check()
        self.entries += 1
        return self.entries

    async def conclude(self, entry: int, error: str) -> None:
        del entry, error
        self.death.check()


def cluster_of(text: str) -> Cluster:
    return load(f"cluster: c\n{HOST}{text}", file="x")


def desired_of(text: str) -> dict[Key, Resource]:
    cluster = cluster_of(text)
    allocations, _ = allocate(cluster, Allocations(), Occupied())
    resources = resolve(cluster, ID, allocations, Surroundings({"sim": "/p"}, {}, {}))
    return {key: each for key, each in resources.items() if key.kind is not Kind.BMC}


@dataclass
class Life:
    """One process over a world that outlives it."""

    world: World
    death: Death

    def __post_init__(self) -> None:
        self.connection = SimulatedConnection("sim", "dep", clock.unix, world=self.world)
        self.drivers: dict[tuple[str, Kind], Driver] = {
            ("sim", kind): Mortal(driver, self.death)
            for kind, driver in self.connection.drivers.items()
        }

    async def plan(self, text: str) -> Plan:
        seen = await observe(self.drivers, ID)
        if not text:
            return removal(cluster="c", cluster_id=ID, observed=seen)
        return diff(
            cluster="c", cluster_id=ID, desired=desired_of(text), observed=seen,
            rules={"sim": RULES},
        )  # fmt: skip

    async def bring_to(self, text: str) -> None:
        outcome = await execute(
            await self.plan(text),
            drivers=self.drivers,
            tag=OwnerTag("dep", ID, token="token"),
            journal=Notes(self.death),
            emit=_nobody,
            limits=Limits(per_host=2, retry_delays=()),
        )
        assert outcome.complete


def _nobody(progress: Progress) -> None:
    del progress


def immortal() -> Death:
    return Death(at=-1, after=False)


def made(world: World) -> dict[Key, Shape]:
    return {each.key: each.shape for each in world.made.values()}


async def world_at(text: str) -> World:
    world = World()
    if text:
        await Life(world, immortal()).bring_to(text)
    return world


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("start", "goal"),
    [("", BEFORE), (BEFORE, AFTER), (BEFORE, SHRUNK), (AFTER, BEFORE), (BEFORE, "")],
    ids=["up", "change", "replace", "change back", "down"],
)
async def test_killed_at_any_call_the_next_run_ends_as_an_undisturbed_one(
    start: str, goal: str, *, after: bool
) -> None:
    undisturbed = await world_at(start)
    counting = immortal()
    await Life(undisturbed, counting).bring_to(goal)
    assert counting.calls > 5
    for point in range(counting.calls):
        world = await world_at(start)
        death = Death(at=point, after=after)
        with pytest.raises(BaseExceptionGroup) as caught:
            await Life(world, death).bring_to(goal)
        assert caught.group_contains(Killed)
        again = Life(world, immortal())
        await again.bring_to(goal)
        assert made(world) == made(undisturbed), f"killed at call {point}"
        assert (await again.plan(goal)).empty


async def test_a_kill_before_any_call_leaves_nothing() -> None:
    world = World()
    with pytest.raises(BaseExceptionGroup):
        await Life(world, Death(at=0, after=False)).bring_to(BEFORE)
    assert made(world) == {}
