"""Another URL of boot images: what a plan replaces, in which order, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import UUID

import pytest

from nospoon.clusterfile.load import load
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.host_facts import HostFacts, SizeOffered
from nospoon.model.resources.keys import IRONIC, Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.relays import relay_of
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.storage import boot_image
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.diff.diff import diff, removal
from nospoon.plan.diff.targets import only
from nospoon.plan.order.order import Half, Move, MoveId, moves
from nospoon.plan.order.steps import Action, Plan
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.resolve import resolve
from nospoon.plan.text import plan_text
from nospoon.providers.openstack.connection import RULES

ID = UUID("5d0f2f0e-0000-4000-8000-000000000001")
SIZE = SizeOffered("metal", "1", 2, 4 << 30, 100 << 30, 1 << 30)
FACTS = HostFacts(
    frozenset(Firmware), frozenset(Arch), tpm=False, real=True, anti_spoofing=True,
    sizes=(SIZE,), flavors={"metal": SIZE}, networks=frozenset({"rack", "public"}),
    own_networks=frozenset({"rack"}), external_networks=(("public", "p"),),
)  # fmt: skip
FILE = """
cluster: dev
hosts:
  cloud:
    openstack:
      cloud: {{name: c, auth: {{auth_url: "http://192.0.2.1/v3", username: u, password: p}}}}
      {asked}
networks: {{lan: {{nat: true, cidr: 10.1.0.0/24}}}}
{ironic}
nodes:
  - {{name: a, memory: 1GiB, disks: [1GiB], firmware: bios, nics: [lan]{more}}}
  - {{name: b, memory: 1GiB, disks: [1GiB], firmware: bios, nics: [lan]}}
"""
HERE, THERE = "boot_address: 192.0.2.9", "boot_address: 192.0.2.10"
RELAY = "relay: {{network: lan, image: d, flavor: metal, address: {}}}"
A, B = (Key(Kind.MACHINE, "cloud", name) for name in "ab")


def image_at(address: str, port: int = 8069) -> Key:
    return boot_image("cloud", Firmware.BIOS, f"http://{address}:{port}")


def wanted(
    asked: str, *, ironic: str = "", more: str = "", port: int = 8069,
    unnoted: Iterable[Key] = (),
) -> dict[Key, Resource]:  # fmt: skip
    cluster = load(FILE.format(asked=asked, ironic=ironic, more=more), file="x")
    allocations, reasons = allocate(cluster, Allocations(), Occupied(), facts={"cloud": FACTS})
    assert not reasons
    around = Surroundings(
        {}, {}, {}, facts={"cloud": FACTS}, boot_port=port, unnoted=frozenset(unnoted)
    )
    return resolve(cluster, ID, allocations, around)


def found(resources: Mapping[Key, Resource], *running: Key) -> list[Observed]:
    return [
        Observed(key, each.shape, OwnerTag("d", ID, note=each.note), running=key in running)
        for key, each in resources.items()
    ]


def planned(there: Iterable[Observed], desired: Mapping[Key, Resource]) -> Plan:
    return diff(
        cluster="dev", cluster_id=ID, desired=desired, observed=there, rules={"cloud": RULES}
    )


def actions(plan: Plan) -> dict[Key, Action]:
    return {step.key: step.action for step in plan.steps}


def before(order: Mapping[MoveId, Move], id_: MoveId) -> set[MoveId]:
    """All that a move waits for."""
    return set(order[id_].waits).union(*(before(order, each) for each in order[id_].waits))


def test_nodes_are_made_again_once_the_other_image_is_there_and_the_first_one_goes_last() -> None:
    plan = planned(found(wanted(HERE), A), wanted(THERE))
    old, new = image_at("192.0.2.9"), image_at("192.0.2.10")
    assert actions(plan) == {
        new: Action.CREATE, A: Action.REPLACE, B: Action.REPLACE, old: Action.DELETE,
    }  # fmt: skip
    order = moves(plan)
    for node in (A, B):
        assert (new, Half.MAKE) in before(order, (node, Half.REMOVE)), "it boots until then"
        assert (node, Half.REMOVE) in before(order, (old, Half.REMOVE))
    text = plan_text(plan)
    assert "a on cloud  (asks_at differs; it runs, and is powered off; what is on its disks" in text
    assert "asks_at: http://192.0.2.9:8069 -> http://192.0.2.10:8069  [replace]" in text


def test_another_port_of_the_daemon_is_another_url() -> None:
    plan = planned(found(wanted(HERE)), wanted(HERE, port=9069))
    assert actions(plan)[image_at("192.0.2.9", 9069)] is Action.CREATE
    assert actions(plan)[A] is Action.REPLACE


def test_of_some_nodes_alone_the_first_image_stays_for_the_others() -> None:
    desired = wanted(THERE)
    plan = only(planned(found(wanted(HERE), B), desired), desired, ["a"])
    assert actions(plan) == {image_at("192.0.2.10"): Action.CREATE, A: Action.REPLACE}
    there = [
        *(each for each in found(desired, A, B) if each.key != B),
        *(each for each in found(wanted(HERE)) if each.key in {B, image_at("192.0.2.9")}),
    ]
    rest = planned(there, desired)
    assert actions(rest) == {B: Action.REPLACE, image_at("192.0.2.9"): Action.DELETE}


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (RELAY.format("10.1.0.9"), RELAY.format("10.1.0.10")),
        (RELAY.format("10.1.0.9"), HERE),
        (HERE, RELAY.format("10.1.0.10")),
    ],
)
def test_another_relay_is_there_before_the_image_that_asks_it(then: str, now: str) -> None:
    """And a relay goes after who asks by it."""
    had, gets = wanted(then), wanted(now)
    plan = planned(found(had, A), gets)
    order = moves(plan)
    (old,), (new,) = ([key for key in each if key.kind is Kind.BOOT_IMAGE] for each in (had, gets))
    assert (new, Half.MAKE) in before(order, (old, Half.REMOVE))
    relay = relay_of("cloud")
    if relay in gets:
        assert (relay, Half.MAKE) in before(order, (new, Half.MAKE))
    if relay in had:
        assert {(A, Half.REMOVE), (B, Half.REMOVE)} <= before(order, (relay, Half.REMOVE))
    assert plan.later == ()


def test_a_relay_goes_after_the_machines_that_ask_by_it() -> None:
    there = found(wanted(RELAY.format("10.1.0.9")), A)
    order = moves(removal(cluster="dev", cluster_id=ID, observed=there))
    assert (A, Half.REMOVE) in before(order, (relay_of("cloud"), Half.REMOVE))


def test_a_server_of_which_no_one_knows_where_it_asks_stays_as_it_is() -> None:
    """An earlier version did not note it, and its image is gone."""
    there = [
        replace(each, shape=replace(each.shape, asks_at=""))
        if isinstance(each.shape, Machine)
        else each
        for each in found(wanted(HERE), A)
    ]
    plan = planned(there, wanted(THERE, unnoted=(A, B)))
    assert actions(plan) == {image_at("192.0.2.10"): Action.CREATE}
    (later,) = plan.later
    assert later.key == image_at("192.0.2.9"), "it may be the one that it boots"
    assert later.why == "a runs with it until its power-off"


def test_a_server_of_others_keeps_no_image() -> None:
    """Whichever is there rescues it."""
    there = found(wanted(HERE), A)
    adopted = [
        replace(each, shape=replace(each.shape, adopted="theirs", asks_at="", boot_order=()))
        if isinstance(each.shape, Machine)
        else each
        for each in there
    ]
    theirs = {each.key: each.shape for each in adopted}
    desired = {
        key: replace(each, shape=theirs.get(key, each.shape) if key in {A, B} else each.shape)
        for key, each in wanted(THERE).items()
    }
    plan = planned(adopted, desired)
    old, new = image_at("192.0.2.9"), image_at("192.0.2.10")
    assert actions(plan) == {new: Action.CREATE, old: Action.DELETE}
    assert plan.later == ()
    assert (new, Half.MAKE) in before(moves(plan), (old, Half.REMOVE))


def test_what_ironic_deployed_on_disks_that_go_with_their_machine_is_deployed_again() -> None:
    ironic = "ironic: {endpoint: 'http://192.0.2.1'}"
    said = ", ironic: {state: active, image: 'http://h/i', checksum: abc}"
    had, gets = (wanted(each, ironic=ironic, more=said) for each in (HERE, THERE))
    plan = planned(found(had), gets)
    assert actions(plan)[Key(Kind.IRONIC_STANDING, IRONIC, "a")] is Action.REPLACE
    assert Key(Kind.IRONIC_STANDING, IRONIC, "b") not in actions(plan)
