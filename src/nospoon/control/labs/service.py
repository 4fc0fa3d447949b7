"""Use cases of labs, for one caller at a time: each sees what is of them, and no more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Protocol
from uuid import uuid4

import msgspec

from nospoon.control.labs import views
from nospoon.control.labs.access import (
    KnownLab,
    People,
    Person,
    find,
    require_operator,
    trusted,
)
from nospoon.control.labs.bmcs import HOW_TO_REACH, why_beyond
from nospoon.control.labs.board import Board
from nospoon.control.labs.consoles import RegisteredConsoles, record_of, why_none
from nospoon.control.labs.inventory import Inventories
from nospoon.control.labs.metrics import metrics
from nospoon.control.labs.requests import Judged, checked, judge, narrowed
from nospoon.control.operations.operations import Operations
from nospoon.errors import Forbidden, NotFound, PlanRefused, UsageError
from nospoon.lab.asked import NORMAL, PRIORITIES
from nospoon.lab.effects import Effect
from nospoon.lab.provision import cluster_name
from nospoon.lab.work import HOLDING, UNLEASED, RecipeSet, SetState
from nospoon.model.lab import Registered
from nospoon.model.machine import PowerCommand
from nospoon.model.principal import Principal
from nospoon.model.rest.labs import (
    LabDetails,
    LabSummary,
    LeasePower,
    LeaseStatus,
    MachineStatus,
    RefusedFlavor,
    SetDetails,
)
from nospoon.runtime.clock import Clock
from nospoon.runtime.turns import Turns
from nospoon.runtime.workers import Workers
from nospoon.services.consoles.service import ConsoleService
from nospoon.store.operations import OperationRow

MOST_LISTED, MOST_OWNER, MOST_REFUSED = 1000, 64, 1000
"""Sets of a list, characters of an owner (what every store takes), and reasons of a refusal."""
MOST_LEASES = 50_000
"""Of a list, which says nothing of more: a scheduler would take them for ended."""
MOST_PLACES = 32
"""Sets whose places are looked up one by one: beyond that, the queue is gone through once."""
NORMAL_PRIORITY = PRIORITIES[NORMAL]
"""The highest of users who are no operators: others would wait for theirs."""
encode = msgspec.json.encode
MOST_SECONDS = 99 * 86400.0


@dataclass(frozen=True, slots=True)
class Submission:
    """What a client submits. `owner`: who gets the machines, "" for the caller. `lab`: "" for any
    that fits. `key`: a second submission under it is the first. `file`: its name, for messages.
    `flavor`: the only one that may be taken, "" for any.
    """

    data: bytes
    file: str = "request"
    lab: str = ""
    owner: str = ""
    key: str = ""
    flavor: str = ""


class ConsoleOfNode(Protocol):
    """The console log of a user's node."""

    async def __call__(
        self, caller: Principal, reference: str, *, follow: bool
    ) -> AsyncIterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class Labs:
    """All parts are handed in by the composition root."""

    board: Board
    people: People
    workers: Workers
    clock: Clock
    consoles: ConsoleService
    registered: RegisteredConsoles
    console_of_node: ConsoleOfNode
    inventories: Inventories
    operations: Operations
    lists: Turns = field(default_factory=Turns)
    """Of one user one list of sets is made at a time: it is read from the store."""

    async def rows(self, caller: Principal) -> list[LabSummary]:
        """A row a lab that the caller may use."""
        person = await self.people.of(caller)
        seen = [each for each in self.board.known.values() if person.may_use(each)]
        turn, rows = self.board.slices.begin(caller.uid), []
        for each in sorted(seen, key=lambda known: known.shown):
            await turn.rest()
            if each.key in self.board.known:  # it may be gone meanwhile
                rows.append(views.lab_row(self.board, each))
        return rows

    async def show(self, caller: Principal, name: str) -> LabDetails:
        """All of one lab but passwords, with its machines and what waits for it."""
        known, _ = await self._lab(caller, name)
        turn, machines = self.board.slices.begin(caller.uid), []
        for each in known.lab.machines:
            await turn.rest()
            machines.append(self._machine_row(known, each))
        if known.key not in self.board.known:  # it went meanwhile
            raise NotFound(f"there is no lab {known.shown} any more")
        return views.lab_details(self.board, known, machines)

    async def refusals(self, caller: Principal, name: str) -> list[RefusedFlavor]:
        """A row for each flavor of which no machine can be made now, and why; none for those who
        are not operators: the reasons are about the owner's hosts.
        """
        known, person = await self._lab(caller, name)
        if not person.may_operate(known):
            return []
        async with self.lists.of("refusals", str(caller.uid)):
            refused = await self.board.refusals(known)
        return [RefusedFlavor(flavor, why) for flavor, why in refused.items()]

    async def drain(self, caller: Principal, name: str, *, drained: bool) -> LabSummary:
        """Start nothing there any more; what is leased stays."""
        known, person = await self._lab(caller, name)
        require_operator(person, known)
        await self.board.drain(known, drained=drained)
        return views.lab_row(self.board, known)

    async def set_machine(
        self, caller: Principal, lab: str, machine: str, *, broken: str | None, reserved: str | None
    ) -> MachineStatus:
        """What only people know of a registered machine; None: unchanged, "": not any more."""
        known, person = await self._lab(caller, lab)
        if machine not in known.machines:
            raise NotFound(f"lab {known.shown} has no machine {machine!r}")
        state = self.board.scheduler.state_of(known.key, machine)
        if broken is not None:
            require_operator(person, known)
        scheduler = self.board.scheduler

        def change() -> Sequence[Effect]:
            if broken is not None:
                scheduler.set_broken(known.key, machine, broken)
            if reserved is not None:
                self._require_free(known, machine, person, reserved, state.reserved)
                scheduler.reserve(known.key, machine, reserved)
            scheduler.undecided = True
            return []

        await self.board.do(change)
        return self._machine_row(known, known.machines[machine])

    def _machine_row(self, known: KnownLab, machine: Registered) -> MachineStatus:
        beyond = why_beyond(machine, self.registered.reach)
        row = views.machine_row(self.board, known, machine)
        return replace(row, beyond=f"it is {beyond}. {HOW_TO_REACH}" if beyond else "")

    async def inventory(
        self,
        caller: Principal,
        lab: str,
        machine: str,
        *,
        timeout: float,  # noqa: ASYNC109
    ) -> OperationRow:
        """Begin to boot the probe on a registered machine, whose attributes its report becomes."""
        known, person = await self._lab(caller, lab)
        require_operator(person, known)
        if machine not in known.machines:
            raise NotFound(f"lab {known.shown} has no machine {machine!r}")
        self.inventories.require_free(known.key, machine)
        return await self.operations.start(
            "inventory",
            cluster_id=uuid4(),  # it holds up no cluster
            cluster=known.cluster,
            owner=caller.uid,
            work=lambda running: self.inventories.take(running, known.key, machine, limit=timeout),
        )

    def _require_free(
        self, known: KnownLab, machine: str, person: Person, wanted: str, before: str
    ) -> None:
        if before and before != person.name:
            require_operator(person, known)
        if wanted and wanted != person.name:
            require_operator(person, known)
        limit, has = known.lab.limits.per_owner, self.board.scheduler.has(known.key, person.name)
        if wanted and wanted != before and not person.may_operate(known) and has >= limit:
            raise Forbidden(
                f"you have {has} machines of lab {known.shown}, and may have {limit}",
                hint="Users may reserve as many machines as `limits.per_owner` of the lab says, "
                "and its operators any.",
            )
        holder = self.board.scheduler.holder(known.key, machine)
        if wanted and holder:
            raise UsageError(f"recipe set {holder} has machine {machine}")

    async def check(self, caller: Principal, submission: Submission) -> bytes:
        """A dry run: JSON with a row for each recipe and lab."""
        judged, _ = await self._judged(caller, submission)
        return await self.workers.run(caller.uid, lambda: _listed(map(encode, checked(judged))))

    async def submit(self, caller: Principal, submission: Submission) -> bytes:
        """Its sets wait from now on; JSON with a record of each. Raises `PlanRefused` with why a
        set can never start.
        """
        if key := submission.key:  # whatever its lab is by now
            before = await self.board.submitted(caller.uid, key)
            if before:
                return await self._details_of([each.id for each in before], caller)
        judged, person = await self._judged(caller, submission)
        owner = (submission.owner or person.name or str(caller.uid))[:MOST_OWNER]
        if not owner.isprintable():
            raise UsageError("owner: expected printable characters")
        labs = [
            self.board.known[key]
            for key in sorted({key for each in judged for key in each.labs})
            if key in self.board.known
        ]
        if owner != (person.name or str(caller.uid))[:MOST_OWNER]:
            for each in labs:
                require_operator(person, each)
        most = max(PRIORITIES.values()) if all(map(person.may_operate, labs)) else NORMAL_PRIORITY
        reasons = [reason for each in judged for reason in _reasons(submission.file, each)]
        if reasons:
            more = len(reasons) - MOST_REFUSED
            raise PlanRefused(
                reasons if more <= 0 else [*reasons[:MOST_REFUSED], f"{more} more reasons"]
            )
        sets = [
            RecipeSet(
                id="", number=0, submitter=caller.uid, owner=owner, runs=each.runs, labs=each.labs,
                priority=min(each.asked.priority, most), whiteboard=each.asked.whiteboard,
            )
            for each in judged
        ]  # fmt: skip
        made = await self.board.submit(sets, submission.key)
        return await self._details_of([each.id for each in made], caller)

    async def requests(self, caller: Principal, *, everyone: bool = False) -> bytes:
        """JSON with the sets that the caller submitted or owns, newest last; of those who operate a
        lab, all of it with `everyone`.
        """
        async with self.lists.of(str(caller.uid)):
            return await self._requests(await self.people.of(caller), everyone=everyone)

    async def _requests(self, person: Person, *, everyone: bool) -> bytes:
        uid, lists = person.caller.uid, self.board.lists
        if everyone:
            rows = await lists.rows(MOST_LISTED, lambda found: self._may_see(person, found))
        else:
            rows = await lists.rows(
                MOST_LISTED, lambda found: found.submitter == uid, submitter=uid
            )
            if person.name:  # apart: any user may submit for any owner in a lab of his own
                rows += await lists.rows(
                    MOST_LISTED,
                    lambda found: found.submitter != uid and person.is_owner(found),
                    owner=person.name,
                )
                rows.sort(key=lambda row: row[0].number)
        places, turn, parts = await lists.places(), self.board.slices.begin(uid), []
        for found, request in rows:
            await turn.rest()
            parts.append(encode(views.set_row(self.board, found, request, places.get(found.id))))
        return _listed(parts)

    async def leases(self, caller: Principal, *, everyone: bool = False) -> bytes:
        """JSON with the leases of the sets that the caller submitted or owns and that have machines
        now, in the order of their sets; of those who operate a lab, all of it with `everyone`.
        """
        person = await self.people.of(caller)
        async with self.lists.of(str(caller.uid)):
            turn, parts = self.board.slices.begin(caller.uid), list[bytes]()
            for found in list(self.board.scheduler.sets.values()):
                await turn.rest()
                if found.state not in HOLDING or len(parts) >= MOST_LEASES:
                    continue
                own = found.submitter == caller.uid or person.is_owner(found)
                if own or (everyone and self._may_see(person, found)):
                    numbers = range(len(found.runs))
                    parts += (encode(views.lease_row(self.board, found, n)) for n in numbers)
        return _listed(parts)

    async def request(self, caller: Principal, set_id: str) -> SetDetails:
        """All of one set: its recipes, leases and history."""
        await self._own(caller, set_id)
        return await self._details(set_id)

    async def follow(
        self, caller: Principal, set_id: str, after: int
    ) -> AsyncIterator[dict[str, object]]:
        """Its events, until it has ended."""
        await self._own(caller, set_id)
        return self._follow(set_id, after)

    async def _follow(self, set_id: str, after: int) -> AsyncIterator[dict[str, object]]:
        async for number, event in self.board.follow(set_id, after):
            yield {"seq": number, **asdict(views.event_row(event))}
        known = await self.board.find(set_id)
        if known is not None:
            yield {"state": known[0].state, "result": known[0].result, "message": known[0].why}

    async def cancel(self, caller: Principal, set_id: str) -> SetDetails:
        """What it has is removed."""
        await self._own(caller, set_id)
        scheduler, now = self.board.scheduler, self.clock()
        await self.board.do(lambda: scheduler.cancel(set_id, "cancelled", now))
        return await self._details(set_id)

    async def release(self, caller: Principal, set_id: str, recipe: int | None) -> SetDetails:
        """A lease is over, or all of a set."""
        found = await self._own(caller, set_id)
        _require_recipe(found, recipe)
        scheduler, now = self.board.scheduler, self.clock()
        await self.board.do(lambda: scheduler.release(set_id, recipe, now))
        return await self._details(set_id)

    async def extend(
        self, caller: Principal, set_id: str, recipe: int | None, seconds: float, *, add: bool
    ) -> SetDetails:
        """Leases end so many seconds from now, or later by them."""
        found = await self._own(caller, set_id)
        _require_recipe(found, recipe)
        if found.over:
            raise UsageError(f"recipe set {set_id} has ended: {found.result}")
        scheduler, now = self.board.scheduler, self.clock()
        ends = [
            now + scheduler.seconds_of(found, run) if run.stage in UNLEASED else run.expires
            for run in found.runs
        ]
        latest = max(now, *ends) if add else now
        if seconds < 0 or latest + seconds > now + MOST_SECONDS:
            raise UsageError(f"a lease ends within {MOST_SECONDS / 86400:.0f} days from now")
        await self.board.do(lambda: scheduler.extend(set_id, seconds, now, add=add, recipe=recipe))
        return await self._details(set_id)

    async def power(
        self, caller: Principal, set_id: str, recipe: int, command: PowerCommand
    ) -> LeasePower:
        """A chassis command for a leased machine."""
        found = await self._own(caller, set_id)
        _require_recipe(found, recipe)
        result = await self.board.switch(found, recipe, command)
        return LeasePower(f"{set_id}.{recipe}", result)

    async def node_of(self, caller: Principal, set_id: str, recipe: int) -> tuple[Principal, str]:
        """(its owner, CLUSTER/NODE) of a recipe's dynamic machine, also of one that is gone.
        Raises `NotFound` for a recipe without one.
        """
        found = await self._own(caller, set_id)
        _require_recipe(found, recipe)
        run, known = found.runs[recipe], self.board.known.get(found.lab)
        if found.state is SetState.QUEUED:
            raise NotFound(f"lease {set_id}.{recipe} has no machine so far: its set is queued")
        if not run.node or known is None:
            raise NotFound(f"recipe {set_id}.{recipe} has no dynamic machine")
        owner = self.people.admins.principal(known.owner)
        return owner, f"{cluster_name(known.lab.name, set_id)}/{run.node}"

    async def console(
        self, caller: Principal, set_id: str, recipe: int, *, follow: bool
    ) -> AsyncIterator[bytes]:
        """The console log of a recipe's machine, also of one that is given back. Raises `NotFound`
        for none.
        """
        found = await self._own(caller, set_id)
        _require_recipe(found, recipe)
        if not found.runs[recipe].machine:
            owner, node = await self.node_of(caller, set_id, recipe)
            return await self.console_of_node(owner, node, follow=follow)
        record = record_of(found, recipe)
        if not await self.consoles.has(record, user=caller.uid):
            machine = self.board.labs.known_of(found).machines.get(found.runs[recipe].machine)
            why = why_none(machine) if machine is not None else ""
            raise NotFound(f"recipe {set_id}.{recipe} has no console log{why and f': {why}'}")
        follow = follow and self.registered.is_growing(record)
        return self.consoles.read(record, follow=follow, user=caller.uid)

    def passwords(self, caller: Principal) -> Sequence[str]:
        """Of BMCs and webhooks in the caller's labs: no bundle shows them."""
        own = [each.lab for each in self.board.known.values() if each.owner == caller.uid]
        machines = [machine.password for lab in own for machine in lab.machines]
        return [*filter(None, machines), *(hook.secret for lab in own for hook in lab.webhooks)]

    async def lease(self, caller: Principal, set_id: str, recipe: int) -> LeaseStatus:
        """One of its leases."""
        found = await self._own(caller, set_id)
        _require_recipe(found, recipe)
        return views.lease_row(self.board, found, recipe)

    async def metrics(self, caller: Principal) -> str:
        """For Prometheus (exposition format 0.0.4). They name labs of all: for administrators."""
        if not caller.admin:
            raise Forbidden("metrics are for administrators of the daemon")
        turn, lines = self.board.slices.begin(caller.uid), []
        for line in metrics(self.board):
            lines.append(f"{line}\n")
            await turn.rest()
        return "".join(lines)

    async def _details(self, set_id: str) -> SetDetails:
        known = await self.board.find(set_id)
        if known is None:
            raise NotFound(f"no recipe set {set_id!r}")
        found, request, history = known
        place = await self.board.lists.place(set_id)
        return views.set_details(self.board, found, request, place, history)

    async def _details_of(self, ids: Sequence[str], caller: Principal) -> bytes:
        turn, parts = self.board.slices.begin(caller.uid), list[bytes]()
        places = await self.board.lists.places() if len(ids) > MOST_PLACES else {}
        for set_id in ids:
            known = await self.board.find(set_id)
            if known is None:
                continue
            found, request, history = known
            await turn.rest()
            place = places.get(set_id) if places else await self.board.lists.place(set_id)
            parts.append(encode(views.set_details(self.board, found, request, place, history)))
        return _listed(parts)

    async def _own(self, caller: Principal, set_id: str) -> RecipeSet:
        person = await self.people.of(caller)
        known = await self.board.find(set_id)
        if known is None or not self._may_see(person, known[0]):
            raise NotFound(f"no recipe set {set_id!r}")
        return known[0]

    def _may_see(self, person: Person, found: RecipeSet) -> bool:
        if person.caller.owns(found.submitter) or person.is_owner(found):
            return True
        keys = (found.lab,) if found.lab else found.labs
        labs = [self.board.known[key] for key in keys if key in self.board.known]
        return len(labs) == len(keys) and all(map(person.may_operate, labs))

    async def _lab(self, caller: Principal, name: str) -> tuple[KnownLab, Person]:
        person = await self.people.of(caller)
        return self._find(person, name), person

    def _find(self, person: Person, name: str) -> KnownLab:
        return find(list(self.board.known.values()), person, name, admins=self.people.admins)

    async def _judged(
        self, caller: Principal, submission: Submission
    ) -> tuple[Sequence[Judged], Person]:
        person = await self.people.of(caller)
        if submission.lab:
            labs = [self._find(person, submission.lab)]
        else:
            labs = trusted(self.board.known.values(), person, self.people.admins)
        if not labs:
            raise Forbidden(
                "there is no lab of yours, and none of an administrator that you may use",
                hint="Bring up a file with `labs:`, or name a lab of another user (`--lab`). "
                "`nospoon request check --flavors FILE` needs none.",
            )
        labs = narrowed(labs, submission.flavor)
        labs.sort(key=lambda each: (each.owner != caller.uid, each.shown))
        found = await self.workers.run(
            caller.uid, lambda: judge(submission.data, labs, file=submission.file)
        )
        return found, person


def _listed(parts: Iterable[bytes]) -> bytes:
    """A list in JSON of what is encoded already: others run between its entries."""
    return b"[" + b",".join(parts) + b"]"


def _reasons(file: str, judged: Judged) -> list[str]:
    if judged.labs:
        return []
    reasons = [f"{file}:{judged.asked.line}: {judged.asked.path}: {judged.why}"]
    for answers in judged.answers:
        for each in answers:
            reasons += [
                f"{file}:{why.at.line}:{why.at.column}: {why.at.path}: lab {each.lab.shown}: "
                f"{why.why}"
                for why in each.reasons
            ]
    return reasons


def _require_recipe(found: RecipeSet, recipe: int | None) -> None:
    if recipe is not None and not 0 <= recipe < len(found.runs):
        raise NotFound(f"recipe set {found.id} has no recipe {recipe}: it has {len(found.runs)}")
