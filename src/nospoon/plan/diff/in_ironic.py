"""What a plan's steps mean for nodes that Ironic has deployed, or that someone else uses there:
what is lost with them, and what `up` will refuse.

A deployed node whose image differs is deployed again, which rewrites its disk: a replacement
(`blank.redeployed`). Here the other steps are described.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from nospoon.model.ironic import Held, IronicNode, IronicPort, IronicStanding, Standing
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.plan.enrollment.enrol import values
from nospoon.plan.order.kinds import KINDS
from nospoon.plan.order.steps import Action, Step

Found = Mapping[Key, Observed]
UNDEPLOYS = "it is undeployed, and what is on its disks is lost"
REFUSED = "it is in use in Ironic: `up` refuses this until it is undeployed there"


KEPT = "it is in use in Ironic: `down` refuses this without --force"
PROTECTED = "it is protected in Ironic, which refuses this even with --force until that is ended"


def told(steps: Iterable[Step], *, refused: str = REFUSED) -> list[Step]:
    """The same steps; those that undeploy a node, that will be `refused`, or that Ironic refuses of
    protected nodes, say so.
    """
    standing = Kind.IRONIC_STANDING
    return [_told(step, refused) if step.key.kind is standing else step for step in steps]


def _told(step: Step, what: str) -> Step:
    if step.observed is None:
        return step
    here, there = _shape(step.observed).state, None
    if step.desired is not None:
        there = _shape(step.desired).state
    if _shape(step.observed).protected and _is_undeployed(step):
        return _saying(step, PROTECTED)
    if step.observed.running:
        refused = step.action is Action.DELETE or (step.changes and here != there)
        return _saying(step, what) if refused or there == Standing.ACTIVE else step
    return _saying(step, UNDEPLOYS) if here == Standing.ACTIVE != there else step


def _is_undeployed(step: Step) -> bool:
    """Whether the node is undeployed, rebuilt or deleted: what Ironic refuses of protected ones
    (api-ref, "Node protection").
    """
    if step.desired is None or step.action is Action.REPLACE:
        return True
    return _shape(step.desired).state != Standing.ACTIVE


def _saying(step: Step, what: str) -> Step:
    return replace(step, why=f"{step.why}; {what}" if step.why else what)


def undeployed(steps: Iterable[Step]) -> list[str]:
    """Names of the nodes that leave, and that nospoon deployed: an `up` has to be forced to."""
    return sorted(
        step.node
        for step in steps
        if step.key.kind is Kind.IRONIC_STANDING
        and step.action is Action.DELETE
        and step.observed is not None
        and not step.observed.running
        and _shape(step.observed).state == Standing.ACTIVE
    )


def firmware_changes(steps: Iterable[Step], found: Found) -> Iterator[str]:
    """Notes on deployed nodes that get other firmware, which may not boot what is on them."""
    deployed = {
        each.key.name
        for each in found.values()
        if each.key.kind is Kind.IRONIC_STANDING and _shape(each).state == Standing.ACTIVE
    }
    for step in steps:
        change = next((each for each in step.changes if each.field == "firmware"), None)
        if step.key.kind is Kind.MACHINE and change is not None and step.node in deployed:
            yield (
                f"node {step.node} is deployed, and its firmware changes from {change.observed} to "
                f"{change.desired}: what is on its disk may not boot with it"
            )


def are_enrolled(steps: Iterable[Step]) -> bool:
    """Whether nodes or ports get names or MACs in Ironic."""
    return any(step.desired is not None and KINDS[step.key.kind].unique for step in steps)


def against_held(steps: Iterable[Step], observed: Iterable[Observed], held: Held) -> list[str]:
    """Why Ironic would refuse names and MACs: others have them there (409). `observed`: of this
    cluster, whose own do not count.
    """
    shapes = [each.shape for each in observed]
    own = {shape.uuid for shape in shapes if isinstance(shape, IronicNode | IronicPort)}
    found = []
    for step in steps:
        shape = step.desired.shape if step.desired is not None else None
        if isinstance(shape, IronicNode):
            name = str(values(shape.settings).get("name"))
            other = held.names.get(name)
            if other not in {None, shape.uuid, *own}:
                found.append(
                    f"node {step.node}: Ironic has another node named {name!r} ({other}). Set "
                    f"`ironic.name`, for example '{{cluster}}-{{node}}', or remove that one. {LEFT}"
                )
        elif isinstance(shape, IronicPort):
            mac = str(values(shape.settings).get("address")).lower()
            port, node = held.macs.get(mac, (None, None))
            if port not in {None, shape.uuid, *own}:
                found.append(
                    f"node {step.node}: Ironic has a port of node {node} with the MAC {mac}. Give "
                    f"the NIC another `mac`, or remove that port. {LEFT}"
                )
    return found


LEFT = (
    "What an earlier cluster left there is shown by `nospoon orphans FILE`, and taken back with "
    "`id:` of that cluster in the file."
)


def _shape(each: Observed | Resource) -> IronicStanding:
    shape = each.shape
    assert isinstance(shape, IronicStanding), "its key says so"
    return shape
