"""Labs, sets and leases as rows for clients, without passwords and secrets; times in RFC 3339."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from nospoon.control.labs.access import KnownLab
from nospoon.control.labs.board import Board
from nospoon.control.labs.consoles import why_none
from nospoon.lab.assign import ENDLESS
from nospoon.lab.effects import Happened
from nospoon.lab.times import utc
from nospoon.lab.work import HOLDING, RecipeSet, SetState
from nospoon.model.lab import GIB, Registered
from nospoon.model.rest.labs import (
    FreeCapacity,
    LabDetails,
    LabLimits,
    LabSummary,
    LeaseStatus,
    MachineStatus,
    OfferedFlavor,
    SetDetails,
    SetEvent,
    SetSummary,
)
from nospoon.store.labs import Noted

MIB = 1 << 20


def lab_row(board: Board, known: KnownLab) -> LabSummary:
    lab, key = known.lab, known.key
    out = board.out(key)
    return LabSummary(
        lab=known.shown,
        host=lab.host if lab.dynamic else "",
        state="drained" if key in board.scheduler.drained else "open",
        dynamic=sum(run.size is not None for each in out for run in each.runs),
        limit=lab.limits.machines,
        registered=len(lab.machines),
        loaned=sum(bool(run.machine) for each in out for run in each.runs),
        broken=sum(bool(board.scheduler.state_of(key, m.name).broken) for m in lab.machines),
        queued=board.scheduler.queued_in(key),
    )


def lab_details(board: Board, known: KnownLab, machines: Sequence[MachineStatus]) -> LabDetails:
    lab, free = known.lab, board.scheduler.free(known.key)
    return LabDetails(
        **asdict(lab_row(board, known)),
        flavors=[
            OfferedFlavor(each.name, each.cpus, each.memory // MIB, each.disk // GIB)
            for each in (lab.flavors if lab.dynamic else ())
        ],
        disks=str(lab.disks),
        prefer=str(lab.prefer),
        lease_seconds=lab.lease,
        limits=LabLimits(
            machines=lab.limits.machines,
            cpus=lab.limits.cpus,
            memory_mib=lab.limits.memory // MIB,
            per_owner=lab.limits.per_owner,
        ),
        free=FreeCapacity(
            machines=_free(free.machines),
            cpus=_free(free.cpus),
            memory_mib=None if free.memory > ENDLESS // 2 else free.memory // MIB,
        ),
        distros=[each.name for each in lab.distros],
        users=list(lab.users),
        operators=list(lab.operators),
        machines=machines,
    )


def _free(amount: int) -> int | None:
    """None: no limit."""
    return None if amount > ENDLESS // 2 else amount


def machine_row(board: Board, known: KnownLab, machine: Registered) -> MachineStatus:
    name = machine.name
    state = board.scheduler.state_of(known.key, name)
    found = state.found
    holder = board.scheduler.holder(known.key, name)
    shown = "loaned" if holder else "broken" if state.broken else ""
    if (known.key, name) in board.scheduler.probed:
        shown = "probed"
    return MachineStatus(
        machine=name,
        state=shown or ("reserved" if state.reserved else "idle"),
        set=holder,
        reserved=state.reserved,
        broken=state.broken,
        failures=state.failures,
        arch=machine.arch,
        cpus=machine.cpus,
        memory_mib=machine.memory,
        disks_gib=[each // GIB for each in machine.disks],
        macs=list(machine.macs),
        inventory=_time(found.at) if found is not None and found.bmc == machine.bmc else None,
        bmc=machine.bmc,
        console=_console(board, known, name) if holder else why_none(machine),
    )


def _console(board: Board, known: KnownLab, machine: str) -> str:
    """Why the console of a loaned machine is not recorded, "" where it is."""
    found = board.scheduler.sets[board.scheduler.holder(known.key, machine)]
    number = next(n for n, run in enumerate(found.runs) if run.machine == machine)
    return board.console_of(found, number).removeprefix("recorded").removeprefix("not recorded: ")


def set_row(board: Board, found: RecipeSet, request: int, place: int | None) -> SetSummary:
    known = board.known.get(found.lab)
    return SetSummary(
        request=request,
        set=found.id,
        owner=found.owner,
        state=str(found.state),
        lab=known.shown if known is not None else "",
        recipes=len(found.runs),
        priority=found.priority,
        position=place,
        reason=_reason(board, found),
        result=found.result,
        submitted=_time(found.submitted),
        expires=_time(max((run.expires for run in found.runs if not run.over), default=0)),
        whiteboard=found.whiteboard,
    )


def _reason(board: Board, found: RecipeSet) -> str:
    if found.state is SetState.QUEUED and found.id in board.scheduler.sets:
        return board.scheduler.reason(found.id) or found.why
    trouble = board.trouble(found.id)
    return f"not removed yet: {trouble}" if trouble else found.why


def set_details(
    board: Board, found: RecipeSet, request: int, place: int | None, history: Sequence[Noted]
) -> SetDetails:
    return SetDetails(
        **asdict(set_row(board, found, request, place)),
        attempts=found.attempts,
        leases=[lease_row(board, found, number) for number in range(len(found.runs))],
        history=[event_row(each) for each in history],
    )


def lease_row(board: Board, found: RecipeSet, number: int) -> LeaseStatus:
    run = found.runs[number]
    return LeaseStatus(
        lease=f"{found.id}.{number}",
        recipe=run.asked.path,
        role=run.asked.role,
        stage=str(run.stage),
        flavor=run.size.flavor if run.size is not None else "",
        machine=run.machine,
        node=run.node,
        distro=run.asked.distro,
        since=_time(run.since),
        expires=_time(run.expires) if found.state in HOLDING and not run.over else None,
        console=board.console_of(found, number),
        panic=run.panic,
        why=run.why,
    )


def event_row(event: Noted) -> SetEvent:
    at, recipe, name, message = event
    return SetEvent(
        at=_time(at),
        recipe=recipe if recipe >= 0 else None,
        event=name,
        message=message,
    )


def notice(known: KnownLab, found: RecipeSet, event: Happened, at: float) -> dict[str, object]:
    """An event as webhooks send it."""
    lease = f"{found.id}.{event.recipe}" if event.recipe >= 0 else None
    return {
        "at": _time(at), "lab": known.shown, "set": found.id, "lease": lease,
        "event": event.event, "message": event.message, "state": str(found.state),
        "owner": found.owner, "whiteboard": found.whiteboard,
    }  # fmt: skip


def _time(unix: float) -> str | None:
    return utc(unix) if unix else None
