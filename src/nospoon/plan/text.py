"""A plan as text."""

from __future__ import annotations

from collections.abc import Iterator

from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Observed, is_adopted
from nospoon.model.rest.plans import Remembered
from nospoon.plan.order.steps import Action, Plan, Step
from nospoon.plan.stored_roots import stores_root
from nospoon.plan.words import HIDDEN, describe


def plan_text(plan: Plan) -> str:
    """What would happen and why, a line a resource, for people."""
    lines = [f"Plan for cluster {plan.cluster} ({plan.cluster_id})", ""]
    for step in (*plan.steps, *plan.later):
        lines += _step_lines(step)
    lines += [_remembered_line(each) for each in plan.remembered]
    if plan.empty and plan.remembered:
        lines += ["", "Nothing to create; the changes of the file are stored."]
    elif plan.empty and plan.starts:
        nodes = _few(plan)
        lines.append(f"Nothing to create. Nodes of an `up` that did not end are started: {nodes}")
    elif plan.empty and plan.remembers:
        lines.append("Nothing to create: everything is as configured. The file's text is stored.")
    elif plan.empty:
        lines.append("Nothing to do: everything is as configured.")
    else:
        lines += ["", summary(plan)]
    lines += [f"Note: {note}" for note in plan.notes]
    return "\n".join(lines)


def _few(plan: Plan) -> str:
    return ", ".join((*plan.starts[:5], *("…" for _ in plan.starts[5:6])))


def summary(plan: Plan) -> str:
    """'3 to create, 1 to change, 0 to replace, 0 to delete; 4 unchanged.'."""
    parts = ", ".join(f"{count} to {verb}" for verb, count in plan.counts.items())
    return f"{parts}; {plan.unchanged} unchanged."


def _step_lines(step: Step) -> Iterator[str]:
    late = " (at power-off)" if step.at_power_off else ""
    shape = step.desired.shape if step.desired is not None else None
    about = f"  {describe(shape)}" if shape is not None and step.action is Action.CREATE else ""
    others = step.desired.alternatives if step.desired is not None and about else ()
    about += "".join(f"; else {each.words}" for each in others)
    why = "; ".join(_whys(step))
    what = f"{step.key.kind} {step.key.name} {_where(step)}"
    late += f" ({step.verb})" if step.verb != step.action else ""
    yield f"{step.action.sign:>3}{late} {what}{about}" + (f"  ({why})" if why else "")
    for change in step.changes:
        secret = change.desired == HIDDEN
        what = "changed" if secret else f"{change.observed} -> {change.desired}"
        yield f"        {change.field}: {what}  [{change.rule}]"


def _remembered_line(each: Remembered) -> str:
    change = f": {each.before} -> {each.after}" if each.sign == "~" else ""
    return f"{each.sign:>3} {each.what}{change}  [{each.rule}]"


def _where(step: Step) -> str:
    host = step.key.place
    return f"moves from {step.moves_from} to {host}" if step.moves_from else f"on {host}"


def _whys(step: Step) -> Iterator[str]:
    why = step.why.removeprefix("missing").removeprefix("; ")
    if why:
        yield why
    if step.action in {Action.REPLACE, Action.DELETE} and step.observed is not None:
        yield from _losses(step, step.observed)


def _losses(step: Step, observed: Observed) -> Iterator[str]:
    if step.key.kind is Kind.MACHINE and is_adopted(observed.shape):
        yield "it is left to its owner as it is"
    elif step.key.kind is Kind.MACHINE and observed.running:
        yield "it runs, and is powered off"
    if step.action is Action.REPLACE:
        yield from _lost_disks(step, observed)
    if step.key.kind is Kind.VOLUME and step.action is Action.REPLACE:
        yield "what is on it is lost"


def _lost_disks(step: Step, observed: Observed) -> Iterator[str]:
    """Of a machine with disks that go with it, and are no volumes of a pool."""
    shape = observed.shape
    disks = [disk for disk in shape.disks if disk.size] if isinstance(shape, Machine) else []
    if stores_root(step):
        yield from ["what is on its other disks is lost"] if disks[1:] else []
    elif disks:
        yield "what is on its disks is lost"
