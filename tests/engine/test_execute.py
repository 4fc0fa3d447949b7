"""Carrying out plans, on the simulated connection: order, failures, retries, cancelling."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self, cast
from uuid import UUID

import pytest

from nospoon.clusterfile.load import load
from nospoon.engine.execute import Limits, execute
from nospoon.engine.observe import observe, observe_reachable
from nospoon.engine.progress import Outcome, Phase, Progress
from nospoon.errors import HostUnreachable, NoComputeHost, OutOfSpace, ProviderError, Transient
from nospoon.model.declared import CallLimits
from nospoon.model.nova import NovaInventory
from nospoon.model.resources.keys import IRONIC, Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Alternative, Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.diff.diff import diff, removal
from nospoon.plan.order.kinds import KINDS, Row
from nospoon.plan.order.order import Half
from nospoon.plan.order.steps import Action, Plan, Step
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.resolve import resolve
from nospoon.providers.base import Driver
from nospoon.providers.simulated.connection import SimulatedConnection
from nospoon.runtime import clock
from nospoon.runtime.tasks import Tasks

ID = UUID("5d0f2f0e-0000-4000-8000-000000000002")
TAG = OwnerTag("dep", ID, 1, "token")
AT_ONCE = CallLimits(pauses=(0.0, 0.0))
FAST = Limits(places={"sim": AT_ONCE})


@dataclass
class Notes:
    """A journal that remembers in which order it was told what."""

    entries: list[tuple[Key, Half]] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def intend(self, key: Key, half: Half, token: str) -> int:
        self.begun.set()
        assert token == "token"
        self.entries.append((key, half))
        return len(self.entries) - 1

    async def conclude(self, entry: int, error: str) -> None:
        self.errors[entry] = error


@dataclass
class Moody:
    """A driver that fails as often as it is told, then works."""

    inner: Driver
    errors: list[Exception]
    calls: int = 0

    @property
    def kind(self) -> Kind:
        return self.inner.kind

    def __hash__(self) -> int:
        return id(self)

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        return await self.inner.observe(cluster)

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        await self.inner.create(resource, tag)

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        await self.inner.change(observed, desired, tag)

    async def delete(self, observed: Observed) -> None:
        await self.inner.delete(observed)


class Bench:
    """A simulated host and a cluster of `count` nodes for it."""

    def __init__(self, count: int = 3, *, limits: Limits = FAST) -> None:
        self.limits = limits
        text = f"cluster: c\nhosts: {{sim: simulated}}\nnodes: [{{count: {count}}}]"
        self.cluster = load(text, file="x")
        self.connection = SimulatedConnection("sim", "dep", clock.unix)
        self.drivers: dict[tuple[str, Kind], Driver] = {
            ("sim", kind): driver for kind, driver in self.connection.drivers.items()
        }
        allocations, _ = allocate(self.cluster, Allocations(), Occupied())
        resources = resolve(self.cluster, ID, allocations, Surroundings({"sim": "/p"}, {}, {}))
        self.desired = {k: r for k, r in resources.items() if k.kind is not Kind.BMC}
        self.journal = Notes()
        self.told: list[Progress] = []

    async def plan(self) -> Plan:
        seen = await observe(self.drivers, ID)
        return diff(
            cluster="c", cluster_id=ID, desired=self.desired, observed=seen, rules={"sim": {}}
        )

    async def run(self, plan: Plan, calls: Tasks | None = None) -> Outcome:
        return await execute(
            plan,
            drivers=self.drivers,
            tag=TAG,
            journal=self.journal,
            emit=self.told.append,
            limits=self.limits,
            calls=calls,
        )


async def test_a_plan_is_carried_out_and_the_next_one_is_empty() -> None:
    bench = Bench()
    outcome = await bench.run(await bench.plan())
    assert outcome.complete
    assert (await bench.plan()).empty
    assert all(error == "" for error in bench.journal.errors.values())


async def test_removal_leaves_nothing() -> None:
    bench = Bench()
    await bench.run(await bench.plan())
    seen = await observe(bench.drivers, ID)
    assert (await bench.run(removal(cluster="c", cluster_id=ID, observed=seen))).complete
    assert await observe(bench.drivers, ID) == []


async def test_intent_is_journalled_before_and_outcome_after_each_call() -> None:
    bench = Bench(1)
    await bench.run(await bench.plan())
    kinds = [key.kind for key, _ in bench.journal.entries]
    assert kinds.index(Kind.VOLUME) < kinds.index(Kind.MACHINE)
    assert set(bench.journal.errors) == set(range(len(kinds)))


async def test_a_failure_stops_only_what_waits_for_it() -> None:
    bench = Bench(2)
    bench.drivers["sim", Kind.VOLUME] = Moody(
        bench.drivers["sim", Kind.VOLUME], [OutOfSpace("pool is full")]
    )
    outcome = await bench.run(await bench.plan())
    assert [failure.message for failure in outcome.failures] == ["pool is full"]
    assert outcome.skipped == 1
    seen = await observe(bench.drivers, ID)
    assert sum(1 for each in seen if each.key.kind is Kind.MACHINE) == 1
    assert (await bench.run(await bench.plan())).complete
    assert (await bench.plan()).empty


async def test_what_no_computer_takes_is_made_once_more_of_another_shape() -> None:
    bench = Bench(1)
    ((key, desired),) = ((k, r) for k, r in bench.desired.items() if k.kind is Kind.MACHINE)
    assert isinstance(desired.shape, Machine)
    others = [replace(desired.shape, zone=zone) for zone in ("b", "c")]
    kept = tuple(Alternative(each, f"in zone {each.zone}") for each in others)
    bench.desired[key] = replace(desired, alternatives=kept)
    moody = Moody(bench.drivers["sim", Kind.MACHINE], [NoComputeHost("No host.") for _ in range(5)])
    bench.drivers["sim", Kind.MACHINE] = moody
    outcome = await bench.run(await bench.plan())
    (failure,) = outcome.failures
    assert (failure.message, failure.passes, failure.nowhere) == ("No host.", True, True)
    assert moody.calls == 3, "each of them once"
    told = [each.message for each in bench.told if each.phase is Phase.RETRYING]
    assert told == [f"No host. It is created once more in zone {zone}." for zone in "bc"]
    assert not (await bench.run(await bench.plan())).failures, "it is begun with the first again"
    (seen,) = (each for each in await observe(bench.drivers, ID) if each.key == key)
    assert seen.shape == others[1]
    assert moody.calls == 6


async def test_a_host_that_comes_back_is_waited_for() -> None:
    bench = Bench(1)
    moody = Moody(
        bench.drivers["sim", Kind.POOL], [HostUnreachable("away"), HostUnreachable("away")]
    )
    bench.drivers["sim", Kind.POOL] = moody
    assert (await bench.run(await bench.plan())).complete
    assert moody.calls == 3
    assert sum(1 for each in bench.told if each.phase is Phase.RETRYING) == 2


async def test_a_place_has_as_many_calls_at_once_as_it_declares() -> None:
    two = CallLimits(at_once=2)
    bench = Bench(8, limits=Limits(places={"sim": two}))
    counted = Counted(bench.drivers["sim", Kind.VOLUME])
    bench.drivers["sim", Kind.VOLUME] = counted
    assert (await bench.run(await bench.plan())).complete
    assert counted.most == 2


async def test_a_request_may_choose_how_many_calls_a_place_has_at_once() -> None:
    bench = Bench(8, limits=Limits(places={"sim": CallLimits(at_once=2)}, per_host=5))
    counted = Counted(bench.drivers["sim", Kind.VOLUME])
    bench.drivers["sim", Kind.VOLUME] = counted
    assert (await bench.run(await bench.plan())).complete
    assert counted.most == 5


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        (CallLimits(pauses=(3600.0,)), 0.0),
        (CallLimits(pauses=(3600.0,), longest_pause=0.0), 7200.0),
        (CallLimits(pauses=(0.0,)), None),
    ],
)
async def test_what_is_put_off_is_tried_again_as_late_as_its_place_says(
    limits: CallLimits, wanted: float | None
) -> None:
    bench = Bench(1, limits=Limits(places={"sim": limits}))
    busy = Transient("too many calls", retry_after=wanted)
    bench.drivers["sim", Kind.POOL] = Moody(bench.drivers["sim", Kind.POOL], [busy])
    assert (await bench.run(await bench.plan())).complete
    (said,) = (each.message for each in bench.told if each.phase is Phase.RETRYING)
    assert said == "too many calls. Trying again in 0 s."


def be_in_ironic(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    """Resources of this kind stand for Ironic's."""
    monkeypatch.setitem(cast("dict[Kind, Row]", KINDS), kind, replace(KINDS[kind], outside=IRONIC))


@pytest.mark.parametrize("patience", [60.0, 0.0])
async def test_an_ironic_that_restarts_is_waited_for_as_long_as_the_setting_says(
    patience: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_in_ironic(monkeypatch, Kind.POOL)
    bench = Bench(3, limits=replace(FAST, patience=patience))
    away: list[Exception] = [HostUnreachable("Ironic does not answer") for _ in range(7)]
    moody = bench.drivers["sim", Kind.POOL] = Moody(bench.drivers["sim", Kind.POOL], away)
    outcome = await bench.run(await bench.plan())
    assert outcome.complete is bool(patience)
    assert moody.calls == (8 if patience else 1)
    said = [each.message for each in bench.told if each.phase is Phase.RETRYING]
    assert said == (["Ironic does not answer. Trying again for up to 60 s."] if patience else [])


async def test_a_host_that_stays_away_fails_with_its_reason() -> None:
    bench = Bench(1)
    away = [HostUnreachable("nobody there") for _ in range(3)]
    bench.drivers["sim", Kind.POOL] = Moody(bench.drivers["sim", Kind.POOL], list(away))
    outcome = await bench.run(await bench.plan())
    assert "nobody there" in outcome.failures[0].message
    assert not outcome.complete


class Counted(Moody):
    """A driver that counts how many of its calls are under way at most. Each gives all others that
    could begin the time to.
    """

    def __init__(self, inner: Driver) -> None:
        super().__init__(inner, [])
        self.now = self.most = 0

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(50):
            await asyncio.sleep(0)
        await super().create(resource, tag)
        self.now -= 1


@dataclass(eq=False)
class Silent(Moody):
    """Nobody answers."""

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        raise HostUnreachable(f"Ironic at http://i does not answer, of {cluster}")


async def test_an_ironic_that_does_not_answer_is_named_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By what its API says; the kind of thing that was looked for first says nothing more."""
    be_in_ironic(monkeypatch, Kind.POOL)
    bench = Bench(1)
    silent = Silent(bench.drivers["sim", Kind.POOL], [])
    _, away = await observe_reachable({(IRONIC, Kind.POOL): silent}, ID)
    assert away == {IRONIC: f"Ironic at http://i does not answer, of {ID}"}


async def test_cancelling_leaves_what_the_next_run_completes() -> None:
    bench = Bench(20)
    plan = await bench.plan()
    task = asyncio.get_running_loop().create_task(bench.run(plan))
    await bench.journal.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await bench.run(await bench.plan())).complete
    assert (await bench.plan()).empty


async def test_progress_counts_to_the_end() -> None:
    bench = Bench(2)
    await bench.run(await bench.plan())
    last = bench.told[-1]
    assert last.done == last.total == len(bench.journal.entries)


@pytest.mark.parametrize("count", [1000])
async def test_a_thousand_nodes_come_up(count: int) -> None:
    bench = Bench(count)
    assert (await bench.run(await bench.plan())).complete


class Full(Notes):
    """A journal whose database has no room any more after some entries."""

    async def intend(self, key: Key, half: Half, token: str) -> int:
        if len(self.entries) > 1:
            raise ProviderError("the database does not work: disk is full")
        return await super().intend(key, half, token)


async def test_a_file_of_a_driver_that_cannot_be_written_fails_that_resource_alone() -> None:
    bench = Bench()
    inner = bench.drivers["sim", Kind.VOLUME]
    full = OSError(errno.ENOSPC, "No space left on device", "/var/lib/x")
    bench.drivers["sim", Kind.VOLUME] = Moody(inner, [full])
    outcome = await bench.run(await bench.plan())
    (failure,) = outcome.failures
    assert failure.message == "/var/lib/x: No space left on device"
    assert outcome.done > 3
    assert (await bench.run(await bench.plan())).complete


async def test_a_journal_that_cannot_be_written_stops_what_it_would_have_told_of() -> None:
    bench = Bench()
    bench.journal = Full()
    outcome = await bench.run(await bench.plan())
    assert outcome.done == 2
    assert {failure.message for failure in outcome.failures} == {
        "the database does not work: disk is full"
    }
    bench.journal = Notes()
    assert (await bench.run(await bench.plan())).complete


class Slow(Moody):
    """A driver whose first call ends when it is told to."""

    def __init__(self, inner: Driver) -> None:
        super().__init__(inner, [])
        self.begun, self.let_go, self.ended = asyncio.Event(), asyncio.Event(), 0

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        self.begun.set()
        await self.let_go.wait()
        await super().create(resource, tag)
        self.ended += 1


class Claims(Moody):
    """A driver whose claims end when so many of them are under way."""

    def __init__(self, inner: Driver, together: int) -> None:
        super().__init__(inner, [])
        self.barrier = asyncio.Barrier(together)

    @property
    def adoption(self) -> Self:
        return self

    async def claim(self, resource: Resource, tag: OwnerTag) -> None:
        del resource, tag
        await self.barrier.wait()


class BreaksOff(Moody):
    """A driver whose calls end cancelled, and nobody cancelled them."""

    def __init__(self, inner: Driver) -> None:
        super().__init__(inner, [])

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        del resource, tag
        raise asyncio.CancelledError


async def test_a_call_that_breaks_off_by_itself_is_a_failure_and_ends_the_run() -> None:
    bench = Bench()
    bench.drivers["sim", Kind.POOL] = BreaksOff(bench.drivers["sim", Kind.POOL])
    outcome = await asyncio.wait_for(bench.run(await bench.plan()), timeout=60)
    assert ["was broken off" in each.message for each in outcome.failures] == [True]
    assert outcome.skipped


async def test_claims_which_pause_wait_for_no_turn_of_other_calls() -> None:
    bench = Bench(limits=Limits(per_host=1, pausing=20))
    made = next(each for each in bench.desired.values() if each.key.kind is Kind.MACHINE)
    assert isinstance(made.shape, Machine)
    names = [f"m{number}" for number in range(40)]
    found = {Key(Kind.MACHINE, "sim", name): replace(made.shape, adopted=name) for name in names}
    bench.desired = {key: Resource(key, shape) for key, shape in found.items()}
    bench.drivers["sim", Kind.MACHINE] = Claims(bench.drivers["sim", Kind.MACHINE], 20)
    steps = tuple(Step(Action.CREATE, key, "new", bench.desired[key]) for key in found)
    plan = replace(await bench.plan(), steps=steps)
    outcome = await asyncio.wait_for(bench.run(plan), timeout=60)
    assert (outcome.done, outcome.failures) == (40, [])


async def test_a_call_that_was_begun_is_heard_out_when_all_is_cancelled() -> None:
    bench = Bench()
    slow = bench.drivers["sim", Kind.POOL] = Slow(bench.drivers["sim", Kind.POOL])
    plan = await bench.plan()
    async with Tasks("test") as tasks:
        run = tasks.start(bench.run(plan), name="run")
        await slow.begun.wait()
        run.cancel()
        for _ in range(100):  # turns of the loop: nothing here waits for anything else
            await asyncio.sleep(0)
        assert not run.done()
        slow.let_go.set()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert slow.ended == 1
    assert Kind.VOLUME not in {key.kind for key, _ in bench.journal.entries}


async def test_calls_of_a_host_that_hangs_are_broken_off_by_who_has_no_more_time() -> None:
    bench = Bench()
    slow = bench.drivers["sim", Kind.POOL] = Slow(bench.drivers["sim", Kind.POOL])
    plan, calls = await bench.plan(), Tasks("calls")
    async with Tasks("test") as tasks:
        run = tasks.start(bench.run(plan, calls), name="run")
        await slow.begun.wait()
        run.cancel()
        await calls.close()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(run, timeout=60)
    assert slow.ended == 0
    assert (await bench.plan()).steps == plan.steps, "the next run does it"


@pytest.mark.parametrize("kind", [kind for kind, row in KINDS.items() if row.waits])
async def test_a_call_that_only_waits_for_somebody_ends_when_all_is_cancelled(kind: Kind) -> None:
    bench = Bench(count=1)
    slow = bench.drivers["sim", kind] = Slow(bench.drivers["sim", Kind.POOL])
    key = Key(kind, "sim", "gold")
    bench.desired = {key: Resource(key, NovaInventory("CUSTOM_GOLD", (), ()))}
    step = Step(Action.CREATE, key, "new", bench.desired[key])
    plan = replace(await bench.plan(), steps=(step,))
    async with Tasks("test") as tasks:
        run = tasks.start(bench.run(plan), name="run")
        await slow.begun.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(run, timeout=60)
    assert slow.ended == 0
