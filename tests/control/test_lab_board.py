"""The board of labs with a store, and machines that do what a test says."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from nospoon.control.labs import board as board_module
from nospoon.control.labs import records
from nospoon.control.labs import set_tasks as module
from nospoon.control.labs.access import KnownLab
from nospoon.control.labs.board import Board
from nospoon.control.labs.callbacks import Callbacks
from nospoon.control.labs.inventory import Inventories
from nospoon.control.labs.racks import NotMade
from nospoon.errors import Conflict, HostUnreachable
from nospoon.lab.effects import Happened
from nospoon.lab.placing import Placing
from nospoon.lab.work import Again, Asked, Cause, Options, RecipeSet, Run, SetState, Size
from nospoon.model.lab import Distro, Lab, Limits, Registered
from nospoon.plan.addresses.allocate import Allocations
from nospoon.runtime.neighbors import Neighbor, Way
from nospoon.runtime.slices import Slices
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.workers import Workers
from nospoon.store import clusters
from nospoon.store.clusters import ClusterRow
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database
from nospoon.store.lab_notices import Notice

PATIENCE = 20.0


@dataclass
class Machines:
    """In place of `Racks`: what was made, and what goes wrong."""

    made: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    wrong: list[Exception] = field(default_factory=list)
    stays: list[str | Exception] = field(default_factory=list)
    on: str = ""
    hold: asyncio.Event = field(default_factory=asyncio.Event)

    async def build(self, found: RecipeSet, known: KnownLab) -> None:
        del known
        await self.hold.wait()
        if self.wrong:
            raise self.wrong.pop(0)
        self.made.append(found.id)

    async def remove(self, found: RecipeSet, known: KnownLab) -> str:
        del known
        if self.stays:
            why = self.stays.pop(0)
            if isinstance(why, Exception):
                raise why
            return why
        self.removed.append(found.id)
        return ""

    async def stop(self, found: RecipeSet, known: KnownLab) -> dict[str, str]:
        del known
        return {run.machine: self.on for run in found.runs if run.machine and self.on}

    async def renew_logins(self, sets: Sequence[RecipeSet], known: KnownLab) -> None: ...

    async def purge(self, found: RecipeSet, known: KnownLab) -> None:
        del known
        self.removed.append(f"log of {found.id}")


@dataclass
class Death:
    """A daemon dies at this call of its store, before or `after` it was carried out, and does
    nothing more.
    """

    at: int
    after: bool
    calls: int = 0
    dead: asyncio.Event = field(default_factory=asyncio.Event)

    async def alive(self) -> None:
        """Never returns once it is dead."""
        if self.dead.is_set():
            await asyncio.Event().wait()

    def threaten(self, database: Database) -> None:
        for name in ("call", "read"):
            setattr(database, name, partial(self._called, getattr(database, name)))

    async def _called(self, whole: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        await self.alive()
        self.calls += 1
        is_last = self.calls == self.at
        if is_last and not self.after:
            self.dead.set()
        await self.alive()
        done = await whole(*args, **kwargs)
        if is_last:
            self.dead.set()
        await self.alive()
        return done


@dataclass
class Mortals(Machines):
    """As long as the daemon that works on them lives."""

    death: Death = field(default_factory=lambda: Death(0, after=False))

    async def build(self, found: RecipeSet, known: KnownLab) -> None:
        await self.death.alive()
        await super().build(found, known)

    async def remove(self, found: RecipeSet, known: KnownLab) -> str:
        await self.death.alive()
        return await super().remove(found, known)

    async def stop(self, found: RecipeSet, known: KnownLab) -> dict[str, str]:
        await self.death.alive()
        return await super().stop(found, known)


@dataclass
class Heard:
    """Webhooks that get all events at once, unless they are `deaf`."""

    events: list[tuple[str, str]]
    deaf: bool

    def notice(self, known: KnownLab, found: RecipeSet, event: Happened) -> Notice | None:
        return Notice(str(uuid4()), known.key, 1e9, f"{found.id} {event.event}")

    def send(self, known: KnownLab, notice: Notice) -> None:
        assert known.key == notice.lab
        if not self.deaf:
            set_id, _, event = notice.body.partition(" ")
            self.events.append((set_id, event))


@dataclass
class Place:
    """Where daemons come and go."""

    directory: Path
    cipher: Cipher
    now: float = 1000.0
    machines: Machines = field(default_factory=Machines)
    cluster: UUID = field(default_factory=uuid4)
    lab: Lab = field(default_factory=lambda: Lab("dev", limits=Limits(machines=1)))
    heard: list[tuple[str, str]] = field(default_factory=list)
    """Events that webhooks of labs get: of which set, and what."""
    deaf: bool = False
    """Whether webhooks take no events."""

    @asynccontextmanager
    async def daemon(self) -> AsyncIterator[Board]:
        database = Database.open(f"sqlite:///{self.directory}/store.db")
        with closing(database):
            async with Tasks("test") as tasks:
                if await database.read(clusters.get, self.cluster) is None:
                    row = ClusterRow(self.cluster, "c", 7, 1, "c.yaml", "", {}, Allocations(), 1.0)
                    await database.call(clusters.save, row)
                board = Board(
                    database=database, cipher=self.cipher, tasks=tasks, clock=lambda: self.now,
                    workers=Workers("test", 1),
                    racks=self.machines,  # type: ignore[arg-type]  # a double of it
                    hooks=Heard(self.heard, deaf=self.deaf),
                )  # fmt: skip
                board.labs.put(self.cluster, 7, "c", [self.lab])
                if isinstance(self.machines, Mortals):
                    self.machines.death.threaten(database)
                await board.start()
                yield board


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(module, "AGAIN", 0.01)
    made = Place(tmp_path, Cipher.from_file(tmp_path / "key"))
    made.machines.hold.set()
    return made


def no_inventories(board: Board) -> Inventories:
    nothing = cast("Any", None)
    return Inventories(board, nothing, nothing, nothing)


def wanted(board: Board) -> RecipeSet:
    (key,) = board.known
    run = Run(Asked("r"), {key: Options((Size("small", 1, 1),))})
    return RecipeSet("", 0, 7, "ada", (run,), labs=(key,))


async def until(reached: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not reached():  # noqa: ASYNC110  (nothing else shows it)
            await asyncio.sleep(0.005)


async def state(board: Board, set_id: str) -> SetState:
    found = await board.find(set_id)
    assert found is not None
    return found[0].state


async def test_a_labs_webhooks_get_the_events_of_sets_that_wait_for_it_alone(place: Place) -> None:
    place.machines.hold.clear()
    async with place.daemon() as board:
        board.labs.put(uuid4(), 7, "d", [Lab("other", limits=Limits(machines=1))])
        here, other = board.known
        options = {key: Options((Size("small", 1, 1),)) for key in (here, other)}
        several = RecipeSet("", 0, 7, "ada", (Run(Asked("r"), options),), labs=(here, other))
        alone = replace(several, labs=(here,))
        await board.submit([alone, alone, several, several], "")
        for set_id in ("1.2", "1.4"):
            await board.do(partial(board.scheduler.cancel, set_id, "", 2.0))
        assert [event for each, event in place.heard if each == "1.2"] == [
            "queued", "cancelled", "ended",
        ]  # fmt: skip
        assert ("1.3", "starting") in place.heard
        assert "1.4" not in dict(place.heard), "either lab could have served it"


async def test_a_lease_that_is_extended_on_and_on_fills_no_webhook(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook has 1,000 events waiting: those of other users' sets were left out for them."""
    monkeypatch.setattr(board_module, "MOST_EXTENDED", 10)
    async with place.daemon() as board:
        (made,) = await board.submit([wanted(board)], "")
        await until(lambda: board.scheduler.sets[made.id].state is SetState.RUNNING)
        for _ in range(30):
            await board.do(partial(board.scheduler.extend, made.id, 60, 1000.0, add=False))
        await board.do(partial(board.scheduler.cancel, made.id, "", 1000.0))
        await until(lambda: made.id not in board.scheduler.sets)
        events = [event for each, event in place.heard if each == made.id]
        assert (len(events) < 20, events[-1]) == (True, "ended")


async def test_a_lease_that_ends_in_time_is_no_failure(place: Place) -> None:
    place.lab = replace(place.lab, lease=60, distros=(Distro("d", "http://m/k", "http://m/i"),))
    async with place.daemon() as board:
        ready = wanted(board)
        hangs = replace(ready, runs=(replace(ready.runs[0], asked=Asked("r", distro="d")),))
        for each in (ready, hangs):
            (made,) = await board.submit([each], "")
            await until(lambda: board.scheduler.sets[made.id].state is SetState.RUNNING)  # noqa: B023
            place.now += 10_000
            board._wake.set()
            await until(lambda: made.id not in board.scheduler.sets)  # noqa: B023
        assert board.measured.ended == {("c/dev", "expired"): 2}
        assert board.measured.failures == {("c/dev", Cause.BOOT_TIMEOUT): 1}


async def test_a_place_in_the_queue_counts_those_who_wait_for_the_same_lab(place: Place) -> None:
    async with place.daemon() as board:
        board.labs.put(uuid4(), 7, "d", [Lab("other")])
        here, other = board.known
        for key in (here, other):
            board.scheduler.drained.add(key)
        options = {key: Options((Size("small", 1, 1),)) for key in (here, other)}
        either = RecipeSet("", 0, 7, "ada", (Run(Asked("r"), options),), labs=(here, other))
        first, second = replace(either, labs=(here,)), replace(either, labs=(other,))
        await board.submit([first, first, second, either, second], "")
        places = await board.lists.places()
        assert places == {"1.1": 1, "1.2": 3, "1.3": 1, "1.4": 2, "1.5": 3}
        assert {each: await board.lists.place(each) for each in places} == places


async def test_places_of_sets_of_one_user_are_found_one_at_a_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a list of all queues, of which there may be thousands."""
    going, most, find = 0, 0, Placing.place

    def counted(self: Placing, found: RecipeSet) -> Iterator[int]:
        nonlocal going, most
        going += 1
        most = max(most, going)
        try:
            yield from find(self, found)
        finally:
            going -= 1

    monkeypatch.setattr(Placing, "place", counted)
    async with place.daemon() as board:
        board.scheduler.drained.update(board.known)
        made = await board.submit([wanted(board) for _ in range(8)], "")
        board.slices = Slices(seconds=0)
        async with Tasks("test") as tasks, asyncio.timeout(PATIENCE):
            found = [tasks.start(board.lists.place(each.id), name="place") for each in made]
            await asyncio.gather(*found)
        assert [each.result() for each in found] == [1, 2, 3, 4, 5, 6, 7, 8]
        assert most == 1


async def test_what_was_decided_is_found_by_the_next_daemon(place: Place) -> None:
    place.machines.hold.clear()
    async with place.daemon() as board:
        first, second = await board.submit([wanted(board), wanted(board)], "")
        assert (first.state, second.state) == (SetState.STARTING, SetState.QUEUED)
    assert place.machines.made == [], "the daemon ended before"
    place.machines.hold.set()
    async with place.daemon() as board:
        await until(lambda: board.scheduler.sets["1.1"].state is SetState.RUNNING)
        assert place.machines.made == ["1.1"]
        assert board.scheduler.sets["1.2"].state is SetState.QUEUED
        await board.do(lambda: board.scheduler.release("1.1", None, place.now))
        await until(lambda: board.scheduler.sets["1.2"].state is SetState.RUNNING)
        assert await state(board, "1.1") is SetState.ENDED
        found = await board.find("1.1")
        assert found is not None
        assert [event for _, _, event, _ in found[2]] == [
            "queued", "starting", "started", "ready", "released", "ended",
        ]  # fmt: skip


async def live(board: Board, place: Place) -> str:
    """One set from its request to its end, or what is left of that; its id."""
    (found,) = await board.submit([wanted(board)], "key")
    sets = board.scheduler.sets

    def is_there() -> bool:
        return found.id not in sets or sets[found.id].state is not SetState.STARTING

    await until(is_there)
    if found.id in sets and sets[found.id].state is SetState.RUNNING:
        await board.do(lambda: board.scheduler.release(found.id, None, place.now))
    await until(lambda: found.id not in sets)
    return found.id


async def killed_once(place: Place, death: Death) -> bool:
    """Whether the daemon died before all was done."""
    place.machines = Mortals(death=death)
    place.machines.hold.set()

    async def lived() -> None:
        async with place.daemon() as board:
            await live(board, place)

    async with Tasks("lives") as tasks:
        life = tasks.start(lived(), name="daemon")
        end = tasks.start(death.dead.wait(), name="its death")
        await asyncio.wait({life, end}, return_when=asyncio.FIRST_COMPLETED)
        if not death.dead.is_set():
            await life
            return False
    return True


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_daemon_killed_at_any_call_of_its_store_loses_no_set_and_leaves_no_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(module, "AGAIN", 0.01)
    for at in itertools.count(1):
        directory = tmp_path / str(at)
        directory.mkdir()
        place = Place(directory, Cipher.from_file(directory / "key"))
        if not await killed_once(place, Death(at, after=when == "after")):
            break
        former = place.machines
        place.machines = Machines(former.made, former.removed)
        place.machines.hold.set()
        async with place.daemon() as board:
            assert await live(board, place) == "1.1", f"asked again after call {at}"
            found = await board.find("1.1")
            assert found is not None
            assert (found[0].state, found[0].result) == (SetState.ENDED, "completed"), at
            assert set(place.machines.made) == set(place.machines.removed) == {"1.1"}, at
            await board.submit([wanted(board)], "")
            await until(partial(place.machines.made.count, "2.1"))
    assert at > 8, "of the calls of one life"


async def test_a_lease_that_ran_out_while_no_daemon_ran_ends(place: Place) -> None:
    async with place.daemon() as board:
        await board.submit([wanted(board)], "")
        await until(lambda: board.scheduler.sets["1.1"].state is SetState.RUNNING)
        await board.do(list)  # that is stored
    place.now += place.lab.lease + 1
    async with place.daemon() as board:
        await until(lambda: place.machines.removed == ["1.1"])
        await until(lambda: "1.1" not in board.scheduler.sets)
        assert await state(board, "1.1") is SetState.ENDED


async def test_what_cannot_be_removed_is_removed_again(place: Place) -> None:
    place.machines.stays = ["host is unreachable", "and still"]
    async with place.daemon() as board:
        await board.submit([wanted(board)], "")
        await until(lambda: board.scheduler.sets["1.1"].state is SetState.RUNNING)
        await board.do(lambda: board.scheduler.cancel("1.1", "", place.now))
        await until(lambda: "1.1" not in board.scheduler.sets)
        assert place.machines.removed == ["1.1"]
        assert not board.trouble("1.1")


async def test_a_registered_machine_that_is_not_off_is_broken(place: Place) -> None:
    place.lab, place.machines.on = Lab("dev", machines=(Registered("m1"),)), "no answer"
    async with place.daemon() as board:
        (key,) = board.known
        run = Run(Asked("r"), {key: Options((), ("m1",))})
        await board.submit([replace(wanted(board), runs=(run,))], "")
        await until(lambda: board.scheduler.sets["1.1"].state is SetState.RUNNING)
        await board.do(lambda: board.scheduler.cancel("1.1", "", place.now))
        await until(lambda: "1.1" not in board.scheduler.sets)
        assert board.scheduler.state_of(key, "m1").broken == "it is not off: no answer"
        found = await board.find("1.1")
        assert found is not None
        assert found[0].state is SetState.ENDED
    async with place.daemon() as board:
        assert board.scheduler.state_of(key, "m1").broken, "the next daemon knows it"


async def test_a_set_is_cancelled_while_it_is_made(place: Place) -> None:
    place.machines.hold.clear()
    async with place.daemon() as board:
        await board.submit([wanted(board)], "")
        await board.do(lambda: board.scheduler.cancel("1.1", "", place.now))
        await until(lambda: "1.1" not in board.scheduler.sets)
        assert (place.machines.made, place.machines.removed) == ([], ["1.1"])


async def test_errors_that_no_one_expects_end_no_task(place: Place) -> None:
    """The set is neither made nor removed by a task that ended: it would hold its machines."""
    place.machines.wrong, place.machines.stays = [KeyError("x")], [ValueError("y"), KeyError("z")]
    async with place.daemon() as board:
        await board.submit([wanted(board)], "")
        await until(lambda: board.scheduler.sets["1.1"].state is SetState.QUEUED)
        assert board.scheduler.sets["1.1"].why == "internal error: KeyError: 'x'"
        assert place.machines.removed == ["1.1"]
        assert board.measured.failures == {("c/dev", Cause.INTERNAL_ERROR): 1}
        place.now += 3600
        await board.do(list)
        await until(lambda: place.machines.made == ["1.1"])


async def test_what_fails_for_good_is_not_made_again(place: Place) -> None:
    place.machines.wrong = [NotMade("refused", again=Again.NEVER)]
    async with place.daemon() as board:
        await board.submit([wanted(board)], "")
        await until(lambda: "1.1" not in board.scheduler.sets)
        found = await board.find("1.1")
        assert found is not None
        assert (found[0].result, found[0].why) == ("failed", "refused")


async def test_nothing_is_carried_out_before_it_is_stored(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place.daemon() as board:
        whole = board._database.call
        refused = 0

        async def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal refused
            if function is records.save and refused < 2:
                refused += 1
                assert place.machines.made == []
                raise HostUnreachable("no disk")
            return await whole(function, *args, **kwargs)

        monkeypatch.setattr(board._database, "call", call)
        with pytest.raises(HostUnreachable):
            await board.submit([wanted(board)], "")
        await until(lambda: place.machines.made == ["1.1"])
        assert refused == 2


async def test_a_key_is_of_one_request_of_its_user(place: Place) -> None:
    place.machines.hold.clear()
    async with place.daemon() as board:
        (first,) = await board.submit([wanted(board)], "k")
        assert await board.submit([wanted(board)], "k") == [board.scheduler.sets[first.id]]
        assert len(board.scheduler.sets) == 1


async def test_labs_in_use_stay(place: Place) -> None:
    async with place.daemon() as board:
        await board.submit([wanted(board)], "")
        with pytest.raises(Conflict, match=r"lab dev has 1 recipe set that did not end: 1\.1"):
            board.labs.require_unused(place.cluster)
        board.labs.require_unused(place.cluster, ["dev"])


async def test_a_set_that_is_shown_as_ended_keeps_no_lab(place: Place) -> None:
    """It is among the sets for a turn or more after that, in which `down` was refused."""
    async with place.daemon() as board:
        await board.submit([wanted(board)], "")
        sets = board.scheduler.sets
        await until(lambda: sets["1.1"].state is SetState.RUNNING)
        sets["1.1"] = replace(sets["1.1"], state=SetState.ENDED)
        board.labs.require_unused(place.cluster)


async def test_old_sets_are_forgotten_with_their_logs(place: Place) -> None:
    async with place.daemon() as board:
        await board.submit([wanted(board)], "")
        await until(lambda: board.scheduler.sets["1.1"].state is SetState.RUNNING)
        assert await board.ended.forget_old(place.now + 1) == 0, "it has not ended"
        await board.do(lambda: board.scheduler.cancel("1.1", "", place.now))
        await until(lambda: "1.1" not in board.scheduler.sets)
        assert await board.ended.forget_old(place.now + 1) == 0, "the next one is numbered after it"
        place.machines.hold.clear()
        await board.submit([wanted(board)], "")
        assert await board.ended.forget_old(place.now + 1) == 1
        assert await board.find("1.1") is None
        assert place.machines.removed == ["1.1", "log of 1.1"]


async def test_the_script_of_a_registered_machine_goes_to_no_one_else(place: Place) -> None:
    """It has the recipe's secret, by which a kickstart is read and an installation reported."""
    mac, other = "52:54:00:00:00:01", "52:54:00:00:00:02"
    machine, distro = (
        Registered("m1", macs=(mac,)),
        Distro("d", "http://m/linux", "http://m/initrd"),
    )
    place.lab = Lab("dev", machines=(machine,), distros=(distro,))
    neighbors = {
        "192.0.2.9": Neighbor(Way.LINK, mac),
        "192.0.2.8": Neighbor(Way.LINK, other),
        "192.0.2.7": Neighbor(Way.LINK),
        "192.0.2.1": Neighbor(Way.HERE),
        "203.0.113.1": Neighbor(Way.HERE),
        "fd00::7": Neighbor(Way.LINK),
        "198.51.100.7": Neighbor(Way.ROUTED),
    }
    async with place.daemon() as board:
        (key,) = board.known
        callbacks = Callbacks(
            lambda: board, lambda: place.now, lambda: no_inventories(board),
            user_of=lambda *_: 1000,
            neighbor=lambda address: neighbors[address],
        )  # fmt: skip

        async def asks(address: str, of: str = mac) -> str | None:
            here = ("192.0.2.1", 8069)
            return await callbacks.script(of, "http://here", peer=(address, 4000), here=here)

        assert await asks("192.0.2.9", other) is None, "that is registered nowhere"
        assert "no recipe has this machine" in (await asks("192.0.2.9") or "")
        run = Run(Asked("r", distro="d"), {key: Options((), ("m1",))})
        await board.submit([replace(wanted(board), runs=(run,))], "")
        await until(lambda: board.scheduler.sets["1.1"].state is SetState.RUNNING)
        secret = board.scheduler.sets["1.1"].runs[0].secret
        assert await asks("192.0.2.8") is None, "a neighbor with another MAC"
        assert await asks("192.0.2.7") is None, "a neighbor who lets its MAC be forgotten"
        assert await asks("fd00::7") is None, "the same by IPv6"
        assert await asks("192.0.2.1") is None, "a process of another user of this machine"
        assert await asks("203.0.113.1") is None, "the same, from another address of it"
        assert f"/lab/{secret}/ks" in (await asks("192.0.2.9") or "")
        assert await asks("198.51.100.7") is None, "a second address"
        assert f"/lab/{secret}/ks" in (await asks("192.0.2.9") or ""), "it may ask again"


async def test_a_guest_with_the_mac_of_a_registered_machine_gets_no_script(place: Place) -> None:
    """It chooses what it sends from; registered machines are on other networks than guests."""
    mac = "52:54:00:00:00:01"
    place.lab = Lab("dev", machines=(Registered("m1", macs=(mac,)),))
    links = {
        "10.0.0.2": "ns0a1b2c-lan",  # of another user's cluster
        "10.0.1.2": "ns0d1e2f-lan",  # of the lab's owner
        "10.0.2.2": "ns001122-lan",  # of none any more
        "192.0.2.9": "br-lan",
    }
    async with place.daemon() as board:
        (known,) = board.known.values()
        owners = {"ns0a1b2c-lan": known.owner + 1, "ns0d1e2f-lan": known.owner}
        callbacks = Callbacks(
            lambda: board, lambda: place.now, lambda: no_inventories(board),
            owner_of_bridge=owners.get,
            neighbor=lambda address: Neighbor(Way.LINK, mac, links[address]),
        )  # fmt: skip
        here = ("192.0.2.1", 8069)
        got = {
            address: await callbacks.script(mac, "http://here", peer=(address, 4000), here=here)
            for address in links
        }
    assert [address for address, script in got.items() if script is None] == [
        "10.0.0.2",
        "10.0.2.2",
    ]
