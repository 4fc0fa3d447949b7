"""Killed before and after every driver call of up, change and down: the next run ends as if nothing
had been.

The process's death is an exception that is no `Exception`, from one call on and from every call
after it, the journal's too; what lives on is the host. Then a new run starts from what is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

import pytest

from nospoon.clusterfile.load import load
from nospoon.engine.execute import Limits, execute
from nospoon.engine.observe import observe
from nospoon.engine.progress import Progress
from nospoon.model.cluster import Cluster
from nospoon.model.declared import CallLimits
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Observed, Resource, Shape
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.diff.diff import diff, removal
from nospoon.plan.order.order import Half
from nospoon.plan.order.steps import Plan
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.resolve import resolve
from nospoon.providers.base import Driver
from nospoon.providers.simulated import SimulatedConnection, World
from nospoon.providers.simulated.connection import RULES
from nospoon.runtime import clock

ID = UUID("5d0f2f0e-0000-4000-8000-000000000002")
HOSTS = "hosts: {sim: simulated, other: simulated}\n"
BEFORE = "nodes: [{host: sim, count: 2, disks: [2GiB, 1GiB]}]"
AFTER = """
networks: {provision: {netboot: builtin, mtu: 9000}, more: {}}
nodes:
  - {name: node-0, host: sim, cpus: 2, disks: [4GiB, 1GiB], nics: [provision, more]}
  - {name: node-2, host: sim, disks: [1GiB]}
"""
"""Against BEFORE: a machine changed, a disk grown, a network changed, a node gone, a node new."""
SHRUNK = "nodes: [{host: sim, count: 2, disks: [1GiB]}]"
"""Against BEFORE: disks replaced and removed under both machines."""
MOVED = BEFORE.replace("sim", "other")
SWAPPED = "nodes: [{name: node-0, host: other}, {name: node-1, host: sim}]"
SWAPPED_BACK = "nodes: [{name: node-0, host: sim}, {name: node-1, host: other}]"
Worlds = dict[str, World]


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
    return load(f"cluster: c\n{HOSTS}{text}", file="x")


def desired_of(text: str) -> dict[Key, Resource]:
    cluster = cluster_of(text)
    allocations, _ = allocate(cluster, Allocations(), Occupied())
    resources = resolve(
        cluster, ID, allocations, Surroundings({"sim": "/p", "other": "/p"}, {}, {})
    )
    return {key: each for key, each in resources.items() if key.kind is not Kind.BMC}


@dataclass
class Life:
    """One process over hosts that outlive it."""

    worlds: Worlds
    death: Death

    def __post_init__(self) -> None:
        self.drivers: dict[tuple[str, Kind], Driver] = {
            (host, kind): Mortal(driver, self.death)
            for host, world in self.worlds.items()
            for kind, driver in SimulatedConnection(
                host, "dep", clock.unix, world=world
            ).drivers.items()
        }

    async def plan(self, text: str) -> Plan:
        seen = await observe(self.drivers, ID)
        if not text:
            return removal(cluster="c", cluster_id=ID, observed=seen)
        return diff(
            cluster="c", cluster_id=ID, desired=desired_of(text), observed=seen,
            rules={"sim": RULES, "other": RULES},
        )  # fmt: skip

    async def bring_to(self, text: str) -> None:
        outcome = await execute(
            await self.plan(text),
            drivers=self.drivers,
            tag=OwnerTag("dep", ID, token="token"),
            journal=Notes(self.death),
            emit=_nobody,
            limits=Limits(dict.fromkeys(self.worlds, CallLimits(at_once=2, pauses=()))),
        )
        assert outcome.complete


def _nobody(progress: Progress) -> None:
    del progress


def immortal() -> Death:
    return Death(at=-1, after=False)


def made(worlds: Worlds) -> dict[Key, Shape]:
    return {each.key: each.shape for world in worlds.values() for each in world.all()}


def empty() -> Worlds:
    return {"sim": World(), "other": World()}


async def worlds_at(text: str) -> Worlds:
    worlds = empty()
    if text:
        await Life(worlds, immortal()).bring_to(text)
    return worlds


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("start", "goal"),
    [
        ("", BEFORE),
        (BEFORE, AFTER),
        (BEFORE, SHRUNK),
        (AFTER, BEFORE),
        (BEFORE, ""),
        (BEFORE, MOVED),
        (SWAPPED_BACK, SWAPPED),
    ],
    ids=["up", "change", "replace", "change back", "down", "move", "swap"],
)
async def test_killed_at_any_call_the_next_run_ends_as_an_undisturbed_one(
    start: str, goal: str, *, after: bool
) -> None:
    undisturbed = await worlds_at(start)
    counting = immortal()
    await Life(undisturbed, counting).bring_to(goal)
    assert counting.calls > 5
    for point in range(counting.calls):
        worlds = await worlds_at(start)
        death = Death(at=point, after=after)
        with pytest.raises(BaseExceptionGroup) as caught:
            await Life(worlds, death).bring_to(goal)
        assert caught.group_contains(Killed)
        again = Life(worlds, immortal())
        await again.bring_to(goal)
        assert made(worlds) == made(undisturbed), f"killed at call {point}"
        assert (await again.plan(goal)).empty


async def test_a_kill_before_any_call_leaves_nothing() -> None:
    worlds = empty()
    with pytest.raises(BaseExceptionGroup):
        await Life(worlds, Death(at=0, after=False)).bring_to(BEFORE)
    assert made(worlds) == {}


async def moved_without(kind: Kind) -> dict[Key, Shape]:
    """What is there after a move to a host on which nothing of a kind could be made."""
    worlds = await worlds_at(BEFORE)
    life = Life(worlds, immortal())
    plan = await life.plan(MOVED)
    del life.drivers["other", kind]
    outcome = await execute(
        plan, drivers=life.drivers, tag=OwnerTag("dep", ID, token="token"),
        journal=Notes(life.death), emit=_nobody,
    )  # fmt: skip
    assert not outcome.complete
    return made(worlds)


async def test_nodes_for_whose_disks_there_is_no_room_stay_where_they_are() -> None:
    before = made(await worlds_at(BEFORE))
    assert before.items() <= (await moved_without(Kind.VOLUME)).items()


async def test_disks_stay_where_they_were_until_their_machines_stand_elsewhere() -> None:
    before = made(await worlds_at(BEFORE))
    disks = {key: shape for key, shape in before.items() if key.kind is Kind.VOLUME}
    there = await moved_without(Kind.MACHINE)
    assert disks.items() <= there.items()
    assert not [key for key in there if key.kind is Kind.MACHINE]


async def test_no_node_is_ever_on_two_hosts() -> None:
    counting = immortal()
    await Life(await worlds_at(SWAPPED_BACK), counting).bring_to(SWAPPED)
    for point in range(counting.calls):
        worlds = await worlds_at(SWAPPED_BACK)
        with pytest.raises(BaseExceptionGroup):
            await Life(worlds, Death(at=point, after=True)).bring_to(SWAPPED)
        machines = Counter(key.name for key in made(worlds) if key.kind is Kind.MACHINE)
        assert set(machines.values()) <= {1}, f"killed at call {point}"
