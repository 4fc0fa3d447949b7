"""Nodes that Ironic has deployed and that lose their disk are deployed anew, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

import pytest

from nospoon.clusterfile.load import load
from nospoon.control.fleet.enrolment import RULES
from nospoon.model.cluster import Firmware
from nospoon.model.ironic import ORPHANED, Held, IronicNode, IronicPort, IronicStanding
from nospoon.model.resources.keys import IRONIC, Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.diff.diff import diff, removal
from nospoon.plan.diff.in_ironic import against_held, are_enrolled, undeployed
from nospoon.plan.enrollment.enrol import values
from nospoon.plan.order.order import Half, Move, MoveId, moves
from nospoon.plan.order.steps import Action, Plan
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.resolve import resolve
from nospoon.plan.text import plan_text

CLUSTER = UUID(int=7)
DEPLOYED = "state: active, image: 'http://h/i', checksum: abc"


def resources(
    host: str = "x", disks: str = "[5GiB]", ironic: str = DEPLOYED
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
(POOL,) = (key for key in NODE if key.kind is Kind.POOL)
DISK, MACHINE = (Key(kind, "x", name) for kind, name in ((Kind.VOLUME, "a-0"), (Kind.MACHINE, "a")))


def before(order: Mapping[MoveId, Move], id_: MoveId) -> set[MoveId]:
    """All that a move waits for."""
    return set(order[id_].waits).union(*(before(order, each) for each in order[id_].waits))


@pytest.mark.parametrize(
    ("gone", "desired", "steps"),
    [
        ({DISK}, NODE, 1),
        ({DISK, MACHINE}, NODE, 1),
        ({MACHINE}, NODE, 0),
        (set(), resources("y"), 1),
        (set(), resources(disks="[2GiB]"), 1),
        (set(), resources(disks="[8GiB]"), 0),
        (set(), resources(disks="[5GiB, 4GiB]"), 0),
        ({DISK}, resources(disks="[5GiB, 5GiB]"), 1),
        ({DISK}, resources(disks="[5GiB, 2GiB]"), 1),
        ({DISK}, resources(disks="[5GiB, 4GiB]"), 1),
        ({DISK, POOL}, NODE, 0),
        ({DISK, POOL, MACHINE}, NODE, 1),
        ({DISK}, resources(ironic="state: enroll"), 0),
    ],
)
def test_what_was_deployed_is_deployed_anew_when_its_disk_is(
    gone: set[Key], desired: dict[Key, Resource], steps: int
) -> None:
    found = [
        Observed(key, each.shape, OwnerTag("d", CLUSTER, note=each.note))
        for key, each in NODE.items()
        if key not in gone
    ]
    rules = {host: {Kind.VOLUME: {"size": "live"}} for host in "xy"}
    plan = diff(cluster="d", cluster_id=CLUSTER, desired=desired, observed=found, rules=rules)
    told = [
        step for step in plan.steps if step.key.kind is KIND and step.why.startswith("its disk")
    ]
    assert [step.action for step in told] == [Action.REPLACE] * steps
    if steps:
        order = moves(plan)
        assert "-/+ ironic-standing a on Ironic  (its disk goes)" in plan_text(plan)
        blank, deployed = ((Key(KIND, IRONIC, "a"), half) for half in Half)
        parts = {Kind.VOLUME, Kind.MACHINE, Kind.BMC, Kind.IRONIC_NODE, Kind.IRONIC_PORT}
        of_it = [id_ for id_ in order if id_[0].kind in parts]
        assert all(blank in before(order, id_) for id_ in of_it)
        assert {id_ for id_ in of_it if id_[1] is Half.MAKE} <= before(order, deployed)


HINTED = f"{DEPLOYED}, root_device: {{name: /dev/vda}}"
TOLD = DEPLOYED + ", instance_info: {root_device: {name: /dev/vda}}"
ELSEWHERE = DEPLOYED + (
    ", interfaces: {storage: external}, capabilities: {iscsi_boot: 'true'}, "
    "volumes: {targets: [{boot_index: 0, volume_id: v, type: iscsi}]}"
)
OF_THREE = "[9GiB, 5GiB, 2GiB]"


@pytest.mark.parametrize(
    ("was", "now", "lost", "steps"),
    [
        ((OF_THREE, DEPLOYED), None, "a-0", 0),
        ((OF_THREE, DEPLOYED), None, "a-1", 1),
        ((OF_THREE, DEPLOYED), None, "a-2", 0),
        ((OF_THREE, HINTED), None, "a-0", 1),
        ((OF_THREE, TOLD), None, "a-0", 1),
        ((OF_THREE, HINTED), (OF_THREE, DEPLOYED), "a-0", 1),
        ((OF_THREE, DEPLOYED), (OF_THREE, HINTED), "a-0", 0),
        ((OF_THREE, DEPLOYED), ("[9GiB, 5GiB, 2GiB, 4500MiB]", DEPLOYED), "a-3", 0),
        ((OF_THREE, DEPLOYED), ("[9GiB, 5GiB, 2GiB, 4500MiB]", DEPLOYED), "a-1", 1),
        ((OF_THREE, DEPLOYED), ("[9GiB, 10GiB, 2GiB]", DEPLOYED), "a-1", 1),
        ((OF_THREE, ELSEWHERE), None, "a-1", 0),
        ((OF_THREE, ELSEWHERE.replace("external", "noop")), None, "a-1", 1),
    ],
)
def test_what_counts_is_the_disk_on_which_it_was_deployed(
    was: tuple[str, str], now: tuple[str, str] | None, lost: str, steps: int
) -> None:
    before, desired = (resources(disks=disks, ironic=said) for disks, said in (was, now or was))
    found = [
        Observed(key, each.shape, OwnerTag("d", CLUSTER, note=each.note))
        for key, each in before.items()
        if key != Key(Kind.VOLUME, "x", lost)
    ]
    rules = {
        "x": {Kind.VOLUME: {"size": "live"}, Kind.MACHINE: {"disks": "live"}},
        IRONIC: {Kind.IRONIC_NODE: {"settings": "live"}},
    }
    plan = diff(cluster="d", cluster_id=CLUSTER, desired=desired, observed=found, rules=rules)
    assert [step.action for step in plan.steps if step.key.kind is KIND] == [Action.REPLACE] * steps


@pytest.mark.parametrize(("lost", "steps"), [("a-0", 1), ("a-1", 1)])
def test_where_nobody_noted_the_disk_it_may_be_any(lost: str, steps: int) -> None:
    desired = resources(disks="[9GiB, 5GiB]")
    (standing,) = (key for key in desired if key.kind is KIND)
    shape = desired[standing].shape
    assert isinstance(shape, IronicStanding)
    shapes = {key: each.shape for key, each in desired.items()}
    shapes[standing] = replace(shape, roots=None)
    found = [
        Observed(key, each, OwnerTag("d", CLUSTER, note=desired[key].note))
        for key, each in shapes.items()
        if key != Key(Kind.VOLUME, "x", lost)
    ]
    plan = diff(cluster="d", cluster_id=CLUSTER, desired=desired, observed=found, rules={})
    assert [step.action for step in plan.steps if step.key.kind is KIND] == [Action.REPLACE] * steps


def test_of_a_node_without_a_machine_the_disk_may_be_gone_without_a_step() -> None:
    """Taken back with another disk than the one on which it was deployed."""
    before = resources(disks="[9GiB, 5GiB]")
    found = [
        Observed(key, each.shape, OwnerTag("d", CLUSTER, note=each.note))
        for key, each in before.items()
        if key.place == IRONIC
    ]
    desired = resources(disks="[9GiB]")
    plan = diff(cluster="d", cluster_id=CLUSTER, desired=desired, observed=found, rules={})
    (step,) = (step for step in plan.steps if step.key.kind is KIND)
    assert step.action is Action.REPLACE


@pytest.mark.parametrize("known", ["[9GiB, 5GiB]", "[9GiB]"])
@pytest.mark.parametrize("disks", ["[9GiB]", "[9GiB, 5GiB]"])
@pytest.mark.parametrize(("pool", "steps"), [(set(), 1), ({POOL}, 0)])
def test_the_disk_of_the_deployment_is_missed_though_nobody_has_it_any_more(
    known: str, disks: str, pool: set[Key], steps: int
) -> None:
    """Somebody removed its volume, and before or after that it left the file, or came back."""
    was, machine = resources(disks="[9GiB, 5GiB]"), resources(disks=known)[MACHINE]
    found = [
        Observed(key, each.shape, OwnerTag("d", CLUSTER, note=each.note))
        for key, each in {**was, MACHINE: machine}.items()
        if key not in pool | {Key(Kind.VOLUME, "x", "a-1")}
    ]
    desired = resources(disks=disks)
    rules = {"x": {Kind.MACHINE: {"disks": "at power-off"}, Kind.BMC: {"disk_sizes": "live"}}}
    plan = diff(cluster="d", cluster_id=CLUSTER, desired=desired, observed=found, rules=rules)
    assert [step.action for step in plan.steps if step.key.kind is KIND] == [Action.REPLACE] * steps


@pytest.mark.parametrize(("home", "steps"), [("y", 0), ("x", 1)])
def test_what_a_move_left_where_the_machine_was_is_no_disk_of_it(home: str, steps: int) -> None:
    """The move ended before its last step, and the node was deployed where it is."""
    there = {**resources(home), DISK: NODE[DISK]}
    found = [
        Observed(key, each.shape, OwnerTag("d", CLUSTER, note=each.note))
        for key, each in there.items()
    ]
    desired = resources("y")
    plan = diff(cluster="d", cluster_id=CLUSTER, desired=desired, observed=found, rules={})
    assert any(step.removes == DISK for step in plan.steps)
    assert [step.action for step in plan.steps if step.key.kind is KIND] == [Action.REPLACE] * steps


@pytest.mark.parametrize(
    ("disks", "running", "steps", "later"),
    [
        ("[9GiB, 5GiB]", set(), 0, 0),
        ("[9GiB]", set(), 1, 0),
        ("[9GiB]", {MACHINE}, 0, 2),
    ],
)
def test_a_disk_that_leaves_the_file_is_lost_once_it_goes(
    disks: str, running: set[Key], steps: int, later: int
) -> None:
    """A machine that runs has it until its power-off."""
    was, desired = resources(disks=OF_THREE), resources(disks=disks)
    found = [
        Observed(key, each.shape, OwnerTag("d", CLUSTER, note=each.note), key in running)
        for key, each in was.items()
    ]
    rules = {"x": {Kind.MACHINE: {"disks": "at power-off"}, Kind.BMC: {"disk_sizes": "live"}}}
    plan = diff(cluster="d", cluster_id=CLUSTER, desired=desired, observed=found, rules=rules)
    assert [step.action for step in plan.steps if step.key.kind is KIND] == [Action.REPLACE] * steps
    assert len(plan.later) == later
    root = Key(Kind.VOLUME, "x", "a-1"), Half.REMOVE
    order = moves(plan)
    assert not steps or (Key(KIND, IRONIC, "a"), Half.REMOVE) in before(order, root)


@pytest.mark.parametrize("on", [False, True])
def test_a_disk_of_somebody_elses_instance_goes_only_if_ironic_agrees(*, on: bool) -> None:
    """At once, or at the next power-off of the machine, which its user may tell Ironic to do."""
    was, desired = (
        resources(disks=disks, ironic="state: available") for disks in (OF_THREE, "[9GiB, 5GiB]")
    )
    running = {KIND, Kind.MACHINE} if on else {KIND}
    found = [
        Observed(key, each.shape, OwnerTag("d", CLUSTER, note=each.note), key.kind in running)
        for key, each in was.items()
    ]
    rules = {"x": {Kind.MACHINE: {"disks": "at power-off"}, Kind.BMC: {"disk_sizes": "live"}}}
    plan = diff(cluster="d", cluster_id=CLUSTER, desired=desired, observed=found, rules=rules)
    last = (MACHINE, Half.MAKE) if on else (Key(Kind.VOLUME, "x", "a-2"), Half.REMOVE)
    assert (Key(KIND, IRONIC, "a"), Half.REMOVE) in before(moves(plan), last)


@pytest.mark.parametrize("machine", [resources(disks="[9GiB]")[MACHINE], None])
def test_disks_without_a_machine_stay_with_a_node_that_somebody_uses(
    machine: Resource | None,
) -> None:
    """`down` asks Ironic before they go, as before what the machine has."""
    found = [
        Observed(key, each.shape, OwnerTag("d", CLUSTER, note=each.note), key.kind is KIND)
        for key, each in {**resources(disks="[9GiB, 5GiB]"), MACHINE: machine}.items()
        if each is not None
    ]
    order = moves(removal(cluster="d", cluster_id=CLUSTER, observed=found))
    disks = [id_ for id_ in order if id_[0].kind is Kind.VOLUME]
    assert len(disks) == 2
    assert all((Key(KIND, IRONIC, "a"), Half.REMOVE) in before(order, id_) for id_ in disks)


@pytest.mark.parametrize(("left", "state"), [(set(), ORPHANED), ({MACHINE}, "active")])
def test_a_node_that_leaves_without_a_machine_is_let_go_of(left: set[Key], state: str) -> None:
    """Its BMC could not be asked for anything."""
    found = [
        Observed(key, each.shape, OwnerTag("d", CLUSTER))
        for key, each in NODE.items()
        if key.kind is KIND or key in left
    ]
    plan = diff(cluster="d", cluster_id=CLUSTER, desired={}, observed=found, rules={})
    (shape,) = (
        step.observed.shape for step in plan.steps if step.observed and step.key.kind is KIND
    )
    assert isinstance(shape, IronicStanding)
    assert shape.state == state


@pytest.mark.parametrize("state", ["available", "manageable"])
def test_somebody_elses_instance_is_asked_for_before_its_disk_goes(state: str) -> None:
    """Also where its own state changes at once."""
    found = [
        Observed(key, each.shape, OwnerTag("d", CLUSTER, note=each.note), key.kind is KIND)
        for key, each in resources(ironic="state: available").items()
    ]
    desired = resources(disks="[2GiB]", ironic=f"state: {state}")
    live = dict.fromkeys(("settings", "state"), "live")
    rules = {IRONIC: {Kind.IRONIC_NODE: live, KIND: live}}
    plan = diff(cluster="d", cluster_id=CLUSTER, desired=desired, observed=found, rules=rules)
    order = moves(plan)
    volume = [id_ for id_ in order if id_[0] == DISK]
    assert volume
    assert all((Key(KIND, IRONIC, "a"), Half.REMOVE) in before(order, id_) for id_ in volume)


def test_who_becomes_another_image_as_well_has_one_step() -> None:
    found = [
        Observed(key, each.shape, OwnerTag("d", CLUSTER, note=each.note))
        for key, each in NODE.items()
        if key != DISK
    ]
    desired = resources(ironic=DEPLOYED.replace("http://h/i", "http://h/j"))
    plan = diff(cluster="d", cluster_id=CLUSTER, desired=desired, observed=found, rules={})
    (step,) = (step for step in plan.steps if step.key.kind is KIND)
    assert [change.field for change in step.changes] == ["image_source"]


IMAGE = "state: active, image: 'http://h/other', checksum: abc"


def planned(
    desired: dict[Key, Resource], *, used: bool = False, before: dict[Key, Resource] = NODE
) -> tuple[Plan, str]:
    """The plan of a node that is deployed, by us or somebody else, and its line of Ironic."""
    found = [
        Observed(key, each.shape, OwnerTag("d", CLUSTER, note=each.note), used)
        if key.kind is KIND
        else Observed(key, each.shape, OwnerTag("d", CLUSTER, note=each.note))
        for key, each in before.items()
    ]
    rules = {IRONIC: dict(RULES)} | {host: {Kind.MACHINE: {"firmware": "live"}} for host in "xy"}
    plan = diff(cluster="d", cluster_id=CLUSTER, desired=desired, observed=found, rules=rules)
    lines = plan_text(plan).splitlines()
    return plan, next((each for each in lines if "ironic-standing" in each), "")


def test_another_image_rewrites_the_disk_and_is_a_replacement() -> None:
    plan, line = planned(resources(ironic=IMAGE))
    assert line.startswith("-/+ ironic-standing a on Ironic  (something else is deployed")
    assert {change.rule for step in plan.steps for change in step.changes} == {"replace"}
    assert planned(NODE) == (replace(plan, steps=(), unchanged=len(NODE)), "")


def test_a_node_that_is_only_to_be_available_is_undeployed() -> None:
    _, line = planned(resources(ironic="state: available"))
    assert line.startswith("  ~ ironic-standing a on Ironic")
    assert "it is undeployed, and what is on its disks is lost" in line


def test_a_deployed_node_that_leaves_is_undeployed_and_has_to_be_forced() -> None:
    plan, line = planned({})
    assert line.startswith("  - ironic-standing a on Ironic")
    assert "it is undeployed, and what is on its disks is lost" in line
    assert undeployed(plan.steps) == ["a"]
    assert plan.notes == ("deployed, and no longer in the file: a. `up` needs --force for this",)


@pytest.mark.parametrize("ironic", ["", IMAGE])
def test_what_up_refuses_of_nodes_in_use_is_told(ironic: str) -> None:
    plan, line = planned(resources(ironic=ironic) if ironic else {}, used=True)
    assert "it is in use in Ironic: `up` refuses this" in line
    assert undeployed(plan.steps) == []


@pytest.mark.parametrize(
    ("used", "said"),
    [
        (False, "it is undeployed, and what is on its disks is lost"),
        (True, "it is in use in Ironic: `down` refuses this without --force"),
    ],
)
def test_what_down_loses_or_refuses_of_deployed_nodes_is_told(*, used: bool, said: str) -> None:
    observed = [
        Observed(
            each.key,
            each.shape,
            OwnerTag("d", CLUSTER),
            used and each.key.kind is Kind.IRONIC_STANDING,
        )
        for each in NODE.values()
    ]
    plan = removal(cluster="d", cluster_id=CLUSTER, observed=observed)
    (why,) = (step.why for step in plan.steps if step.key.kind is Kind.IRONIC_STANDING)
    assert why == f"down; {said}"
    assert {step.why for step in plan.steps} == {"down", why}


@pytest.mark.parametrize("wanted", ["", IMAGE, "state: available"])
def test_what_ironic_refuses_of_protected_nodes_is_told(wanted: str) -> None:
    """Even with --force, with which other plans go on; a plan that leaves it deployed is silent."""
    before = {
        key: replace(each, shape=replace(each.shape, protected=True))
        if isinstance(each.shape, IronicStanding)
        else each
        for key, each in NODE.items()
    }
    _, line = planned(resources(ironic=wanted) if wanted else {}, before=before)
    assert "it is protected in Ironic, which refuses this even with --force" in line
    assert "it is undeployed" not in line
    assert planned(NODE, before=before)[1] == ""
    observed = [Observed(each.key, each.shape, OwnerTag("d", CLUSTER)) for each in before.values()]
    plan = removal(cluster="d", cluster_id=CLUSTER, observed=observed)
    (why,) = (step.why for step in plan.steps if step.key.kind is KIND)
    assert why.startswith("down; it is protected in Ironic")


def test_other_firmware_of_a_deployed_node_is_warned_of() -> None:
    bios = {
        key: replace(each, shape=replace(each.shape, firmware=Firmware.BIOS))
        if isinstance(each.shape, Machine)
        else each
        for key, each in NODE.items()
    }
    plan, _ = planned(bios)
    (note,) = plan.notes
    assert note.startswith("node a is deployed, and its firmware changes from uefi to bios")


def test_names_and_macs_that_others_have_in_ironic_are_refused() -> None:
    plan = diff(cluster="d", cluster_id=CLUSTER, desired=NODE, observed=[], rules={})
    (port,) = (each.shape for each in NODE.values() if isinstance(each.shape, IronicPort))
    (node,) = (each.shape for each in NODE.values() if isinstance(each.shape, IronicNode))
    mac = values(port.settings)["address"]
    other = UUID(int=9)
    assert are_enrolled(plan.steps)
    assert not are_enrolled([])
    assert against_held(plan.steps, [], Held({"b": other}, {})) == []
    assert against_held(plan.steps, [], Held({"a": node.uuid}, {mac: (port.uuid, other)})) == []
    name, address = against_held(plan.steps, [], Held({"a": other}, {mac: (other, UUID(int=8))}))
    assert name.startswith(f"node a: Ironic has another node named 'a' ({other}). Set `ironic")
    assert address.startswith(f"node a: Ironic has a port of node {UUID(int=8)} with the MAC {mac}")
    renamed = replace(node, uuid=other)
    ours = [Observed(Key(Kind.IRONIC_NODE, IRONIC, "z"), renamed, OwnerTag("d", CLUSTER))]
    assert against_held(plan.steps, ours, Held({"a": other}, {})) == []
