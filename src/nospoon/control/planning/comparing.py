"""What a plan says besides its steps: how things may change, why, and what to know about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields

from nospoon.clusterfile.nearest import nearest
from nospoon.control.fleet.enrolment import RULES as ENROLMENT_RULES
from nospoon.control.planning.prepared import Prepared, Seen, claimed
from nospoon.control.request import Request
from nospoon.errors import UsageError
from nospoon.model.capabilities import Capabilities
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.keys import IRONIC, NOVA, Key, Kind
from nospoon.model.resources.netboot import NetbootService
from nospoon.model.resources.resource import Resource
from nospoon.model.rest.plans import Remembered
from nospoon.plan.access import public_addresses
from nospoon.plan.diff.adoption import changed_by_owners
from nospoon.plan.diff.diff import Rules
from nospoon.plan.diff.losses import Losses
from nospoon.plan.diff.targets import elsewhere, only
from nospoon.plan.order.kinds import KINDS
from nospoon.plan.order.remembered import LIVE
from nospoon.plan.order.steps import Plan
from nospoon.plan.redfish_cautions import open_redfish, plain_redfish
from nospoon.plan.refuse import cautions
from nospoon.store.snapshots import SnapshotRow

OWN_RULES: Mapping[Kind, Mapping[str, str]] = {
    kind: {each.name: "live" for each in fields(shape)}
    for kind, shape in ((Kind.BMC, Bmc), (Kind.NETBOOT, NetbootService))
}
"""The daemon serves these kinds itself: every field may change while they run."""
MAX_NAMED = 200
"""Characters of a name that is not known, in the message that says so."""


def rules_of(capabilities: Mapping[str, Capabilities]) -> Rules:
    rules = {host: {**can.rules, **OWN_RULES} for host, can in capabilities.items()}
    return {**rules, IRONIC: ENROLMENT_RULES, NOVA: ENROLMENT_RULES}


def against_kinds(
    desired: Iterable[Resource], capabilities: Mapping[str, Capabilities]
) -> Iterator[str]:
    """Why hosts cannot make what is to be: a sentence a host, for those that were asked."""
    lacking = defaultdict[str, dict[Kind, None]](dict)
    for each in desired:
        kind, can = each.key.kind, capabilities.get(each.key.place)
        if KINDS[kind].by_daemon or can is None:
            continue
        if kind not in can.kinds:
            lacking[each.key.place][kind] = None
    for host, kinds in lacking.items():
        yield f"host {host} makes none of these: {', '.join(kinds)}"


def reasons(wanted: Prepared) -> dict[Key, str]:
    """Why each machine is on its host, where there is a choice, or it has to leave another."""
    hosts = {host.name for host in wanted.seen.cluster.hosts}
    left = {row.name: row.host.name for row in wanted.seen.rows if row.host.name not in hosts}
    if not left and len(hosts) == 1:
        return {}
    return {
        Key(Kind.MACHINE, host, name): "; ".join(
            filter(None, (
                f"{left[name]} is not in the file any more" if name in left else "",
                wanted.allocations.why.get(name, "") if len(hosts) > 1 else "",
            ))
        )
        for name, host in wanted.allocations.hosts.items()
    }  # fmt: skip


def asked_for(request: Request, wanted: Prepared, plan: Plan) -> tuple[Plan, Losses]:
    """What of a plan can be done now, and is to be; and what it takes from snapshots."""
    plan = elsewhere(plan, wanted.seen.away, wanted.stranded)
    plan = only(plan, wanted.desired, request.targets)
    return plan, Losses.of(plan)


def lost_by(losses: Losses, snapshot: SnapshotRow) -> str:
    """A note for a snapshot that is lost, "" for others."""
    return losses.note(snapshot.name, {each.node: each.disks for each in snapshot.members})


def all_notes(wanted: Prepared) -> Iterator[str]:
    cluster, facts = wanted.seen.cluster, wanted.seen.surveyed
    yield from _notes(facts.capabilities)
    yield from wanted.seen.skipped
    yield from cautions(cluster, wanted.allocations, facts.facts)
    yield from public_addresses(cluster)
    yield from plain_redfish(wanted.desired.values())
    yield from open_redfish(wanted.desired.values())
    yield from wanted.notes


def refuse_unknown(targets: Iterable[str], names: Collection[str]) -> None:
    for target in targets:
        if target not in names:
            near = nearest(target, names)
            hint = f"Did you mean {near!r}?" if near else ""
            raise UsageError(f"no node {target[:MAX_NAMED]!r} in the file", hint=hint)


def by_owners(seen: Seen, desired: Mapping[Key, Resource]) -> Iterator[Remembered]:
    """What owners of adopted machines changed of them."""
    for node, changes in changed_by_owners(claimed(seen.rows), desired).items():
        for each in changes:
            what = f"{each.field} of node {node}, by its machine's owner"
            yield Remembered("~", what, each.observed, each.desired, LIVE)


def _notes(capabilities: Mapping[str, Capabilities]) -> Iterable[str]:
    for host, can in capabilities.items():
        if can.accelerator == "tcg":
            yield f"host {host} emulates CPUs (TCG), slowly: {can.accelerator_note}"
        elif not can.accelerator:
            yield f"host {host}: `up` tries KVM with a Linux guest before it makes a machine"
        if can.unlimited_roots:
            yield (
                f"host {host} does not limit what its containers write to their roots: "
                f"{can.unlimited_roots}"
            )
