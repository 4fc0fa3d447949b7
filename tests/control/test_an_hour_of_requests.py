"""Many requests in an hour of a lab's own clock, on the simulator, with machines that fail,
hang, panic and never call back. The daemon is a whole one, and starts again in the middle.

`make test-labs-full` sends ten thousand; `tests/lab/test_scheduler.py` has as many, for the
scheduler alone.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.security.asked import OTHER, OWNER, Asked, a_daemon

from nospoon.control.labs import watch
from nospoon.lab.work import RecipeSet, SetState
from nospoon.model.resources.keys import Kind
from nospoon.store import labs as stored

HOUR = 3600.0
NEVER = 1e6
"""Consoles are looked at by the test, when machines of panics have started."""
BEGIN = 1_800_000_000.0
PATIENCE = 300.0
"""Seconds of this machine in which what labs do comes to rest."""
TRIES = 3


@dataclass(frozen=True)
class Size:
    """`owners`: users with labs. `calm` and `panics`: machines that each lab may have. `look`:
    seconds between two looks at consoles, and `rest` between two of this test's. `step`: seconds of
    the labs' clock at a time.
    """

    requests: int
    owners: tuple[int, ...]
    calm: int
    panics: int
    look: float
    rest: float
    step: float

    @property
    def limits(self) -> dict[str, int]:
        return {"calm": self.calm, "panics": self.panics}


SMALL = Size(requests=120, owners=(OWNER,), calm=10, panics=3, look=0.05, rest=0.005, step=30)
FULL = Size(
    requests=int(os.environ.get("NOSPOON_LABS_FULL") or 10_000),
    owners=(0, OWNER, OTHER),
    calm=50,
    panics=16,
    look=NEVER,
    rest=0.1,
    step=60,
)
"""Members have no more than a hundred clusters at a time, and each set is one."""
IS_FULL = pytest.mark.skipif(
    not os.environ.get("NOSPOON_LABS_FULL"),
    reason="ten thousand requests through a daemon take half an hour: make test-labs-full",
)
LABS = """
cluster: hour
hosts:
  calm-USER: {simulated: {console: "login:", power_failures: 0.03}}
  panics-USER: {simulated: {console: "Kernel panic - not syncing: Attempted to kill init!"}}
flavors:
  small: {memory: 2GiB, disks: [20GiB], firmware: bios}
  large: {memory: 8GiB, cpus: 4, disks: [40GiB], firmware: bios}
labs:
  calm: {host: calm-USER, limits: {machines: CALM}, lease: 4min,
         timeouts: {boot: 2min, install: 3min},
         distros: {d: {script: "http://192.0.2.1/ipxe"}}}
  panics: {host: panics-USER, limits: {machines: PANICS}, lease: 4min, timeouts: {panic: 1min},
           distros: {d: {script: "http://192.0.2.1/ipxe"}}}
nodes: []
"""
FATES = ("installed", "installed", "failed", "hung", "silent", "panicked")
ENDS = {
    "installed": ("expired", ""),
    "failed": ("failed", "the installer reports a failure: it says so"),
    "hung": ("expired", "the watchdog ended it: installing for 180 s"),
    "silent": ("expired", "the watchdog ended it: booting for 120 s"),
    "panicked": ("expired", "kernel panic: Kernel panic - not syncing: Attempted to kill init!"),
}
"""What the leases of a set end as, and why."""


@dataclass
class Machines:
    """What each recipe's machine does, by the clock of labs."""

    random: Random
    now: float = BEGIN
    fates: dict[str, str] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)
    reports: list[tuple[float, str, str]] = field(default_factory=list)
    begun: set[tuple[str, int]] = field(default_factory=set)

    def clock(self) -> float:
        return self.now

    def begin(self, found: RecipeSet) -> None:
        """Those of a set were started: what they will report, and when."""
        fate = self.fates[found.id]
        for run in found.runs:
            if (run.secret, found.attempts) in self.begun:
                continue
            self.begun.add((run.secret, found.attempts))
            at = self.now + self.random.uniform(5, 60)
            if fate in ("installed", "failed", "hung"):
                self.reports.append((at, run.secret, "install_start"))
            if fate in ("installed", "failed"):
                last = "install_done" if fate == "installed" else "install_fail"
                self.reports.append((at + self.random.uniform(1, 90), run.secret, last))

    def due(self) -> list[tuple[float, str, str]]:
        """Reports that are due, one of which is sent twice."""
        due = sorted(each for each in self.reports if each[0] <= self.now)
        self.reports = [each for each in self.reports if each[0] > self.now]
        return due + due[:1]


def request(random: Random, fate: str) -> str:
    memory = random.choice(("1024", "4096"))
    requires = f"<hostRequires><memory op='&gt;=' value='{memory}'/></hostRequires>"
    recipe = f"<recipe>{requires}</recipe>"
    priority = random.choice(("Low", "Normal"))
    count = 1 if fate == "panicked" else random.choice((1, 1, 1, 2, 3))
    return f"<recipeSet priority='{priority}'>{recipe * count}</recipeSet>"


async def submit(asked: Asked, machines: Machines, number: int, user: int) -> None:
    fate = machines.random.choice(FATES)
    lab = "hour/panics" if fate == "panicked" else "hour/calm"
    body = {"text": request(machines.random, fate), "lab": lab, "key": f"key-{number}"}
    answer = await asked.ask(user, "POST", "/v1/requests", body)
    assert answer.status == 201, answer.body
    set_id = answer.json[0]["set"]
    machines.fates[set_id], machines.owners[set_id] = fate, user


def made_on(asked: Asked, host: str) -> int:
    """How many machines a simulated host has."""
    connection = asked.daemon.parts.simulations._connections.get(host)
    return len(connection.world.made[Kind.MACHINE]) if connection is not None else 0


def looked_at(asked: Asked, machines: Machines, size: Size) -> tuple[bool, bool]:
    """Whether no machine is made or removed, and whether all panics are known, too; what must hold
    at every moment is looked at.
    """
    begun = known = True
    board = asked.daemon.control.board
    assert len(board.known) == len(size.limits) * len(size.owners)
    for known_lab in board.known.values():
        lab, most = known_lab.lab.name, size.limits[known_lab.lab.name]
        out = board.out(known_lab.key)
        assert sum(len(each.runs) for each in out) <= most
        assert made_on(asked, f"{lab}-{known_lab.owner}") <= most
        for each in out:
            if each.state is SetState.RUNNING:
                machines.begin(each)
                panics = machines.fates[each.id] == "panicked"
                known &= not panics or all(run.panic or run.over for run in each.runs)
            else:
                begun = False
    return begun, begun and known


async def at_rest(asked: Asked, machines: Machines, size: Size) -> None:
    """The loop of labs has looked at the time, and what it began has ended."""
    board, resting = asked.daemon.control.board, False
    board._wake.set()
    async with asyncio.timeout(PATIENCE):
        while not resting:
            await asyncio.sleep(size.rest)  # no event shows that tasks, and what they begin, end
            if board._wake.is_set():
                continue
            begun, resting = looked_at(asked, machines, size)
            if begun and not resting and size.look == NEVER:
                await asked.daemon.control.watch.look()
            if resting:
                async with board._turn:  # what the loop has begun by now is decided
                    _, resting = looked_at(asked, machines, size)


async def report(asked: Asked, machines: Machines) -> None:
    callbacks = asked.daemon.parts.callbacks
    for _, secret, event in machines.due():
        await callbacks.report(secret, event, "it says so" if event == "install_fail" else "")


async def results(asked: Asked, machines: Machines) -> dict[str, Any]:
    """Of each set by itself: a list has a thousand at most."""
    return {
        set_id: (await asked.ask(user, "GET", f"/v1/requests/{set_id}")).json
        for set_id, user in machines.owners.items()
    }


def note(asked: Asked, machines: Machines, size: Size, submitted: int) -> None:
    """What the daemon takes so far, for who reads it."""
    scheduler, used = asked.daemon.control.board.scheduler, resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    made = sum(made_on(asked, f"{lab}-{user}") for lab in size.limits for user in size.owners)
    sys.stderr.write(
        f"{machines.now - BEGIN:6.0f} s: {submitted} submitted, {len(scheduler.sets)} not ended, "
        f"{made} machines, {pages * resource.getpagesize() >> 20} MiB, "
        f"{used.ru_utime + used.ru_stime:.0f} s of a processor\n"
    )


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(SMALL, id="120"),
        pytest.param(FULL, id="full", marks=[IS_FULL, pytest.mark.timeout(2 * 3600)]),
    ],
)
async def test_an_hour_of_requests_loses_no_lease_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: Size
) -> None:
    monkeypatch.setattr(watch, "LOOK", size.look)
    machines, random = Machines(Random(7)), Random(11)
    arrivals = sorted(random.uniform(0, HOUR) for _ in range(size.requests))
    text = LABS.replace("CALM", str(size.calm)).replace("PANICS", str(size.panics))
    async with AsyncExitStack() as ending:
        asked = await ending.enter_async_context(a_daemon(tmp_path, machines.clock))
        for user in size.owners:
            assert (await asked.up(user, text.replace("USER", str(user)))).status < 300
        step = submitted = 0
        while submitted < size.requests or asked.daemon.control.board.scheduler.sets:
            machines.now += size.step
            step += 1
            assert machines.now < BEGIN + 20 * HOUR, "no set waits for ever"
            if step == 40:
                await ending.aclose()
                asked = await ending.enter_async_context(a_daemon(tmp_path, machines.clock))
            await report(asked, machines)
            while submitted < size.requests and BEGIN + arrivals[submitted] <= machines.now:
                user = size.owners[submitted % len(size.owners)]
                await submit(asked, machines, submitted, user)
                submitted += 1
            await at_rest(asked, machines, size)
            if step % 5 == 0:
                note(asked, machines, size, submitted)
        found = await results(asked, machines)
        left = await asked.daemon.parts.database.read(stored.active)
        clusters = [
            each["name"]
            for user in size.owners
            for each in (await asked.ask(user, "GET", "/v1/clusters")).json
        ]
        worlds = [c.world for c in asked.daemon.parts.simulations._connections.values()]
        made = [each for world in worlds for each in world.all()]
        board = asked.daemon.control.board
        kept = (board.secrets, board._history, board._requests, board._loads.weights, board._keys)
    assert len(found) == size.requests
    assert {each["state"] for each in found.values()} == {"ended"}
    for set_id, each in found.items():
        if each["result"] == "failed" and each["attempts"] == TRIES:
            continue  # its machines were never switched on
        ends = {(lease["stage"], lease["why"]) for lease in each["leases"]}
        assert ends == {ENDS[machines.fates[set_id]]}, set_id
    assert left == []
    assert clusters == ["hour"] * len(size.owners)
    assert not made
    assert not any(kept), "memory holds nothing of what has ended"
    assert set(machines.fates.values()) == set(FATES)
