"""Many requests in an hour of a lab's own clock, on the simulator, with machines that fail,
hang, panic and never call back. The daemon is a whole one, and starts again in the middle.

`tests/lab/test_scheduler.py` has ten thousand, for the scheduler alone.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.security.asked import OWNER, Asked, a_daemon

from nospoon.control.labs import watch
from nospoon.lab.work import HOLDING, RecipeSet, SetState
from nospoon.model.resources import Kind
from nospoon.store import labs as stored

REQUESTS, HOUR, STEP = 120, 3600.0, 30.0
BEGIN = 1_800_000_000.0
PATIENCE = 120.0
"""Seconds of this machine in which what labs do comes to rest."""
TRIES = 3
LIMITS = {"calm": 10, "panics": 3}
LABS = """
cluster: hour
hosts:
  calm: {simulated: {console: "login:", power_failures: 0.03}}
  panics: {simulated: {console: "Kernel panic - not syncing: Attempted to kill init!"}}
flavors:
  small: {memory: 2GiB, disks: [20GiB], firmware: bios}
  large: {memory: 8GiB, cpus: 4, disks: [40GiB], firmware: bios}
labs:
  calm: {host: calm, limits: {machines: 10}, lease: 4min, timeouts: {boot: 2min, install: 3min},
         distros: {d: {script: "http://192.0.2.1/ipxe"}}}
  panics: {host: panics, limits: {machines: 3}, lease: 4min, timeouts: {panic: 1min},
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


async def submit(asked: Asked, machines: Machines, number: int) -> None:
    fate = machines.random.choice(FATES)
    lab = "hour/panics" if fate == "panicked" else "hour/calm"
    body = {"text": request(machines.random, fate), "lab": lab, "key": f"key-{number}"}
    answer = await asked.ask(OWNER, "POST", "/v1/requests", body)
    assert answer.status == 201, answer.body
    machines.fates[answer.json[0]["set"]] = fate


def made_on(asked: Asked, host: str) -> list[str]:
    """Machines that a simulated host has."""
    connection = asked.daemon.simulations._connections.get(host)
    made = connection.world.made if connection is not None else {}
    return [name for kind, name in made if kind is Kind.MACHINE]


def looked_at(asked: Asked, machines: Machines) -> bool:
    """Whether all is at rest; what must hold at every moment is looked at."""
    sets = asked.daemon.board.scheduler.sets.values()
    for lab, most in LIMITS.items():
        key = next(each.key for each in asked.daemon.board.known.values() if each.lab.name == lab)
        held = [
            run for each in sets if each.lab == key and each.state in HOLDING for run in each.runs
        ]
        assert len(held) <= most
        assert len(made_on(asked, lab)) <= most
    resting = True
    for each in sets:
        if each.state is SetState.RUNNING:
            machines.begin(each)
            panics = machines.fates[each.id] == "panicked"
            resting &= not panics or all(run.panic or run.over for run in each.runs)
        resting &= each.state in (SetState.QUEUED, SetState.RUNNING)
    return resting


async def at_rest(asked: Asked, machines: Machines) -> None:
    """The loop of labs has looked at the time, and what it began has ended."""
    board, resting = asked.daemon.board, False
    board._wake.set()
    async with asyncio.timeout(PATIENCE):
        while not resting:
            await asyncio.sleep(0.005)  # no event shows that tasks, and what they begin, are over
            if not board._wake.is_set() and looked_at(asked, machines):
                async with board._turn:  # what the loop has begun by now is decided
                    resting = looked_at(asked, machines)


async def report(asked: Asked, machines: Machines) -> None:
    callbacks = asked.daemon.callbacks
    for _, secret, event in machines.due():
        await callbacks.report(secret, event, "it says so" if event == "install_fail" else "")


async def results(asked: Asked) -> dict[str, Any]:
    rows = (await asked.ask(OWNER, "GET", "/v1/requests")).json
    ids = [each["set"] for each in rows]
    return {i: (await asked.ask(OWNER, "GET", f"/v1/requests/{i}")).json for i in ids}


async def test_an_hour_of_requests_loses_no_lease_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOOK", 0.05)
    machines, random = Machines(Random(7)), Random(11)
    arrivals = sorted(random.uniform(0, HOUR) for _ in range(REQUESTS))
    async with AsyncExitStack() as ending:
        asked = await ending.enter_async_context(a_daemon(tmp_path, machines.clock))
        assert (await asked.up(OWNER, LABS)).status < 300
        step = submitted = 0
        while submitted < REQUESTS or asked.daemon.board.scheduler.sets:
            machines.now += STEP
            step += 1
            assert machines.now < BEGIN + 10 * HOUR, "no set waits for ever"
            if step == 40:
                await ending.aclose()
                asked = await ending.enter_async_context(a_daemon(tmp_path, machines.clock))
            await report(asked, machines)
            while submitted < REQUESTS and BEGIN + arrivals[submitted] <= machines.now:
                await submit(asked, machines, submitted)
                submitted += 1
            await at_rest(asked, machines)
        found = await results(asked)
        left = await asked.daemon.database.read(stored.active)
        clusters = (await asked.ask(OWNER, "GET", "/v1/clusters")).json
        made = [c.world.made for c in asked.daemon.simulations._connections.values()]
    assert len(found) == REQUESTS
    assert {each["state"] for each in found.values()} == {"ended"}
    for set_id, each in found.items():
        if each["result"] == "failed" and each["attempts"] == TRIES:
            continue  # its machines were never switched on
        ends = {(lease["stage"], lease["why"]) for lease in each["leases"]}
        assert ends == {ENDS[machines.fates[set_id]]}, set_id
    assert left == []
    assert [each["name"] for each in clusters] == ["hour"]
    assert not any(made)
    assert set(machines.fates.values()) == set(FATES)
