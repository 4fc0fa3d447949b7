"""What moves from host to host, and why what is left behind is.

A node that another host is to have is made again there: its machine, its BMC and its disks, whose
content stays behind and is lost. `plan.order.order` says in which order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from nospoon.model.names import natural
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Observed
from nospoon.plan.order.kinds import KINDS
from nospoon.plan.order.steps import Action, Step


def moved(
    steps: Iterable[Step], gone: Iterable[Observed], reasons: Mapping[Key, str]
) -> tuple[list[Step], list[Observed]]:
    """Creations of what is there on another host become moves; what remains of both.

    `reasons`: why things are where they are to be.
    """
    left = {each.key: each for each in gone}
    elsewhere = {(key.kind, key.name): each for key, each in left.items() if KINDS[key.kind].moves}
    result: list[Step] = []
    for step in steps:
        observed = elsewhere.get((step.key.kind, step.key.name))
        if observed is not None and step.action is Action.CREATE:
            del left[observed.key]
            result.append(_move(step, observed, reasons.get(step.key, "")))
        else:
            result.append(step)
    return result, list(left.values())


def _move(step: Step, observed: Observed, reason: str) -> Step:
    return replace(step, action=Action.REPLACE, why=reason, observed=observed)


def deletions(gone: Iterable[Observed], desired: Iterable[Key]) -> list[Step]:
    """Steps for what no one desires any more where it is."""
    listed = sorted(gone, key=lambda each: reading_order(each.key))
    now = {(key.kind, key.name): key.place for key in desired} if listed else {}
    return [
        Step(Action.DELETE, each.key, _why_gone(each.key, now), observed=each) for each in listed
    ]


def reading_order(key: Key) -> tuple[Kind, tuple[str | int, ...], tuple[str | int, ...]]:
    """A key for `sorted`: by kind, host and name, node-2 before node-10."""
    return key.kind, natural(key.place), natural(key.name)


def _why_gone(key: Key, now: Mapping[tuple[Kind, str], str]) -> str:
    host = now.get((key.kind, key.name))
    if host is None:
        return "not in the file any more"
    if KINDS[key.kind].moves:
        return f"is on {host} now"
    return f"nothing on {key.place} needs it any more"
