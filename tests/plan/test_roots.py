"""Roots of VMs and containers: which one a machine has, which one is kept, and what is told."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, CloudInit, Firmware, Node
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine, MachineDisk
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.storage import Image, Pool, Volume
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.diff.diff import diff
from nospoon.plan.order.order import Half, moves
from nospoon.plan.order.steps import Action, Plan
from nospoon.plan.roots import Roots, among, with_roots

ID = UUID(int=7)
TAG = OwnerTag("d", ID, 1, "t")
POOL = Key(Kind.POOL, "h", "p")
NODE = Node(name="n", kind=NodeKind.VM)


def image(name: str) -> Resource:
    return Resource(Key(Kind.IMAGE, "h", name), Image("p", name * 64, "raw", 1 << 20), (POOL,))


def volume(name: str, of: str, host: str = "h") -> Resource:
    below = (Key(Kind.IMAGE, host, of),) if of else ()
    return Resource(Key(Kind.VOLUME, host, name), Volume("p", 1 << 30, of), (POOL, *below), "n")


def machine(*volumes: str) -> Resource:
    shape = Machine(
        uuid=ID, cpus=1, memory=1 << 30, arch=Arch.X86_64, firmware=Firmware.BIOS, tpm=False,
        disks=tuple(MachineDisk(each, "virtio", "s") for each in volumes), nics=(),
        boot_order=(BootDevice.DISK,), boot=BootMethod.NATIVE, kind=NodeKind.VM,
    )  # fmt: skip
    needs = tuple(Key(Kind.VOLUME, "h", each) for each in volumes)
    return Resource(Key(Kind.MACHINE, "h", "n"), shape, (POOL, *needs), "n")


def desired(of: str) -> dict[Key, Resource]:
    """As the resolver says it: the root has number 0, and there is another disk."""
    pool = Resource(POOL, Pool("/p"))
    parts = (pool, image(of), volume("n-0", of), volume("n-1", ""), machine("n-0", "n-1"))
    return {each.key: each for each in parts}


def found(*resources: Resource, running: bool = True) -> list[Observed]:
    return [
        Observed(each.key, each.shape, TAG, running=running and each.key.kind is Kind.MACHINE)
        for each in resources
    ]


def upgraded() -> list[Observed]:
    """A machine that was made of `a` and has `b` now."""
    there = (Resource(POOL, Pool("/p")), image("a"), image("b"), volume("n-0", "a"))
    return found(*there, volume("n-1", ""), volume("n-1000", "b"), machine("n-1000", "n-1"))


def before() -> list[Observed]:
    return found(*desired("a").values())


def root_of(roots: Roots) -> str:
    shape = roots.desired[Key(Kind.MACHINE, "h", "n")].shape
    assert isinstance(shape, Machine)
    assert shape.disks[1].volume == "n-1"
    return shape.disks[0].volume


def planned(roots: Roots, there: list[Observed]) -> Plan:
    rules = {"h": {Kind.MACHINE: {"disks": "at power-off"}}}
    return diff(cluster="c", cluster_id=ID, desired=roots.desired, observed=there, rules=rules)


def actions(plan: Plan) -> set[tuple[str, str]]:
    return {(step.key.name, str(step.action)) for step in plan.steps}


def test_a_new_node_and_one_whose_image_is_the_same_have_what_the_resolver_says() -> None:
    for there in ([], before()):
        roots = with_roots(desired("a"), there, [NODE])
        assert (dict(roots.desired), roots.notes) == (desired("a"), ())


def test_another_image_is_another_root_and_the_former_one_stays() -> None:
    there = before()
    roots = with_roots(desired("b"), there, [NODE])
    assert root_of(roots) == "n-1000"
    (note,) = roots.notes
    assert "the root that n has now (n-0) is kept" in note
    plan = planned(roots, there)
    assert actions(plan) == {("b", "create"), ("n-1000", "create"), ("n", "replace")}


def test_a_machine_goes_when_its_new_root_is_there() -> None:
    there = before()
    order = moves(planned(with_roots(desired("b"), there, [NODE]), there))
    off = order[Key(Kind.MACHINE, "h", "n"), Half.REMOVE]
    assert (Key(Kind.VOLUME, "h", "n-1000"), Half.MAKE) in off.waits
    assert list(order).index(off.id) > list(order).index(off.waits[0])


def test_the_former_image_brings_its_root_back_and_keeps_the_other() -> None:
    roots = with_roots(desired("a"), upgraded(), [NODE])
    assert root_of(roots) == "n-0"
    back, kept = roots.notes
    assert "n returns to the root that it had of this image (n-0)" in back
    assert "(n-1000) is kept" in kept
    assert actions(planned(roots, upgraded())) == {("n", "replace")}


def test_after_an_upgrade_and_a_rollback_there_is_nothing_to_do() -> None:
    roots = with_roots(desired("b"), upgraded(), [NODE])
    assert (root_of(roots), roots.notes) == ("n-1000", ())
    assert planned(roots, upgraded()).empty


def lost(there: list[Observed], name: str) -> list[Observed]:
    return [replace(e, fault="its file is gone") if e.key.name == name else e for e in there]


def test_a_root_or_volume_that_is_lost_is_made_again() -> None:
    for name in ("n-1000", "n-1"):
        there = lost(upgraded(), name)
        roots = with_roots(desired("b"), there, [NODE])
        (step,) = planned(roots, there).steps
        assert (step.key.name, step.action, step.why) == (name, Action.CHANGE, "its file is gone")


def test_no_node_returns_to_a_root_that_is_lost() -> None:
    there = lost(upgraded(), "n-0")
    roots = with_roots(desired("a"), there, [NODE])
    assert (root_of(roots), roots.returns) == ("n-0", ())
    assert actions(planned(roots, there)) == {("n-0", "change"), ("n", "replace")}
    kept = with_roots(desired("b"), there, [NODE])
    assert actions(planned(kept, there)) == {("n-0", "delete"), ("a", "delete")}


def test_one_former_root_is_kept_a_node() -> None:
    roots = with_roots(desired("c"), upgraded(), [NODE])
    assert root_of(roots) == "n-2000"
    assert "what is on root n-0 is lost: one former root is kept of n" in roots.notes
    plan = planned(roots, upgraded())
    gone = {step.key.name for step in plan.steps if step.action is Action.DELETE}
    assert gone == {"n-0", "a"}


@pytest.mark.parametrize("of", ["a", "b", "c"])
def test_a_node_that_moves_leaves_its_roots_and_returns_to_none(of: str) -> None:
    """They go with its place, whatever their images are."""
    there = [replace(e, key=replace(e.key, place="g")) for e in upgraded()]
    roots = with_roots(desired(of), there, [NODE])
    assert roots.returns == ()
    assert roots.notes == tuple(
        f"what is on root {name} is lost: it is on g, and n moves to h"
        for name in ("n-0", "n-1000")
    )
    steps = planned(roots, there).steps
    gone = {s.key.name for s in steps if s.action in {Action.DELETE, Action.REPLACE}}
    assert gone >= {"n-0", "n-1000"}


def test_what_stays_as_it_is_in_an_up_of_other_nodes_is_not_said() -> None:
    roots = with_roots(desired("a"), upgraded(), [NODE], targets=("m",))
    assert (root_of(roots), roots.notes) == ("n-0", ())
    named = with_roots(desired("a"), upgraded(), [NODE], targets=("m", "n"))
    assert len(named.notes) == 2


def test_who_wants_none_keeps_none() -> None:
    bare = replace(NODE, keeps_root=False)
    roots = with_roots(desired("b"), upgraded(), [bare])
    assert actions(planned(roots, upgraded())) == {("n-0", "delete"), ("a", "delete")}
    roots = with_roots(desired("c"), before(), [bare])
    assert roots.notes == ("what is on root n-0 is lost: no former root is kept of n",)
    assert ("n-0", "delete") in actions(planned(roots, before()))


def test_roots_of_an_upgrade_that_did_not_end_stay_until_the_next_one() -> None:
    there = upgraded() + found(image("c"), volume("n-2000", "c"))
    roots = with_roots(desired("b"), there, [NODE])
    assert root_of(roots) == "n-1000"
    assert planned(roots, there).empty
    roots = with_roots(desired("c"), there, [NODE])
    assert root_of(roots) == "n-2000"
    assert ("n-1000", "delete") not in actions(planned(roots, there))


def test_a_machine_that_is_gone_gets_the_root_of_its_image_and_all_others_stay() -> None:
    there = [each for each in upgraded() if each.key.kind is not Kind.MACHINE]
    roots = with_roots(desired("b"), there, [NODE])
    assert root_of(roots) == "n-1000"
    assert actions(planned(roots, there)) == {("n", "create")}


def test_a_machine_that_is_off_is_changed_and_not_replaced() -> None:
    there = found(*desired("a").values(), running=False)
    plan = planned(with_roots(desired("b"), there, [NODE]), there)
    assert ("n", "change") in actions(plan)


def test_bare_metal_has_disks_and_no_roots() -> None:
    metal = replace(NODE, kind=NodeKind.BAREMETAL)
    roots = with_roots(desired("b"), before(), [metal])
    assert roots.desired == desired("b")
    assert ("n-0", "replace") in actions(planned(roots, before()))


def test_disks_of_other_numbers_and_blank_ones_are_no_roots() -> None:
    strange = found(volume("n-2", "b"), volume("n-1000", ""), volume("other-0", "b"))
    roots = with_roots(desired("b"), before() + strange, [NODE])
    assert root_of(roots) == "n-1000"


def in_a_cloud(image: str, type_: str) -> dict[Key, Resource]:
    """As the resolver says it: a server names its image."""
    key = Key(Kind.IMAGE, "h", image)
    shape = Image("", "a" * 64, "raw", 1 << 20, Firmware.BIOS, type_)
    server = replace(machine(image), needs=(key,))
    return {each.key: each for each in (Resource(key, shape), server)}


@pytest.mark.parametrize("types", [("", "qemu"), ("qemu", "")])
def test_a_server_in_a_cloud_stays_where_its_image_got_another_machine_type(
    types: tuple[str, str],
) -> None:
    """Those of versions that sent none of it were to be made again, without what was on them."""
    first, second = types
    there, wanted = in_a_cloud("i", first), in_a_cloud("i-2", second)
    roots = with_roots(wanted, found(*there.values()), [NODE])
    assert roots.desired == there
    needs = (Key(Kind.IMAGE, "h", "i-2"),)
    beside = replace(machine("i-2"), key=Key(Kind.MACHINE, "h", "m"), needs=needs)
    roots = with_roots({**wanted, beside.key: beside}, found(*there.values()), [NODE])
    assert set(roots.desired) == {*there, *wanted, beside.key}, "others are made of it"


def test_a_server_in_a_cloud_is_made_again_of_another_image() -> None:
    there, wanted = in_a_cloud("i", ""), in_a_cloud("i-2", "")
    key = Key(Kind.IMAGE, "h", "i-2")
    shape = wanted[key].shape
    assert isinstance(shape, Image)
    wanted[key] = Resource(key, replace(shape, sha256="b" * 64))
    assert with_roots(wanted, found(*there.values()), [NODE]).desired == wanted


class Compared(str):
    """A name that counts with how many others it is compared."""

    __slots__ = ()
    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("targets", [0, 2000])
def test_nodes_that_return_are_looked_up_and_not_compared_with_each_other(targets: int) -> None:
    """A rollback of 20,000 containers stopped the event loop for seconds."""
    names = [Compared(f"n{each}") for each in range(4000)]
    assert among(names, [str(each) for each in names[:targets]]) == tuple(names[: targets or 4000])
    assert Compared.times < 100 * len(names)
    assert among(["a", "b"], ["b", "c"]) == ("b",)


def with_role(roles: str) -> Node:
    return replace(NODE, cloud_init=CloudInit(roles=roles))


def test_other_roles_are_another_root_of_the_same_image() -> None:
    one, two = with_role("1" * 64), with_role("2" * 64)
    first = root_of(with_roots(desired("a"), [], [one]))
    assert first == root_of(with_roots(desired("a"), [], [one])) != "n-0"
    there = found(
        Resource(POOL, Pool("/p")), image("a"), volume(first, "a"), volume("n-1", ""),
        machine(first, "n-1"),
    )  # fmt: skip
    assert root_of(with_roots(desired("a"), there, [one])) == first
    changed = with_roots(desired("a"), there, [two])
    second = root_of(changed)
    assert second not in ("n-0", first)
    assert "with its image and roles in the file again" in changed.notes[0]
    assert actions(planned(changed, there)) == {(second, "create"), ("n", "replace")}
    there += found(volume(second, "a"), running=False)
    there = [each for each in there if each.key.kind is not Kind.MACHINE]
    there += found(machine(second, "n-1"))
    back = with_roots(desired("a"), there, [one])
    assert (root_of(back), back.returns) == (first, ("n",))
    assert root_of(with_roots(desired("a"), there, [NODE])) == "n-0"
    other = root_of(with_roots(desired("b"), there, [two]))
    assert other not in ("n-0", first, second), "another image, too"
