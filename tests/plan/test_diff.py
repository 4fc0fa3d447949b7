"""What a difference between desired and observed becomes."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine, MachineDisk, MachineNic
from nospoon.model.resources.netboot import NetbootService
from nospoon.model.resources.networks import Link
from nospoon.model.resources.resource import Observed, Resource, Shape
from nospoon.model.resources.storage import Pool, Volume
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.allocate import Endpoint
from nospoon.plan.addresses.notes import Noted, written
from nospoon.plan.addresses.pdus import Socket
from nospoon.plan.diff.diff import diff, field_changes, removal
from nospoon.plan.document import document
from nospoon.plan.order.order import Half, moves
from nospoon.plan.order.steps import Action, Plan
from nospoon.plan.text import plan_text

CLUSTER = UUID("00000000-0000-0000-0000-00000000abcd")
TAG = OwnerTag("d", CLUSTER)
POOL, VOLUME, LINK, MACHINE, NETBOOT = (
    Key(Kind.POOL, "h", "p"),
    Key(Kind.VOLUME, "h", "n0-0"),
    Key(Kind.NETWORK, "h", "provision"),
    Key(Kind.MACHINE, "h", "n0"),
    Key(Kind.NETBOOT, "h", "provision"),
)
SERVER = Machine(
    uuid=UUID(int=7),
    cpus=1,
    memory=1 << 30,
    arch=Arch.X86_64,
    firmware=Firmware.BIOS,
    tpm=False,
    disks=(MachineDisk("n0-0", "virtio", "s"),),
    nics=(MachineNic("02:00:00:00:00:01", "br0", "virtio"),),
    boot_order=(BootDevice.DISK,),
    boot=BootMethod.NATIVE,
)
SHAPES: dict[Key, Shape] = {
    POOL: Pool("/p"),
    LINK: Link("br0"),
    NETBOOT: NetbootService("br0", "172.30.0.1/24", ("172.30.0.2", "172.30.0.254"), ()),
    VOLUME: Volume("p", 1 << 30),
    MACHINE: SERVER,
}
NEEDS = {NETBOOT: (LINK,), VOLUME: (POOL,), MACHINE: (VOLUME, LINK)}
DESIRED = {key: Resource(key, shape, NEEDS.get(key, ())) for key, shape in SHAPES.items()}
RULES = {
    "h": {
        Kind.MACHINE: {"boot_order": "live", "cpus": "at power-off", "nics": "at power-off"},
        Kind.VOLUME: {"size": "live"},
    }
}


def seen(*, running: bool = False, **changed: Shape) -> list[Observed]:
    shapes = {key: changed.get(key.kind.value, shape) for key, shape in SHAPES.items()}
    return [
        Observed(key, shape, TAG, running=running and key == MACHINE)
        for key, shape in shapes.items()
    ]


def plan_for(observed: list[Observed]) -> Plan:
    return diff(cluster="c", cluster_id=CLUSTER, desired=DESIRED, observed=observed, rules=RULES)


def actions(plan: Plan) -> dict[str, Action]:
    return {step.key.kind.value: step.action for step in plan.steps}


def test_nothing_there_creates_everything_in_order() -> None:
    plan = plan_for([])
    assert actions(plan) == {key.kind.value: Action.CREATE for key in SHAPES}
    order = [key.kind for key, _ in moves(plan)]
    assert order.index(Kind.POOL) < order.index(Kind.VOLUME) < order.index(Kind.MACHINE)
    assert order.index(Kind.NETWORK) < order.index(Kind.NETBOOT)


def test_everything_as_desired_is_an_empty_plan() -> None:
    plan = plan_for(seen())
    assert plan.empty
    assert plan.unchanged == len(SHAPES)
    assert "Nothing to do" in plan_text(plan)


@pytest.mark.parametrize(
    ("field", "value", "action", "late"),
    [
        ("boot_order", (BootDevice.NETWORK,), Action.CHANGE, False),
        ("cpus", 2, Action.CHANGE, True),
        ("arch", Arch.AARCH64, Action.REPLACE, False),
    ],
)
def test_a_field_changes_as_its_rule_says(
    field: str,
    value: object,
    action: Action,
    late: bool,  # noqa: FBT001  (a table's column)
) -> None:
    plan = plan_for(seen(running=True, machine=replace(SERVER, **{field: value})))  # type: ignore[arg-type]
    (step,) = plan.steps
    assert (step.action, step.at_power_off) == (action, late)
    assert [change.field for change in step.changes] == [field]


def test_a_change_at_power_off_of_a_stopped_machine_is_no_late_one() -> None:
    (step,) = plan_for(seen(machine=replace(SERVER, cpus=3))).steps
    assert not step.at_power_off


def test_a_replaced_volume_takes_a_running_machine_along() -> None:
    observed = seen(running=True, volume=Volume("p", 1 << 30, image="old"))
    assert actions(plan_for(observed)) == {"volume": Action.REPLACE, "machine": Action.REPLACE}
    order = list(moves(plan_for(observed)))
    assert order == [
        (MACHINE, Half.REMOVE),
        (VOLUME, Half.REMOVE),
        (VOLUME, Half.MAKE),
        (MACHINE, Half.MAKE),
    ]


def test_a_replaced_volume_leaves_a_stopped_machine_alone() -> None:
    observed = seen(volume=Volume("p", 1 << 30, image="old"))
    assert actions(plan_for(observed)) == {"volume": Action.REPLACE}


def test_what_a_machine_loses_is_removed_after_it_is_changed_to_be_without() -> None:
    more = (*SERVER.disks, MachineDisk("n0-1", "virtio", "t"))
    nics = (*SERVER.nics, MachineNic("02:00:00:00:00:02", "br1", "virtio"))
    disk, other = Key(Kind.VOLUME, "h", "n0-1"), Key(Kind.NETWORK, "h", "storage")
    observed = [
        *seen(machine=replace(SERVER, disks=more, nics=nics)),
        Observed(disk, Volume("p", 1 << 20), TAG),
        Observed(other, Link("br1"), TAG),
    ]
    rules = {"h": {**RULES["h"], Kind.MACHINE: {"disks": "live", "nics": "live"}}}
    plan = diff(cluster="c", cluster_id=CLUSTER, desired=DESIRED, observed=observed, rules=rules)
    order = list(moves(plan))
    assert set(order) == {(MACHINE, Half.MAKE), (disk, Half.REMOVE), (other, Half.REMOVE)}
    assert order[0] == (MACHINE, Half.MAKE)
    assert all((MACHINE, Half.MAKE) in moves(plan)[each].waits for each in order[1:])


@pytest.mark.parametrize("running", [False, True])
def test_a_machine_is_made_again_where_its_disks_come_to_lie(*, running: bool) -> None:
    plan = plan_for(seen(running=running, pool=Pool("/elsewhere")))
    assert actions(plan) == dict.fromkeys(("pool", "volume", "machine"), Action.REPLACE)
    order = [key.kind for key, half in moves(plan) if half is Half.MAKE]
    assert order == [Kind.POOL, Kind.VOLUME, Kind.MACHINE]


@pytest.mark.parametrize("running", [False, True])
def test_a_machine_is_made_again_whose_disks_come_into_another_pool(*, running: bool) -> None:
    plan = plan_for(seen(running=running, volume=Volume("earlier", 1 << 30)))
    assert actions(plan) == dict.fromkeys(("volume", "machine"), Action.REPLACE)


def test_what_stands_before_a_machine_that_is_made_again_stays() -> None:
    """A BMC, with its log and its sessions; a link stands for it here."""
    front = Key(Kind.NETWORK, "h", "front")
    desired = {**DESIRED, front: Resource(front, Link("br1"), (MACHINE,))}
    observed = [*seen(pool=Pool("/elsewhere")), Observed(front, Link("br1"), TAG)]
    plan = diff(cluster="c", cluster_id=CLUSTER, desired=desired, observed=observed, rules=RULES)
    assert front not in {step.key for step in plan.steps}


def test_a_machine_that_loses_a_disk_while_its_pool_is_replaced_waits_for_nothing_of_itself() -> (
    None
):
    more = (*SERVER.disks, MachineDisk("n0-1", "virtio", "t"))
    disk = Observed(Key(Kind.VOLUME, "h", "n0-1"), Volume("p", 1 << 20), TAG)
    observed = [*seen(machine=replace(SERVER, disks=more), pool=Pool("/elsewhere")), disk]
    rules = {"h": {**RULES["h"], Kind.MACHINE: {"disks": "live"}}}
    plan = diff(cluster="c", cluster_id=CLUSTER, desired=DESIRED, observed=observed, rules=rules)
    order = list(moves(plan))
    assert (POOL, Half.REMOVE) in order
    assert order.index((disk.key, Half.REMOVE)) < order.index((POOL, Half.REMOVE))
    assert order.index((VOLUME, Half.MAKE)) < order.index((MACHINE, Half.MAKE))


def test_a_dead_netboot_service_is_mended_and_a_failed_machine_is_left_to_its_user() -> None:
    observed = [
        replace(each, fault="dead") if each.key.kind in {Kind.NETBOOT, Kind.MACHINE} else each
        for each in seen()
    ]
    assert actions(plan_for(observed)) == {"netboot": Action.CHANGE}


def test_what_nobody_desires_any_more_is_deleted() -> None:
    extra = Observed(Key(Kind.MACHINE, "h", "n9"), replace(SERVER, uuid=UUID(int=9)), TAG)
    (step,) = plan_for([*seen(), extra]).steps
    assert (step.action, step.key.name) == (Action.DELETE, "n9")


def test_removal_goes_from_the_top_down() -> None:
    plan = removal(cluster="c", cluster_id=CLUSTER, observed=seen())
    order = [key for key, _ in moves(plan)]
    assert order.index(MACHINE) < order.index(VOLUME) < order.index(POOL)
    assert max(order.index(MACHINE), order.index(NETBOOT)) < order.index(LINK)


def test_removed_nodes_are_listed_in_the_order_in_which_people_count() -> None:
    names = ["n1", "n2", "n10"]
    found = [Observed(Key(Kind.MACHINE, "h", each), SERVER, TAG) for each in reversed(names)]
    plan = removal(cluster="c", cluster_id=CLUSTER, observed=found)
    assert [step.key.name for step in plan.steps] == names
    gone = [step for step in plan_for([*seen(), *found]).steps if step.action is Action.DELETE]
    assert [step.key.name for step in gone] == names


def test_what_only_a_running_machine_has_is_removed_after_it() -> None:
    disk = Observed(Key(Kind.VOLUME, "h", "n0-1"), Volume("p", 1 << 20), TAG)
    was = replace(SERVER, disks=(*SERVER.disks, MachineDisk("n0-1", "virtio", "t")))
    there = [
        replace(each, live=was) if each.key == MACHINE else each for each in seen(running=True)
    ]
    plan = removal(cluster="c", cluster_id=CLUSTER, observed=[*there, disk])
    assert (MACHINE, Half.REMOVE) in moves(plan)[disk.key, Half.REMOVE].waits


def test_the_fingerprint_is_that_of_what_will_be_done() -> None:
    assert plan_for([]).fingerprint == plan_for([]).fingerprint
    assert plan_for([]).fingerprint != plan_for(seen()).fingerprint
    other = replace(SERVER, cpus=3)
    assert plan_for(seen(machine=other)).fingerprint != plan_for(seen()).fingerprint


def test_a_plan_reads_as_text_and_as_json() -> None:
    plan = plan_for(seen(running=True, machine=replace(SERVER, cpus=4)))
    assert "~ (at power-off) machine n0 on h" in plan_text(plan)
    assert "cpus: 4 -> 1  [at power-off]" in plan_text(plan)
    (step,) = document(plan).steps
    assert (step.action, step.name, step.at_power_off) == ("change", "n0", True)


def test_a_tag_that_notes_something_else_is_written_anew_and_one_without_a_note_is_left() -> None:
    desired = {MACHINE: Resource(MACHINE, SERVER, note="now")}

    def steps(note: str) -> list[Action]:
        found = [Observed(MACHINE, SERVER, replace(TAG, note=note))]
        plan = diff(cluster="c", cluster_id=CLUSTER, desired=desired, observed=found, rules={})
        return [step.action for step in plan.steps]

    assert steps("") == steps("now") == []
    assert steps("then") == [Action.CHANGE]


def test_a_network_that_is_recreated_takes_its_network_boot_along() -> None:
    rules = {"h": {Kind.NETWORK: {"mtu": "live"}}}
    observed = seen(network=Link("br0", mtu=9000))
    plan = diff(cluster="c", cluster_id=CLUSTER, desired=DESIRED, observed=observed, rules=rules)
    assert {step.key: (step.action, step.why) for step in plan.steps} == {
        LINK: (Action.CHANGE, "mtu differs"),
        NETBOOT: (Action.CHANGE, f"{LINK} changes"),
    }
    assert [key for key, _ in moves(plan)] == [LINK, NETBOOT]


def test_of_long_lists_only_what_differs_is_told() -> None:
    more = MachineNic("02:00:00:00:00:02", "br1", "virtio")
    plan = plan_for(seen(machine=replace(SERVER, nics=(*SERVER.nics, more), disks=())))
    text = plan_text(plan)
    assert "nics: [02:00:00:00:00:02 on br1, virtio] -> none  [at power-off]" in text
    assert "disks: none -> [n0-0 on virtio, serial s" in text
    turned = replace(SERVER, nics=(more, *SERVER.nics))
    other = replace(SERVER, nics=(*SERVER.nics, more))
    (change,) = field_changes(turned, other, {})
    assert change.observed.index("00:02") < change.observed.index("00:01"), "their order"


def test_a_note_in_a_tag_is_told_in_words() -> None:
    noted = written(Noted("h", Endpoint("127.0.0.1", 6230, 8000), Socket(1, 3, "127.0.0.1", 161)))
    desired = {**DESIRED, MACHINE: replace(DESIRED[MACHINE], note=noted)}
    before = written(Noted("h", Endpoint("127.0.0.1", 0, 0)))
    observed = [replace(each, tag=replace(TAG, note=before)) if each.key == MACHINE else each
                for each in seen()]  # fmt: skip
    plan = diff(cluster="c", cluster_id=CLUSTER, desired=desired, observed=observed, rules=RULES)
    assert (
        "note in its tag: host h, BMC without ports -> host h, BMC at 127.0.0.1 (ipmi 6230, "
        "redfish 8000), outlet 3 at 127.0.0.1:161"
    ) in plan_text(plan)


def test_what_changes_live_needs_no_power_off() -> None:
    other = (BootDevice.NETWORK,)
    for had, told in (
        (replace(SERVER, boot_order=other), ()),
        (replace(SERVER, boot_order=other, cpus=7), ("n0 has to be powered off for cpus 7 -> 1",)),
    ):
        observed = [
            replace(each, shape=replace(SERVER, boot_order=other), live=had)
            for each in seen(running=True)
            if each.key == MACHINE
        ]
        assert plan_for(observed).notes == told
