"""A part of a plan has all that it needs, and all that it disturbs."""

from __future__ import annotations

from uuid import UUID

from nospoon.model.resources import Key, Kind, Link, Observed, OwnerTag, Pool, Resource, Volume
from nospoon.plan.diff import diff
from nospoon.plan.steps import Plan
from nospoon.plan.targets import elsewhere, only

ID = UUID("5d0f2f0e-0000-4000-8000-000000000001")
POOL, LAN = Key(Kind.POOL, "h", "p"), Key(Kind.NETWORK, "h", "lan")
MINE, OTHER = Key(Kind.VOLUME, "h", "a-0"), Key(Kind.VOLUME, "h", "b-0")
DESIRED = {
    each.key: each
    for each in (
        Resource(POOL, Pool("/new")),
        Resource(LAN, Link("br")),
        Resource(MINE, Volume("p", 1), (POOL,), "a"),
        Resource(OTHER, Volume("p", 1), (POOL,), "b"),
    )
}


def planned(*observed: Observed) -> Plan:
    return diff(cluster="c", cluster_id=ID, desired=DESIRED, observed=observed, rules={})


def found(resource: Resource, **more: object) -> Observed:
    return Observed(resource.key, resource.shape, OwnerTag("d", ID), 0.0, **more)  # type: ignore[arg-type]


def keys(plan: Plan) -> set[Key]:
    return {step.key for step in plan.steps}


def test_no_target_is_the_whole_plan() -> None:
    assert only(planned(), DESIRED, ()) == planned()


def test_a_node_brings_what_it_needs_and_nothing_of_others() -> None:
    part = only(planned(), DESIRED, ["a"])
    assert keys(part) == {POOL, MINE}
    assert part.notes[-1].startswith("2 other steps are left")
    assert part.fingerprint != planned().fingerprint


def test_what_a_replacement_disturbs_comes_along() -> None:
    pool = Observed(POOL, Pool("/old"), OwnerTag("d", ID), 0.0)
    whole = planned(pool, found(DESIRED[OTHER], running=True), found(DESIRED[LAN]))
    assert OTHER in keys(whole)
    assert keys(only(whole, DESIRED, ["a"])) == {POOL, MINE, OTHER}


def test_who_left_the_file_is_named_by_what_is_left() -> None:
    gone = [Resource(Key(Kind.VOLUME, "h", f"{node}-0"), Volume("p", 1)) for node in ("x", "y")]
    whole = planned(*(found(each) for each in (*DESIRED.values(), *gone)))
    assert keys(only(whole, DESIRED, ["x"])) == {gone[0].key}


def test_hosts_that_are_away_and_their_nodes_are_left_out() -> None:
    far = Resource(Key(Kind.VOLUME, "away", "b-0"), Volume("p", 1), (), "b")
    plan = planned(found(far))
    assert keys(elsewhere(plan, {"away"}, set())) == {POOL, LAN, MINE, OTHER}
    assert keys(elsewhere(plan, {"away"}, {"b"})) == {POOL, LAN, MINE}
