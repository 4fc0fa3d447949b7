"""What a running machine still has is not taken from under it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from uuid import UUID

from nospoon.clusterfile.load import load
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Observed, Resource, Shape
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.diff.diff import diff
from nospoon.plan.diff.targets import only
from nospoon.plan.document import document
from nospoon.plan.order.steps import Plan
from nospoon.plan.resolution.around import ImageFacts, Surroundings
from nospoon.plan.resolution.resolve import resolve
from nospoon.plan.text import plan_text
from nospoon.providers.simulated.connection import RULES

ID = UUID("00000000-0000-0000-0000-00000000abcd")
HEAD = "cluster: dev\nhosts: {h: {libvirt: 'qemu:///system'}}\n"
BEFORE = """
networks: {lan: {netboot: none}, more: {netboot: builtin, cidr: 10.1.2.0/24}}
nodes: [{name: a, nics: [lan, more], disks: [1GiB, {size: 1GiB, image: x.img}]}, {name: b}]
"""
AFTER = """
networks: {lan: {netboot: none}}
nodes: [{name: a, nics: [lan], disks: [1GiB]}, {name: b}]
"""
MORE = [(Kind.NETWORK, "more"), (Kind.NETBOOT, "more"), (Kind.VOLUME, "a-1")]
IMAGE = (Kind.IMAGE, "image-" + "0" * 16)


def resources(text: str) -> dict[Key, Resource]:
    cluster = load(HEAD + text, file="x")
    allocations, reasons = allocate(cluster, Allocations(), Occupied())
    assert not reasons
    images = {"x.img": ImageFacts("0" * 64, "raw", 1 << 20)}
    return resolve(cluster, ID, allocations, Surroundings({"h": "/p"}, images, {}))


def seen(text: str, *, live: Mapping[str, Shape], running: Collection[str]) -> list[Observed]:
    return [
        Observed(key, each.shape, OwnerTag("d", ID),
                 running=key.kind is Kind.MACHINE and key.name in running,
                 live=live.get(key.name) if key.kind is Kind.MACHINE else None)
        for key, each in resources(text).items()
    ]  # fmt: skip


def plan_for(observed: list[Observed], text: str = AFTER) -> Plan:
    return diff(
        cluster="dev", cluster_id=ID, desired=resources(text), observed=observed,
        rules={"h": RULES},
    )  # fmt: skip


def deleted(plan: Plan) -> set[tuple[Kind, str]]:
    return {(each.key.kind, each.key.name) for each in plan.steps if each.desired is None}


def later(plan: Plan) -> set[tuple[Kind, str]]:
    return {(each.key.kind, each.key.name) for each in plan.later}


def test_a_network_and_a_disk_go_after_the_power_off_of_a_machine_that_has_them() -> None:
    plan = plan_for(seen(BEFORE, live={}, running={"a"}))
    assert later(plan) == {*MORE, IMAGE}
    assert deleted(plan) == set()
    text = plan_text(plan)
    assert "  - (at power-off) network more on h  (a runs with it until its power-off)" in text
    assert "0 to delete" in text
    assert {each.name for each in document(plan).later} == {each for _, each in later(plan)}


def test_they_stay_while_the_machine_runs_on_with_what_it_had() -> None:
    had = resources(BEFORE)[Key(Kind.MACHINE, "h", "a")].shape
    now = seen(AFTER, live={"a": had}, running={"a"})
    left = [each for each in seen(BEFORE, live={}, running=()) if (each.key.kind, each.key.name)
            in {*MORE, IMAGE}]  # fmt: skip
    plan = plan_for([*now, *left])
    assert plan.empty
    assert later(plan) == {*MORE, IMAGE}
    off = [replace(each, running=False, live=None) for each in now]
    plan = plan_for([*off, *left])
    assert deleted(plan) == {*MORE, IMAGE}
    assert not plan.later


def test_a_machine_that_is_off_or_goes_away_holds_nothing() -> None:
    assert deleted(plan_for(seen(BEFORE, live={}, running={"b"}))) == {*MORE, IMAGE}
    gone = "networks: {lan: {netboot: none}}\nnodes: [{name: b}]\n"
    plan = plan_for(seen(BEFORE, live={}, running={"a"}), gone)
    assert {*MORE, IMAGE, (Kind.MACHINE, "a")} <= deleted(plan)


def test_a_machine_that_is_recreated_holds_nothing() -> None:
    observed = seen(BEFORE, live={}, running={"a"})
    other = [
        replace(each, shape=replace(each.shape, uuid=UUID(int=1)))
        if isinstance(each.shape, Machine)
        else each
        for each in observed
    ]
    assert deleted(plan_for(other)) == {*MORE, IMAGE}


def test_what_stays_of_other_nodes_is_not_told_with_a_target() -> None:
    plan = plan_for(seen(BEFORE, live={}, running={"a"}))
    assert later(only(plan, resources(AFTER), ["b"])) == set()
    assert later(only(plan, resources(AFTER), ["a"])) == {(Kind.VOLUME, "a-1")}
