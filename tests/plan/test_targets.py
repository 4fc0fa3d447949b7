"""A part of a plan has all that it needs, and all that it disturbs."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from nospoon.model.ironic import IronicStanding
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.netboot import NetbootService, Reservation
from nospoon.model.resources.networks import Link, Tunnel
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.storage import Pool, Volume
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.diff.diff import diff
from nospoon.plan.diff.targets import elsewhere, only
from nospoon.plan.order.steps import Plan

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
    return Observed(resource.key, resource.shape, OwnerTag("d", ID), **more)  # type: ignore[arg-type]


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
    pool = Observed(POOL, Pool("/old"), OwnerTag("d", ID))
    whole = planned(pool, found(DESIRED[OTHER], running=True), found(DESIRED[LAN]))
    assert OTHER in keys(whole)
    assert keys(only(whole, DESIRED, ["a"])) == {POOL, MINE, OTHER}


def test_who_was_deployed_on_what_a_target_disturbs_is_deployed_anew() -> None:
    key = Key(Kind.IRONIC_STANDING, "", "b")
    standing = Resource(key, IronicStanding(ID, "active", roots=("b-0",)), (), "b")
    desired = DESIRED | {key: standing}
    seen = [found(each) for each in desired.values()]
    seen[0] = Observed(POOL, Pool("/old"), OwnerTag("d", ID))
    whole = diff(cluster="c", cluster_id=ID, desired=desired, observed=seen, rules={})
    part = only(whole, desired, ["a"])
    assert keys(part) == {POOL, MINE, OTHER, key}
    assert [step.why for step in part.steps if step.key == key] == ["its disk goes"]


def test_who_left_the_file_is_named_by_what_is_left() -> None:
    gone = [Resource(Key(Kind.VOLUME, "h", f"{node}-0"), Volume("p", 1)) for node in ("x", "y")]
    whole = planned(*(found(each) for each in (*DESIRED.values(), *gone)))
    assert keys(only(whole, DESIRED, ["x"])) == {gone[0].key}


def test_hosts_that_are_away_and_their_nodes_are_left_out() -> None:
    far = Resource(Key(Kind.VOLUME, "away", "b-0"), Volume("p", 1), (), "b")
    plan = planned(found(far))
    assert keys(elsewhere(plan, {"away"}, set())) == {POOL, LAN, MINE, OTHER}
    assert keys(elsewhere(plan, {"away"}, {"b"})) == {POOL, LAN, MINE}


NEAR, FAR = Key(Kind.NETWORK, "a", "ov"), Key(Kind.NETWORK, "d", "ov")
DHCP = {key: replace(key, kind=Kind.NETBOOT) for key in (NEAR, FAR)}


def given(node: str, last: int) -> Reservation:
    return Reservation(f"02:00:00:00:00:{node[1:]}", f"10.9.0.{last}", node, ID)


def serving(key: Key, *reservations: Reservation) -> Resource:
    shape = NetbootService("br", "10.9.0.1/24", ("", ""), reservations)
    return Resource(DHCP[key], shape, (key,))


def link(key: Key, local: str, *peers: str) -> Resource:
    return Resource(key, Link("br", "10.9.0.1/24", tunnel=Tunnel(7, local, peers)))


def node(name: str, key: Key) -> Resource:
    return Resource(Key(Kind.VOLUME, key.place, f"{name}-0"), Volume("p", 1), (key,), name)


def part(desired: tuple[Resource, ...], there: tuple[Resource, ...], *nodes: str) -> Plan:
    wanted = {each.key: each for each in desired}
    observed = [found(each) for each in there]
    rules = dict.fromkeys(("a", "d"), OWN)
    whole = diff(cluster="c", cluster_id=ID, desired=wanted, observed=observed, rules=rules)
    return only(whole, wanted, nodes)


OWN = {
    Kind.NETBOOT: {"reservations": "live"},
    Kind.NETWORK: {"tunnel": "live"},
}


def test_a_node_brings_its_address_and_leaves_others_theirs() -> None:
    before = (link(NEAR, "1"), serving(NEAR, given("n1", 2), given("n2", 3)), node("n1", NEAR))
    after = (
        link(NEAR, "1"),
        serving(NEAR, given("n2", 9), given("n3", 4), given("n4", 5)),
        node("n2", NEAR),
        node("n3", NEAR),
    )
    (step,) = [each for each in part(after, before, "n3").steps if each.key == DHCP[NEAR]]
    assert step.desired is not None
    assert isinstance(step.desired.shape, NetbootService)
    assert step.desired.shape.reservations == (given("n2", 3), given("n3", 4), given("n1", 2))
    assert [change.field for change in step.changes] == ["reservations"]


def test_what_others_change_of_dhcp_alone_is_left() -> None:
    before = (link(NEAR, "1"), serving(NEAR, given("n1", 2), given("n2", 3)))
    after = (link(NEAR, "1"), serving(NEAR, given("n2", 9)), node("n2", NEAR), node("n3", NEAR))
    assert keys(part(after, before, "n3")) == {Key(Kind.VOLUME, "a", "n3-0")}


def test_an_address_that_a_target_has_now_is_nobodys_else() -> None:
    before = (link(NEAR, "1"), serving(NEAR, given("n1", 2)))
    after = (link(NEAR, "1"), serving(NEAR, given("n3", 2)), node("n3", NEAR))
    (step,) = [each for each in part(after, before, "n3").steps if each.key == DHCP[NEAR]]
    assert step.desired is not None
    assert step.desired.shape == serving(NEAR, given("n3", 2)).shape


def test_a_target_that_left_has_no_address_any_more() -> None:
    before = (link(NEAR, "1"), serving(NEAR, given("n1", 2), given("n2", 3)), node("n1", NEAR))
    after = (link(NEAR, "1"), serving(NEAR, given("n2", 9), given("n3", 4)))
    steps = {each.key: each for each in part(after, before, "n1").steps}
    assert set(steps) == {DHCP[NEAR], Key(Kind.VOLUME, "a", "n1-0")}
    served = steps[DHCP[NEAR]].desired
    assert served is not None
    assert served.shape == serving(NEAR, given("n2", 3)).shape, "n2 and n3 are no targets"


def test_a_target_that_moves_has_no_address_any_more_where_it_was() -> None:
    before = (link(NEAR, "1"), serving(NEAR, given("n1", 2)), link(FAR, "2"), serving(FAR))
    after = (link(NEAR, "1"), serving(NEAR), link(FAR, "2"), serving(FAR, given("n1", 2)))
    assert {*DHCP.values()} <= keys(part((*after, node("n1", FAR)), before, "n1"))


def test_a_node_on_a_new_host_of_an_overlay_is_joined_with_the_others_and_gets_dhcp() -> None:
    before = (link(NEAR, "1", "9"), serving(NEAR, given("n1", 2)), node("n1", NEAR))
    after = (
        link(NEAR, "1", "2"),
        serving(NEAR, given("n1", 2)),
        node("n1", NEAR),
        link(FAR, "2", "1"),
        serving(FAR, given("n3", 4)),
        node("n3", FAR),
    )
    steps = {each.key: each for each in part(after, before, "n3").steps}
    anew = {DHCP[NEAR], DHCP[FAR]}
    assert set(steps) == {NEAR, FAR, *anew, Key(Kind.VOLUME, "d", "n3-0")}
    joined = steps[NEAR].desired
    assert joined is not None
    assert joined.shape == link(NEAR, "1", "9", "2").shape, "who is there stays joined"


def test_an_overlay_is_made_on_no_host_of_others() -> None:
    after = (
        link(NEAR, "1", "2"), serving(NEAR), node("n1", NEAR),
        link(FAR, "2", "1"), serving(FAR), node("n3", FAR),
    )  # fmt: skip
    assert keys(part(after, (), "n3")) == {FAR, DHCP[FAR], Key(Kind.VOLUME, "d", "n3-0")}


def test_a_host_that_only_others_leave_stays_joined() -> None:
    before = (link(NEAR, "1", "2", "3"), serving(NEAR), node("n1", NEAR))
    after = (link(NEAR, "1", "3"), serving(NEAR), node("n1", NEAR), node("n4", NEAR))
    assert NEAR not in keys(part(after, before, "n4"))
