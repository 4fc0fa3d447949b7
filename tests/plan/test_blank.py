"""Nodes that Ironic has deployed and that lose their disk are deployed anew, and no others."""

from __future__ import annotations

from uuid import UUID

import pytest

from nospoon.model.resources import Key, Kind, Observed, OwnerTag, Resource
from nospoon.plan.allocate import Allocations, Occupied, allocate
from nospoon.plan.diff import diff
from nospoon.plan.order import Half, moves
from nospoon.plan.resolve import Surroundings, resolve
from nospoon.plan.steps import Action
from nospoon.plan.text import plan_text
from nospoon.spec.load import load

CLUSTER = UUID(int=7)
DEPLOYED = "state: active, image: 'http://h/i', checksum: abc"


def resources(
    host: str = "x", disks: str = "[4GiB]", ironic: str = DEPLOYED
) -> dict[Key, Resource]:
    cluster = load(
        f"cluster: dev\nhosts: {{x: simulated, y: simulated}}\nironic: {{endpoint: 'http://i'}}\n"
        f"nodes: [{{name: a, host: {host}, disks: {disks}, ironic: {{{ironic}}}}}]",
        file="x",
    )
    allocations, reasons = allocate(cluster, Allocations(), Occupied())
    assert not reasons
    return resolve(cluster, CLUSTER, allocations, Surroundings({"x": "/p", "y": "/p"}, {}, {}))


NODE = resources()
KIND = Kind.IRONIC_STANDING
DISK, MACHINE = (Key(kind, "x", name) for kind, name in ((Kind.VOLUME, "a-0"), (Kind.MACHINE, "a")))


@pytest.mark.parametrize(
    ("gone", "desired", "steps"),
    [
        ({DISK}, NODE, 1),
        ({DISK, MACHINE}, NODE, 1),
        ({MACHINE}, NODE, 0),
        (set(), resources("y"), 1),
        (set(), resources(disks="[2GiB]"), 1),
        (set(), resources(disks="[8GiB]"), 0),
        (set(), resources(disks="[4GiB, 4GiB]"), 0),
        ({DISK}, resources(disks="[4GiB, 4GiB]"), 1),
        ({DISK}, resources(ironic="state: enroll"), 0),
    ],
)
def test_what_was_deployed_is_deployed_anew_when_its_disk_is(
    gone: set[Key], desired: dict[Key, Resource], steps: int
) -> None:
    found = [
        Observed(key, each.shape, OwnerTag("d", CLUSTER, note=each.note), 1.0)
        for key, each in NODE.items()
        if key not in gone
    ]
    rules = {host: {Kind.VOLUME: {"size": "live"}} for host in "xy"}
    plan = diff(cluster="d", cluster_id=CLUSTER, desired=desired, observed=found, rules=rules)
    told = [step for step in plan.steps if step.key.kind is KIND and step.why.startswith("its dis")]
    assert [step.action for step in told] == [Action.REPLACE] * steps
    if steps:
        order = list(moves(plan))
        assert "-/+ ironic-standing a on ironic  (its disk is made anew)" in plan_text(plan)
        before, after = (order.index((Key(KIND, "ironic", "a"), half)) for half in Half)
        parts = {Kind.VOLUME, Kind.MACHINE, Kind.BMC}
        places = [n for n, (key, _) in enumerate(order) if key.kind in parts]
        assert before < min(places)
        assert after > max(places)


def test_somebody_elses_instance_is_asked_for_before_its_disk_goes() -> None:
    available = resources(ironic="state: available")
    found = [
        Observed(key, each.shape, OwnerTag("d", CLUSTER, note=each.note), 1.0, key.kind is KIND)
        for key, each in available.items()
    ]
    desired = resources(disks="[2GiB]", ironic="state: available")
    rules = {"ironic": {Kind.IRONIC_NODE: {"settings": "live"}}}
    plan = diff(cluster="d", cluster_id=CLUSTER, desired=desired, observed=found, rules=rules)
    order = list(moves(plan))
    assert order[0] == (Key(KIND, "ironic", "a"), Half.REMOVE)


def test_who_becomes_another_image_as_well_has_one_step() -> None:
    found = [
        Observed(key, each.shape, OwnerTag("d", CLUSTER, note=each.note), 1.0)
        for key, each in NODE.items()
        if key != DISK
    ]
    desired = resources(ironic=DEPLOYED.replace("http://h/i", "http://h/j"))
    plan = diff(cluster="d", cluster_id=CLUSTER, desired=desired, observed=found, rules={})
    (step,) = (step for step in plan.steps if step.key.kind is KIND)
    assert [change.field for change in step.changes] == ["image_source"]
