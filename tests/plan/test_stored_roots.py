"""Former roots of servers: what is stored before a server goes, of what the next one is made."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, CloudInit, Firmware, Host, Node
from nospoon.model.connections import OpenStack
from nospoon.model.images import StoredRoot
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine, MachineDisk
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.storage import Image, KeptRoot
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.diff.diff import diff, removal
from nospoon.plan.diff.losses import Losses
from nospoon.plan.diff.targets import only
from nospoon.plan.order.order import Half, moves
from nospoon.plan.order.steps import Plan
from nospoon.plan.roots import Roots, role_mark, with_kept_roots, with_roots
from nospoon.plan.text import plan_text

ID = UUID(int=7)
TAG = OwnerTag("d", ID, 1, "t")
NODE = Node(name="n", kind=NodeKind.VM)
HOST = Host(name="cloud", connection=OpenStack("c", "at"))
MACHINE = Key(Kind.MACHINE, "cloud", "n")


def image(name: str) -> Resource:
    return Resource(Key(Kind.IMAGE, "cloud", name), Image("", name * 64, "raw", 1 << 20))


def machine(root: str, *needs: Key) -> Resource:
    shape = Machine(
        uuid=ID, cpus=1, memory=1 << 30, arch=Arch.X86_64, firmware=Firmware.BIOS, tpm=False,
        disks=(MachineDisk(root, "virtio", "", size=1 << 30),), nics=(),
        boot_order=(BootDevice.DISK,), boot=BootMethod.NONE, kind=NodeKind.VM,
    )  # fmt: skip
    return Resource(MACHINE, shape, needs, "n")


def desired(of: str, kind: NodeKind = NodeKind.VM) -> dict[Key, Resource]:
    """As the resolver says it."""
    made = machine(of, image(of).key)
    assert isinstance(made.shape, Machine)
    parts = (image(of), replace(made, shape=replace(made.shape, kind=kind)))
    return {each.key: each for each in parts}


def former(number: int, volume: str, *, fault: str = "") -> Observed:
    key = Key(Kind.SNAPSHOT, "cloud", f"n.former.{number}")
    return Observed(key, KeptRoot("n", f"former.{number}", volume), TAG, fault=fault)


def found(*resources: Resource) -> list[Observed]:
    return [Observed(e.key, e.shape, TAG, running=e.key.kind is Kind.MACHINE) for e in resources]


def settled(wanted: dict[Key, Resource], there: list[Observed], node: Node = NODE) -> Roots:
    return with_roots(wanted, there, [node], hosts=[HOST])


def root_of(roots: Roots) -> str:
    shape = roots.desired[MACHINE].shape
    assert isinstance(shape, Machine)
    return shape.disks[0].volume


def planned(roots: Roots, there: list[Observed]) -> Plan:
    desired = with_kept_roots(roots.desired, there)
    return diff(cluster="c", cluster_id=ID, desired=desired, observed=there, rules={})


def actions(plan: Plan) -> set[tuple[str, str]]:
    return {(step.key.name, str(step.action)) for step in plan.steps}


def with_marks(roles: str) -> Node:
    return replace(NODE, cloud_init=CloudInit(roles=roles))


@pytest.mark.parametrize(
    "root",
    [
        StoredRoot("image-a-bios"),
        StoredRoot("glance:6f:1", former=3),
        StoredRoot("snapshot:c:s:n", role_mark("f" * 64)),
        StoredRoot("image-a", role_mark("0123456789"), 0),
    ],
)
def test_the_name_of_a_root_says_what_it_is(root: StoredRoot) -> None:
    assert StoredRoot.of(str(root)) == root


def test_a_root_of_no_roles_that_was_no_former_one_is_called_as_its_image() -> None:
    there = found(*desired("a").values())
    for observed in ([], there):
        roots = settled(desired("a"), observed)
        assert (dict(roots.desired), roots.notes) == (desired("a"), ())
    assert planned(settled(desired("a"), there), there).empty


def test_the_root_of_a_server_is_stored_before_the_server_goes() -> None:
    there = found(*desired("a").values())
    roots = settled(desired("b"), there)
    assert (root_of(roots), roots.returns) == ("b", ())
    plan = planned(roots, there)
    assert actions(plan) == {
        ("b", "create"), ("n.former.0", "create"), ("n", "replace"), ("a", "delete")
    }  # fmt: skip
    (step,) = [each for each in plan.steps if each.key.kind is Kind.SNAPSHOT]
    assert step.desired is not None
    assert step.desired.shape == KeptRoot("n", "former.0", "a")
    order = list(moves(plan))
    stored = order.index((step.key, Half.MAKE))
    assert order.index((image("b").key, Half.MAKE)) < stored, "it is off for as short as can be"
    assert stored < order.index((MACHINE, Half.REMOVE)) < order.index((MACHINE, Half.MAKE))
    assert order.index((MACHINE, Half.REMOVE)) < order.index((image("a").key, Half.REMOVE))
    assert "what is on its disks is lost" not in plan_text(plan)
    assert actions(only(plan, roots.desired, {"n"})) >= {("n.former.0", "create")}
    assert Losses.of(plan).images == frozenset()


def test_the_image_of_a_former_root_brings_that_back_and_stores_the_other() -> None:
    there = [*found(*desired("b").values()), former(0, "a")]
    assert planned(settled(desired("b"), there), there).empty
    roots = settled(desired("a"), there)
    assert (root_of(roots), roots.returns) == ("former.0:a", ("n",))
    back, kept = roots.notes
    assert "n returns to the root that it had of this image and roles (former.0)" in back
    assert "is kept as an image of its cloud" in kept
    plan = planned(roots, there)
    assert actions(plan) == {("n.former.1", "create"), ("n", "replace"), ("b", "delete")}
    now = [*found(machine("former.0:a")), former(0, "a"), former(1, "b")]
    assert planned(settled(desired("a"), now), now).empty, "a server keeps what it was made of"


def test_an_upgrade_of_a_server_of_a_former_root_keeps_one_alone() -> None:
    there = [*found(machine("former.0:a")), former(0, "a"), former(1, "b")]
    roots = settled(desired("c"), there)
    assert roots.notes[0] == "what is on root n.former.1 is lost: one former root is kept of n"
    plan = planned(roots, there)
    assert actions(plan) == {
        ("c", "create"), ("n.former.2", "create"), ("n", "replace"), ("n.former.0", "delete"),
        ("n.former.1", "delete"),
    }  # fmt: skip
    order = list(moves(plan))
    gone = order.index((former(0, "a").key, Half.REMOVE))
    assert order.index((MACHINE, Half.REMOVE)) < gone, "Nova needs it as long as its server is"
    assert actions(only(plan, roots.desired, {"n"})) == actions(plan)
    again = settled(desired("b"), there)
    assert root_of(again) == "former.1:b"
    assert Key(Kind.SNAPSHOT, "cloud", "n.former.1") in again.desired


def test_roots_of_an_upgrade_that_did_not_end_are_not_taken_for_later_ones() -> None:
    """A server that stays, or was started meanwhile, goes on writing to its root."""
    there = [*found(*desired("a").values()), former(0, "a"), former(1, "b", fault="saving")]
    assert actions(planned(settled(desired("a"), there), there)) == {
        ("n.former.0", "delete"), ("n.former.1", "delete")
    }  # fmt: skip
    upgraded = settled(desired("b"), there)
    assert root_of(upgraded) == "b", "half of one is none"
    assert ("n.former.2", "create") in actions(planned(upgraded, there))
    assert ("n.former.0", "delete") in actions(planned(upgraded, there))


def test_a_server_that_is_gone_is_made_of_the_latest_root_that_was_stored() -> None:
    there = [former(9, "a"), former(10, "former.9:a"), former(8, "b")]
    roots = settled(desired("a"), there)
    assert (root_of(roots), roots.returns) == ("former.10:a", ())
    assert actions(planned(roots, there)) == {("n", "create"), ("n.former.8", "delete")}
    older = settled(desired("b"), there)
    assert root_of(older) == "former.8:b"
    assert actions(planned(older, there)) == {("n", "create"), ("n.former.9", "delete")}
    assert root_of(settled(desired("c"), there)) == "c"


def test_of_two_that_an_upgrade_left_which_died_the_later_one_stays() -> None:
    there = [*found(*desired("b").values()), former(0, "a"), former(1, "former.0:a")]
    roots = settled(desired("b"), there)
    assert actions(planned(roots, there)) == {("n.former.0", "delete")}


def test_a_server_stays_whose_root_others_removed_from_the_cloud() -> None:
    there = found(machine("former.0:a"))
    assert planned(settled(desired("a"), there), there).empty
    half = [*there, former(0, "a", fault="its image is deactivated")]
    assert actions(planned(settled(desired("a"), half), half)) == set()


def test_other_roles_are_another_root() -> None:
    one, two = with_marks("1" * 64), with_marks("2" * 64)
    there = found(*settled(desired("a"), [], one).desired.values())
    assert planned(settled(desired("a"), there, one), there).empty
    roots = settled(desired("a"), there, two)
    assert ("n.former.0", "create") in actions(planned(roots, there))
    name = root_of(settled(desired("a"), [], one))
    now = [*found(*settled(desired("a"), [], two).desired.values()), former(0, name)]
    assert root_of(settled(desired("a"), now, one)) == name.replace("role", "former.0:role")
    assert root_of(settled(desired("a"), now)) == "a"


def test_no_root_is_stored_of_nodes_that_keep_none() -> None:
    node = replace(NODE, keeps_root=False)
    there = [*found(machine("former.0:a")), former(0, "a"), former(1, "b")]
    stays = settled(desired("a"), there, node)
    assert stays.notes == ("what is on root n.former.1 is lost: no former root is kept of n",)
    assert actions(planned(stays, there)) == {("n.former.1", "delete")}
    gone = planned(settled(desired("c"), there, node), there)
    assert {each for each in actions(gone) if "former" in each[0]} == {
        ("n.former.0", "delete"), ("n.former.1", "delete")
    }  # fmt: skip
    assert "what is on its disks is lost" in plan_text(gone)


def test_no_root_is_stored_of_a_server_that_failed() -> None:
    there = [replace(each, fault="no host") for each in found(*desired("a").values())]
    assert planned(settled(desired("a"), there), found(*desired("a").values())).empty
    roots = settled(desired("b"), there)
    assert roots.notes == ("what is on the root of n is lost: its server has failed (no host)",)
    assert ("n.former.0", "create") not in actions(planned(roots, there))


def test_the_plan_says_what_its_cloud_stores_no_roots_of() -> None:
    node = replace(NODE, kind=NodeKind.CONTAINER)
    there = found(*desired("a", NodeKind.CONTAINER).values())
    assert settled(desired("a", NodeKind.CONTAINER), there, node).notes == ()
    roots = settled(desired("b", NodeKind.CONTAINER), there, node)
    assert roots.notes == (
        "what is on the root of n is lost: cloud stores no roots of nodes of kind container",
    )
    assert ("n.former.0", "create") not in actions(planned(roots, there))


def test_a_node_that_moves_to_a_cloud_leaves_no_root_there() -> None:
    there = found(replace(machine("n-0"), key=replace(MACHINE, place="other")))
    roots = settled(desired("a"), there)
    assert (dict(roots.desired), roots.notes) == (desired("a"), ())


def test_former_roots_go_with_their_node() -> None:
    there = [*found(machine("former.0:a")), former(0, "a"), former(1, "b")]
    order = list(moves(removal(cluster="c", cluster_id=ID, observed=there)))
    assert order.index((MACHINE, Half.REMOVE)) < order.index((there[1].key, Half.REMOVE))
    assert {key for key, _ in order} == {each.key for each in there}
    assert actions(only(planned(Roots({}), there), {}, {"n"})) == {
        (each.key.name, "delete") for each in there
    }
