"""What the record of a node says of how far it is, and the verbs that bring it further.

https://docs.openstack.org/ironic/latest/user/states.html.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from nospoon.model.ironic import IronicStanding, Settings, Standing
from nospoon.plan.enrollment.enrol import settings, values
from nospoon.providers.answers import text_of
from nospoon.providers.ironic import records
from nospoon.providers.ironic.drivers import FAILED, fault_of
from nospoon.providers.ironic.records import Operation, Record

FIELDS = (
    "uuid,provision_state,last_error,maintenance,maintenance_reason,inspection_finished_at,fault"
)
READ = (
    *FIELDS.split(","),
    "allocation_uuid", "instance_uuid", "protected", "protected_reason",
)  # fmt: skip
"""What is read of a node beside what nospoon noted and deploys."""
LONGEST_NAME = 255
"""Characters of the name of what is deployed."""
LONGEST_FIELD = 2000
"""Characters of one of `FIELDS`: the last error is the longest."""
STALE = f"/extra/{records.TAG}/stale"
_FAILURES = ("clean failed", "inspect failed", "adopt failed")
VERBS: Mapping[tuple[str, Standing], str] = {
    **{("enroll", to): "manage" for to in Standing if to is not Standing.ENROLL},
    **{(state, to): "manage" for state in _FAILURES for to in Standing},
    ("inspect failed", Standing.INSPECTED): "inspect",
    ("manageable", Standing.INSPECTED): "inspect",
    ("manageable", Standing.AVAILABLE): "provide",
    ("manageable", Standing.ACTIVE): "provide",
    ("available", Standing.MANAGEABLE): "manage",
    ("available", Standing.INSPECTED): "manage",
    ("available", Standing.ACTIVE): "active",
    ("deploy failed", Standing.ACTIVE): "active",
    ("error", Standing.ACTIVE): "deleted",
}
"""(state, where to) -> the verb that brings it nearer. No one moves a node that is in use."""
MOVING = frozenset(
    {
        "verifying", "inspecting", "inspect wait", "cleaning", "clean wait", "adopting",
        "deploying", "wait call-back", "deleting", "rescuing", "rescue wait", "unrescuing",
        "servicing", "service wait",
    }
)  # fmt: skip
IN_USE = frozenset(
    {
        "active", "deploying", "wait call-back", "deploy failed", "error", "rescue", "rescuing",
        "rescue wait", "rescue failed", "unrescuing", "unrescue failed", "deploy hold",
        "servicing", "service wait", "service failed",
    }
)  # fmt: skip
"""States in which someone's instance is on the node, or comes to it."""
_NOT_THERE = frozenset({"deploying", "wait call-back", "deploy failed", "error", "deploy hold"})


def is_ours(record: Record) -> bool:
    """Whether what is on the node, or comes to it, was deployed by us."""
    ours = records.noted(record, "state") == Standing.ACTIVE
    others = record.get("instance_uuid") or record.get("allocation_uuid")
    return ours and not others and record["provision_state"] in IN_USE | MOVING


def is_stale(record: Record) -> bool:
    """Whether what is told to be on a node is not on it."""
    return bool(records.noted(record, "stale"))


def deployed(record: Record) -> Settings:
    """What we told to deploy, of what is still told; nothing while that is not there yet."""
    return () if is_stale(record) else _passed(record)


def differs(record: Record, shape: IronicStanding) -> bool:
    """Whether something else is to be deployed than what is on the node."""
    return is_stale(record) or deployed(record) != shape.settings


def roots(record: Record) -> tuple[str, ...] | None:
    """The volumes on one of which we had the node deployed; None where that is not known."""
    noted = records.noted_texts(record, "roots")
    return tuple(noted) if noted is not None else None


def _passed(record: Record) -> Settings:
    told = record.get("instance_info") or {}
    names = records.noted_texts(record, "instance") or ()
    return settings({name: told[name] for name in names if name in told})


def notes(record: Record, shape: IronicStanding, *, stale: bool) -> list[Operation]:
    """JSON Patch that notes how far the node is to be, and tells what to deploy. `stale`: it has
    something else now, which is to be known also if we end before it is deployed again.
    """
    wanted, there = values(shape.settings), record.get("instance_info") or {}
    tag = f"/extra/{records.TAG}"
    gone = [each.name for each in _passed(record) if each.name not in wanted]
    return [
        {"op": "add", "path": f"{tag}/state", "value": shape.state},
        {"op": "add", "path": f"{tag}/instance", "value": sorted(wanted)},
        {"op": "add", "path": f"{tag}/roots", "value": shape.roots},
        {"op": "add", "path": STALE, "value": stale},
        *({"op": "remove", "path": f"/instance_info/{name}"} for name in gone),
        *(
            {"op": "add", "path": f"/instance_info/{name}", "value": value}
            for name, value in wanted.items()
            if there.get(name) != value
        ),
    ]


def reached(record: Record, wanted: str) -> bool:
    """Whether a node is as far as wanted, or on its way back to someone's instance."""
    state = text_of(record["provision_state"])
    in_use = state in IN_USE or state == "deleting"
    match wanted:
        case Standing.ENROLL:
            return True
        case Standing.MANAGEABLE:
            return state == "manageable" or in_use
        case Standing.ACTIVE:
            return in_use and state not in _NOT_THERE and state != "deleting"
        case Standing.INSPECTED:
            inspected = bool(record.get("inspection_finished_at"))
            return (state == "manageable" and inspected) or in_use
        case _:
            return state == "available" or in_use


def use_of(record: Record) -> str:
    """Who uses a node, "" where no one does."""
    if record.get("allocation_uuid"):  # whose UUID Ironic gives the instance, too
        return f"it has the allocation {text_of(record['allocation_uuid'])}"
    if record.get("instance_uuid"):
        return f"it has the instance {text_of(record['instance_uuid'])}"
    if record["provision_state"] in IN_USE:
        return f"it is {text_of(record['provision_state'])}"
    return ""


def why_of(record: Record) -> str:
    """Why a node is not where it is to be."""
    return text_of(record.get("last_error") or fault_of(record) or "Ironic gives no reason")


def last_failure(history: Sequence[Record]) -> str:
    """What failed last in a node's history (oldest first, as Ironic lists it), "" for nothing.
    What watches the power fails by itself, and does not bring a node into a state.
    """
    for event in reversed(history):
        if event["severity"] == "ERROR" and event["event_type"] != "monitoring":
            return text_of(event["event"])[:LONGEST_FIELD]
    return ""


def kept(wanted: Settings, record: Record) -> Record:
    """What is read of a node that is brought somewhere: hundreds are, each for an hour. Of what is
    deployed there, nothing is kept that differs from what is wanted, but that it does.
    """
    noted, deploys = partial(records.noted, record), record.get("instance_info") or {}
    known, roots = (
        [each[:LONGEST_NAME] for each in records.noted_texts(record, what) or ()]
        for what in ("instance", "roots")
    )
    own = values(wanted)
    names = {*own, *known}
    there = settings({name: deploys[name] for name in names if name in deploys})
    return {
        **said_of(record, READ),
        "extra": {
            records.TAG: {
                "state": text_of(noted("state") or ""),
                "stale": bool(noted("stale")),
                "instance": known,
                "roots": roots if noted("roots") is not None else None,
            }
        },
        "instance_info": {
            each.name: own[each.name] if each in wanted else records.OTHER for each in there
        },
    }


def is_silent(record: Record) -> bool:
    """Whether it failed, and does not say why."""
    failed = text_of(record["provision_state"]).endswith(FAILED)
    return failed and not record.get("last_error")


def said_of(record: Record, names: Sequence[str] = FIELDS.split(",")) -> Record:
    said = {name: record.get(name) for name in names}
    return {
        name: value if value is None or isinstance(value, bool) else text_of(value)[:LONGEST_FIELD]
        for name, value in said.items()
    }
