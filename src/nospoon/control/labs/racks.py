"""Carrying out what the scheduler of labs decides: machines of a set are made, started, removed.

The dynamic machines of a set are the nodes of a cluster of its lab's owner, so the engine journals,
tags and removes them; what a daemon that was killed had begun is begun again, and converges.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol
from uuid import UUID

import msgspec
import structlog

from nospoon.control.labs.access import KnownLab
from nospoon.control.labs.bmcs import NotReached, WhileOff
from nospoon.control.labs.installers import Installers
from nospoon.control.labs.set_logins import SetLogins, file_of
from nospoon.control.operations.operations import Operations
from nospoon.control.operations.work import Removal
from nospoon.control.request import Request
from nospoon.errors import (
    Conflict,
    Forbidden,
    HostUnreachable,
    NospoonError,
    NotFound,
    OutOfSpace,
    PlanRefused,
    ProviderError,
    QuotaUsed,
    SpecError,
    UsageError,
)
from nospoon.lab.assign import Free
from nospoon.lab.provision import boot_image_of, cluster_name, distro_of, missing_distros
from nospoon.lab.set_cluster import cluster_of, violations
from nospoon.lab.work import Again, Asked, RecipeSet, Run, Size
from nospoon.model.cluster import Cluster
from nospoon.model.lab import Registered
from nospoon.model.machine import PowerCommand
from nospoon.model.principal import Administrators, Principal
from nospoon.model.rest.nodes import PowerResult
from nospoon.runtime.few import few_at_once
from nospoon.runtime.turns import Turns
from nospoon.runtime.workers import Workers
from nospoon.store import clusters as stored
from nospoon.store.clusters import ClusterRow
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database
from nospoon.store.operations import OperationRow, OperationState

log = structlog.get_logger()
AT_ONCE = 8
"""Clusters of one owner of labs that are made or removed at a time."""
STARTED_AT_ONCE = 32
"""Machines of one set that are powered on at a time, as of one `up`."""
BMCS_AT_ONCE = 4
"""BMCs of registered machines of one owner of labs that are called at a time: each call of IPMI is
a process.
"""
AGAIN = 10.0
"""Seconds until a removal that failed is begun again."""
MOST_TRIED = 32
"""Flavors of which a lab's check plans a machine: each takes a tenth of a second and more."""
MOST_WHYS = 3
"""Reasons of one failed operation that a set keeps."""
BUSY = 1.0
"""Seconds until a cluster that another operation changes is asked for again."""


class Clusters(Protocol):
    """The use cases of clusters."""

    async def plan(self, request: Request) -> object: ...
    async def up(self, request: Request) -> tuple[object, OperationRow | None]: ...
    async def down(self, caller: Principal, name: str, how: Removal) -> OperationRow: ...


class Machines(Protocol):
    """BMCs of registered machines."""

    async def start(
        self, machine: Registered, *, owner: int, installs: bool, while_off: WhileOff = ...
    ) -> None: ...
    async def stop(self, machine: Registered, *, owner: int) -> None: ...
    async def uuids(self, machine: Registered, *, owner: int) -> frozenset[UUID]: ...


class Consoles(Protocol):
    """Of registered machines."""

    async def begin(self, found: RecipeSet, number: int, known: KnownLab) -> None: ...
    async def end(self, found: RecipeSet) -> None: ...
    def state(self, found: RecipeSet, number: int, known: KnownLab) -> str: ...
    async def purge(self, found: RecipeSet, known: KnownLab) -> None: ...


Power = Callable[[Principal, str, PowerCommand], Awaitable[PowerResult]]
Start = Callable[[Principal, str], Awaitable[str]]
"""As `Nodes.start`."""


class NotMade(Exception):
    """Why machines of a set were not made; `again`: whether they may be the next time. `machines`:
    registered ones whose BMCs did not do it.
    """

    def __init__(self, why: str, *, again: Again, machines: Sequence[str] = ()) -> None:
        super().__init__(why)
        self.why, self.again, self.machines = why, again, tuple(machines)


class _Failure(msgspec.Struct):
    """A failure of an operation's result, as far as a lab looks at it."""

    message: str
    passes: bool = False


class _Result(msgspec.Struct):
    failures: list[_Failure] = []


_RESULT = msgspec.json.Decoder(_Result)


def _again_after(error: NospoonError) -> Again:
    """Whether a set is started again that met an error: a plan that hosts can never carry out is
    refused each time, and one that is drained or unreachable takes machines again. The lab's owner,
    who has as many clusters or nodes as a member may, has fewer when a set ends.
    """
    if isinstance(error, OutOfSpace | HostUnreachable | QuotaUsed) or (
        isinstance(error, PlanRefused) and error.passes
    ):
        return Again.CAPACITY
    if isinstance(error, SpecError | PlanRefused | Forbidden | UsageError):
        return Again.NEVER
    return Again.LATER


@dataclass(slots=True)
class Racks:
    """All parts are handed in by the composition root. `kept`: what the store has of a cluster; it
    raises `SpecError`.
    """

    admins: Administrators
    kept: Callable[[ClusterRow], Cluster]
    clusters: Callable[[], Clusters]
    power: Power
    start: Start
    operations: Operations
    machines: Machines
    consoles: Consoles
    database: Database
    cipher: Cipher
    workers: Workers
    installers: Installers
    logins: SetLogins
    _places: defaultdict[int, asyncio.Semaphore] = field(
        default_factory=lambda: defaultdict(lambda: asyncio.Semaphore(AT_ONCE))
    )
    _calls: defaultdict[int, asyncio.Semaphore] = field(
        default_factory=lambda: defaultdict(lambda: asyncio.Semaphore(BMCS_AT_ONCE))
    )
    _turns: Turns = field(default_factory=Turns)
    _unreached: set[tuple[str, str]] = field(default_factory=set)
    """(set, machine) of BMCs that did not answer when it was started: nothing of it is on."""

    async def build(self, found: RecipeSet, known: KnownLab) -> None:
        """All machines of a set are made, and then started together. Raises `NotMade`."""
        try:
            if gone := missing_distros(found, known.lab):
                names = ", ".join(gone)
                raise PlanRefused([f"lab {known.lab.name} has no distribution {names} any more"])
            async with self._places[known.owner]:
                if any(run.size is not None for run in found.runs):
                    await self._up(found, known)
            await self._start(found, known)
        except NospoonError as error:
            raise NotMade(str(error), again=_again_after(error)) from error

    async def refusals(self, known: KnownLab) -> dict[str, str]:
        """Why a plan has no machine of a flavor now, by the flavor's name; nothing is made."""
        row = await self.database.read(stored.find, owner=known.owner, name=known.cluster)
        if row is None:
            return {}
        refused = dict[str, str]()
        for flavor in known.lab.flavors[:MOST_TRIED] if known.lab.dynamic else ():
            size = Size(flavor.name, flavor.cpus, flavor.memory)
            if not Free.of(known.lab.limits).holds(size):
                refused[flavor.name] = "a machine of it would take more than the lab's limits"
                continue
            if known.lab.distros and not any(each.starts(flavor) for each in known.lab.distros):
                refused[flavor.name] = "it has no NIC, by which the lab's distributions come"
                continue
            run = Run(Asked("check"), {}, size=size, node="recipe-0")
            tried = RecipeSet(
                id="check",
                number=0,
                submitter=known.owner,
                owner="",
                runs=(run,),
                labs=(known.key,),
            )
            try:
                request = await self._request(tried, known, row)
                await self.clusters().plan(request)
            except NospoonError as error:
                refused[flavor.name] = str(error)
        return refused

    async def remove(self, found: RecipeSet, known: KnownLab) -> str:
        """Its dynamic machines are gone afterwards. Returns why one is not, "" where all are."""
        if not any(run.size is not None for run in found.runs):
            return ""
        async with self._places[known.owner]:
            name = cluster_name(known.lab.name, found.id)
            row = await self.database.read(stored.find, owner=known.owner, name=name)
            if row is not None and row.file != file_of(found, known):
                return ""  # its own was never made, or taken down before another had the name
            try:
                await self.logins.renew_one(found, known)
                return await self._down(self._owner_of(known), name)
            except NospoonError as error:
                return str(error)

    async def renew_logins(self, sets: Sequence[RecipeSet], known: KnownLab) -> None:
        """The file of a lab may have other logins than when these sets were made."""
        await self.logins.renew(sets, known)

    async def switch(
        self, found: RecipeSet, number: int, known: KnownLab, command: PowerCommand
    ) -> str:
        """A chassis command for a recipe's machine. Returns what came of it."""
        run = found.runs[number]
        if run.size is not None:
            node = f"{cluster_name(known.lab.name, found.id)}/{run.node}"
            return (await self.power(self._owner_of(known), node, command)).result
        machine = known.machines.get(run.machine)
        if machine is None:
            raise NotFound(f"recipe {found.id}.{number} has no machine")
        if command in (PowerCommand.SOFT, PowerCommand.DIAG):
            raise UsageError(
                f"machine {machine.name} is a registered one, which knows no {command}",
                hint="Registered machines know on, off, cycle and reset.",
            )
        turn = self._turn_of(known, machine)
        if turn.locked():  # one that waited could meet the machine of the next lease
            raise Conflict(f"another command for machine {machine.name} is under way")
        async with turn, self._calls[known.owner]:
            if command in (PowerCommand.OFF, PowerCommand.CYCLE, PowerCommand.RESET):
                await self.machines.stop(machine, owner=known.owner)
            if command in (PowerCommand.ON, PowerCommand.CYCLE, PowerCommand.RESET):
                await self.machines.start(machine, owner=known.owner, installs=False)
        return "done"

    async def probe(self, known: KnownLab, machine: Registered) -> None:
        """Starts a registered machine from the network."""
        async with self._turn_of(known, machine), self._calls[known.owner]:
            await self.machines.start(machine, owner=known.owner, installs=True)

    async def off(self, known: KnownLab, machine: Registered) -> None:
        async with self._turn_of(known, machine), self._calls[known.owner]:
            await self.machines.stop(machine, owner=known.owner)

    async def uuids(self, known: KnownLab, machine: Registered) -> frozenset[UUID]:
        """What the UUID of a registered machine may be, as its BMC shows it."""
        async with self._turn_of(known, machine), self._calls[known.owner]:
            return await self.machines.uuids(machine, owner=known.owner)

    async def _request(self, found: RecipeSet, known: KnownLab, row: ClusterRow) -> Request:
        """For a set's machines. `row`: the cluster of the lab's file."""
        made = await self.workers.run(known.owner, self._cluster, found, known, row)
        caller, images = self._owner_of(known), dict[str, str]()
        for run in found.runs:
            distro = distro_of(known.lab, run)
            if run.size is not None and distro is not None and distro.has_boot_image:
                name = boot_image_of(distro)
                if name not in images:
                    images[name] = await self.installers.image_of(distro, known.owner)
        given = {**row.uploads, **images}
        return Request(caller=caller, file=file_of(found, known), cluster=made, uploads=given)

    def _cluster(self, found: RecipeSet, known: KnownLab, row: ClusterRow) -> Cluster:
        """Raises `PlanRefused`, and `SpecError` for a file that an earlier version took."""
        base = self.kept(row)
        if reasons := list(violations(found, known.lab, base)):
            raise PlanRefused(reasons)
        return cluster_of(found, known.lab, base)

    def _owner_of(self, known: KnownLab) -> Principal:
        return self.admins.principal(known.owner)

    def _turn_of(self, known: KnownLab, machine: Registered) -> asyncio.Lock:
        """One call of a BMC at a time; other users' labs may name the same BMC."""
        return self._turns.of(str(known.owner), machine.address, str(machine.port))

    async def purge(self, found: RecipeSet, known: KnownLab) -> None:
        """The console logs of a set that has ended."""
        name = cluster_name(known.lab.name, found.id)
        row = await self.database.read(stored.find, owner=known.owner, name=name)
        if row is None and any(run.node for run in found.runs):
            operation = await self.clusters().down(self._owner_of(known), name, Removal(purge=True))
            await self._ended(operation.id)
        elif row is None:
            await self.consoles.purge(found, known)

    async def _up(self, found: RecipeSet, known: KnownLab) -> None:
        row = await self.database.read(stored.find, owner=known.owner, name=known.cluster)
        if row is None:
            raise NotFound(f"cluster {known.cluster} of lab {known.lab.name} is gone")
        await self._require_own(found, known)
        operation = await self._begun(await self._request(found, known, row))
        if operation is not None:
            state, message = await self._ended(operation.id)
            if state != OperationState.DONE:
                raise await self._failed(operation.id, message)

    async def _failed(self, operation: UUID, message: str) -> NotMade:
        """As its failures say: where all of them are want of capacity, so is that."""
        text = await self.operations.result_text(operation)
        failures = _RESULT.decode(text or "{}")
        whys = dict.fromkeys(each.message for each in failures.failures)
        passes = bool(whys) and all(each.passes for each in failures.failures)
        again = Again.CAPACITY if passes else Again.LATER
        return NotMade("; ".join([*whys][:MOST_WHYS]) or message, again=again)

    async def _require_own(self, found: RecipeSet, known: KnownLab) -> None:
        """Raises `NotMade` where its owner has made a cluster of that name."""
        name = cluster_name(known.lab.name, found.id)
        row = await self.database.read(stored.find, owner=known.owner, name=name)
        if row is not None and row.file != file_of(found, known):
            raise PlanRefused([f"there is a cluster {name} that is not of this lab"])

    async def _begun(self, request: Request) -> OperationRow | None:
        """Begins as soon as no other operation of a daemon that ended is in its way."""
        for _ in range(60):
            try:
                _, operation = await self.clusters().up(request)
            except QuotaUsed:
                raise
            except Conflict as error:
                busy = str(error)
                await asyncio.sleep(BUSY)
            else:
                return operation
        raise NotMade(busy, again=Again.LATER)

    async def _ended(self, operation: UUID) -> tuple[str, str]:
        state, message = "", ""
        async for events in self.operations.follow(operation):
            for event in events:
                if "state" in event:
                    state, message = str(event["state"]), str(event["message"])
        return state, message

    async def _down(self, caller: Principal, name: str) -> str:
        try:
            operation = await self.clusters().down(caller, name, Removal(force=True))
        except Conflict as error:
            return str(error)
        state, message = await self._ended(operation.id)
        return "" if state == OperationState.DONE else message

    async def _start(self, found: RecipeSet, known: KnownLab) -> None:
        await self._start_dynamic(found, known)
        for number, run in enumerate(found.runs):
            if run.size is not None or not run.machine:  # released before the set had machines
                continue
            if run.machine in known.machines:
                installs = bool(run.asked.distro or run.asked.kickstart)
                machine = known.machines[run.machine]
                recorded = partial(self.consoles.begin, found, number, known)
                try:
                    async with self._turn_of(known, machine), self._calls[known.owner]:
                        await self.machines.start(
                            machine, owner=known.owner, installs=installs, while_off=recorded
                        )
                except ProviderError as error:
                    if isinstance(error, NotReached):
                        self._unreached.add((found.id, run.machine))
                    at_fault = (run.machine,)
                    raise NotMade(str(error), again=Again.LATER, machines=at_fault) from error
            else:
                why = f"machine {run.machine} is not registered any more"
                raise NotMade(why, again=Again.LATER)

    async def _start_dynamic(self, found: RecipeSet, known: KnownLab) -> None:
        """Those that are made for it; a host or a cloud takes its time for each."""
        cluster = cluster_name(known.lab.name, found.id)
        nodes = [run.node for run in found.runs if run.size is not None]
        start = partial(self.start, self._owner_of(known))
        faults = await few_at_once(
            nodes, lambda node: start(f"{cluster}/{node}"), at_once=STARTED_AT_ONCE
        )
        failed = [
            f"{node} does not start: {why}" for node, why in zip(nodes, faults, strict=True) if why
        ]
        if failed:
            raise NotMade("; ".join(failed), again=Again.LATER)

    async def stop(self, found: RecipeSet, known: KnownLab) -> dict[str, str]:
        """Switches the registered machines of a set off, and records their consoles no more.
        Returns why one is not off, by its name.
        """
        try:
            return await self._stop(found, known)
        finally:
            self._unreached -= {(found.id, run.machine) for run in found.runs}
            await self.consoles.end(found)

    async def _stop(self, found: RecipeSet, known: KnownLab) -> dict[str, str]:
        on: dict[str, str] = {}
        for run in found.runs:
            if run.machine in known.machines and (found.id, run.machine) not in self._unreached:
                machine = known.machines[run.machine]
                try:
                    async with self._turn_of(known, machine), self._calls[known.owner]:
                        await self.machines.stop(machine, owner=known.owner)
                except NospoonError as error:
                    log.warning("a machine is not off", machine=run.machine, why=str(error))
                    on[run.machine] = str(error)
        return on

    def console_of(self, found: RecipeSet, number: int, known: KnownLab) -> str:
        """Of a machine that a recipe has: `recorded`, or why its console is not."""
        if found.runs[number].machine:
            return self.consoles.state(found, number, known)
        return "recorded"
