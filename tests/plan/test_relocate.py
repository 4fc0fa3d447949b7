"""Nodes that move from host to host: shown as such, and in an order that loses least."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from nospoon.clusterfile.load import load
from nospoon.model.cluster import Cluster
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.diff.diff import diff
from nospoon.plan.document import document
from nospoon.plan.order.order import Half, MoveId, moves
from nospoon.plan.order.steps import Action, Plan
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.resolve import resolve
from nospoon.plan.text import plan_text

CLUSTER = UUID("00000000-0000-0000-0000-00000000abcd")
HOSTS = "hosts: {x: simulated, y: simulated}"


def read(nodes: str) -> Cluster:
    return load(f"cluster: dev\n{HOSTS}\nnodes: {nodes}", file="x")


def resources(nodes: str) -> dict[Key, Resource]:
    cluster = read(nodes)
    allocations, reasons = allocate(cluster, Allocations(), Occupied())
    assert not reasons
    return resolve(cluster, CLUSTER, allocations, Surroundings({"x": "/p", "y": "/p"}, {}, {}))


def planned(before: str, after: str, *, running: str = "") -> Plan:
    observed = [
        Observed(key, each.shape, OwnerTag("d", CLUSTER, note=each.note), key.name == running)
        for key, each in resources(before).items()
    ]
    desired = resources(after)
    why = {Key(Kind.MACHINE, "y", "a"): "pinned"}
    return diff(
        cluster="dev", cluster_id=CLUSTER, desired=desired, observed=observed, rules={}, why=why
    )


ON_X, ON_Y = "[{name: a, host: x}, {name: b, host: y}]", "[{name: a, host: y}, {name: b, host: y}]"


def place_in(order: list[MoveId], kind: Kind, host: str, name: str, half: Half) -> int:
    return order.index((Key(kind, host, name), half))


def test_a_move_is_one_step_that_tells_from_where_and_what_it_costs() -> None:
    plan = planned(ON_X, ON_Y, running="a")
    text = plan_text(plan)
    assert "-/+ machine a moves from x to y  (pinned; it runs, and is powered off)" in text
    assert "-/+ volume a-0 moves from x to y  (what is on it is lost)" in text
    assert "-/+ bmc a moves from x to y\n" in text
    assert "  - network provision on x  (nothing on x needs it any more)" in text
    assert plan.counts[Action.CREATE] == 0
    moving = [each for each in document(plan).steps if each.moves_from]
    assert [(each.kind, each.moves_from, each.host) for each in moving] == [
        ("volume", "x", "y"), ("machine", "x", "y"), ("bmc", "x", "y"),
    ]  # fmt: skip


def test_a_move_from_elsewhere_is_another_plan() -> None:
    plan = planned(ON_X, ON_Y)
    elsewhere = tuple(
        replace(step, observed=replace(step.observed, key=replace(step.removes, place="z")))
        if step.observed is not None
        else step
        for step in plan.steps
    )
    assert replace(plan, steps=elsewhere).fingerprint != plan.fingerprint


def test_what_a_machine_needs_is_there_before_it_goes_and_its_disks_go_last() -> None:
    order = list(moves(planned(ON_X, ON_Y)))
    wanted = [
        place_in(order, Kind.VOLUME, "y", "a-0", Half.MAKE),
        place_in(order, Kind.BMC, "x", "a", Half.REMOVE),
        place_in(order, Kind.MACHINE, "x", "a", Half.REMOVE),
        place_in(order, Kind.MACHINE, "y", "a", Half.MAKE),
        place_in(order, Kind.VOLUME, "x", "a-0", Half.REMOVE),
    ]
    assert wanted == sorted(wanted)
    assert wanted[3] < place_in(order, Kind.BMC, "y", "a", Half.MAKE)


def test_each_half_waits_for_what_must_have_succeeded() -> None:
    by_id = moves(planned(ON_X, ON_Y))
    machine_x, machine_y = (Key(Kind.MACHINE, host, "a") for host in "xy")
    bmc_x, bmc_y = (Key(Kind.BMC, host, "a") for host in "xy")
    volume_x, volume_y = (Key(Kind.VOLUME, host, "a-0") for host in "xy")
    remove, make = Half.REMOVE, Half.MAKE
    assert set(by_id[machine_x, remove].waits) == {(bmc_x, remove), (volume_y, make)}
    assert set(by_id[bmc_x, remove].waits) == {(volume_y, make)}
    assert set(by_id[machine_y, make].waits) == {(machine_x, remove), (volume_y, make)}
    assert set(by_id[bmc_y, make].waits) == {(bmc_x, remove), (machine_y, make)}
    assert set(by_id[volume_x, remove].waits) == {(machine_x, remove), (machine_y, make)}


def test_nodes_that_change_places_do_not_wait_for_one_another() -> None:
    swapped = "[{name: a, host: y}, {name: b, host: x}]"
    order = list(moves(planned(ON_X, swapped)))
    assert len(order) == len(set(order)) == 12


def test_disks_that_an_earlier_run_left_stay_until_the_machine_stands() -> None:
    """It died between the removal of the machine and its making."""
    desired = resources(ON_Y)
    there = {key: each for key, each in resources(ON_X).items() if key.name != "a"}
    there |= {key: each for key, each in desired.items() if key.kind is Kind.VOLUME}
    left = [Observed(key, each.shape, OwnerTag("d", CLUSTER)) for key, each in there.items()]
    plan = diff(cluster="dev", cluster_id=CLUSTER, desired=desired, observed=left, rules={})
    assert "- volume a-0 on x  (is on y now)" in plan_text(plan)
    volume, machine = Key(Kind.VOLUME, "x", "a-0"), Key(Kind.MACHINE, "y", "a")
    assert moves(plan)[volume, Half.REMOVE].waits == ((machine, Half.MAKE),)
