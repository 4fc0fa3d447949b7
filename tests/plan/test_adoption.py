"""Which machines of others a file means, and why some cannot be nodes."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from uuid import UUID

import pytest

from nospoon.clusterfile.load import load
from nospoon.errors import MOST_REASONS
from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, Cluster, Firmware
from nospoon.model.host_facts import Adoptable, HostFacts
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine, MachineNic
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.diff.adoption import Claimed, adopt, as_remembered, changed_by_owners, node_name
from nospoon.plan.identity import bridge_name

CLUSTER, OTHER = UUID(int=1), UUID(int=2)
HOSTS = "cluster: c\nhosts: {a: {libvirt: 'qemu:///system'}, b: simulated}\n"


def machine(number: int, name: str) -> Machine:
    return Machine(
        uuid=UUID(int=number), cpus=3, memory=1 << 30, arch=Arch.X86_64, firmware=Firmware.BIOS,
        tpm=False, disks=(), nics=(), boot_order=(BootDevice.NETWORK,),
        boot=BootMethod.NATIVE, adopted=name,
    )  # fmt: skip


def facts(*machines: Adoptable | Machine | None) -> HostFacts:
    there = tuple(
        each if isinstance(each, Adoptable) else Adoptable(each) for each in machines if each
    )
    some = HostFacts(frozenset(), frozenset(), tpm=False)
    return replace(some, machines=there)


def cluster(nodes: str) -> Cluster:
    return load(f"{HOSTS}nodes: [{nodes}]\n", file="f")


def names(found: Cluster) -> list[tuple[str, str]]:
    return [(node.name, node.host) for node in found.nodes]


def test_a_pattern_means_each_machine_once_and_in_the_order_of_hosts() -> None:
    there = {"a": facts(machine(1, "lab-1"), machine(2, "other")), "b": facts(machine(3, "lab-0"))}
    found = adopt(cluster("{adopt: lab-1, name: first}, {adopt: {match: lab-*}}"), CLUSTER, there)
    assert found.reasons == ()
    assert names(found.cluster) == [("first", "a"), ("lab-0", "b")]
    (first, _) = found.cluster.nodes
    assert (first.cpus, first.memory, first.boot_order) == (3, 1 << 30, (BootDevice.NETWORK,))
    assert set(found.machines) == {UUID(int=1), UUID(int=3)}
    again = adopt(found.cluster, CLUSTER, there)
    assert again.cluster == found.cluster, "a second look finds the same"


def test_nics_that_are_all_on_networks_of_the_cluster_are_the_nodes() -> None:
    file = f"{HOSTS}networks: {{prov: {{}}, other: {{}}}}\nnodes: [{{adopt: x}}]\n"
    own, others = bridge_name(CLUSTER, "prov"), bridge_name(OTHER, "prov")

    def nics(*bridges: str) -> list[tuple[str, str]]:
        plugged = tuple(
            MachineNic(f"52:54:00:00:00:0{i}", b, "e1000") for i, b in enumerate(bridges)
        )
        there = {"a": facts(replace(machine(1, "x"), nics=plugged)), "b": facts()}
        (node,) = adopt(load(file, file="f"), CLUSTER, there).cluster.nodes
        return [(nic.network, nic.mac) for nic in node.nics]

    assert nics(own, own) == [("prov", "52:54:00:00:00:00"), ("prov", "52:54:00:00:00:01")]
    assert nics(own, others) == nics("br0") == nics() == []


def test_what_a_host_says_in_place_of_a_mac_is_no_nic_of_a_node() -> None:
    file = f"{HOSTS}networks: {{prov: {{netboot: builtin}}}}\nnodes: [{{adopt: x}}]\n"
    nic = MachineNic("../../../etc/shadow", bridge_name(CLUSTER, "prov"), "e1000")
    there = {"a": facts(replace(machine(1, "x"), nics=(nic,))), "b": facts()}
    (node,) = adopt(load(file, file="f"), CLUSTER, there).cluster.nodes
    assert node.nics == ()


def test_an_entry_for_a_machine_that_one_before_it_adopts_is_noted() -> None:
    there = {"a": facts(machine(1, "x-1"), machine(2, "x-2")), "b": facts()}
    nodes = (
        f"{{adopt: x-1, name: a}}, {{adopt: x-1, name: b}}, {{adopt: {{match: x-*}}}}, "
        f"{{adopt: x-2, name: c}}, {{adopt: {UUID(int=1)}}}, {{adopt: {{match: 'x*'}}}}"
    )
    found = adopt(cluster(nodes), CLUSTER, there)
    assert names(found.cluster) == [("a", "a"), ("x-2", "a")]
    assert found.reasons == ()
    assert found.skipped == (
        "adopt x-1 changes nothing: an entry before it adopts x-1 on host a",
        "adopt x-2 changes nothing: an entry before it adopts x-2 on host a",
        f"adopt {UUID(int=1)} changes nothing: an entry before it adopts x-1 on host a",
    )


def _calls(count: int, *, gone: bool) -> int:
    """Of functions, to find as many machines by their names, or to find them gone."""
    named = ", ".join(f"{{adopt: m{number}, bmc: {{protocols: []}}}}" for number in range(count))
    machines = [machine(number + 1, f"m{number}") for number in range(count)]
    known = [Claimed("a", each.adopted, each) for each in machines]
    there = [replace(each, adopted=f"x{each.adopted}") for each in machines] if gone else machines
    read, hosts = cluster(named), {"a": facts(*there), "b": facts()}
    events = Counter[str]()
    before = sys.getprofile()
    sys.setprofile(lambda _frame, event, _argument: events.update((event,)))
    try:
        found = adopt(read, CLUSTER, hosts, known, lost=gone)
    finally:
        sys.setprofile(before)
    assert len(found.cluster.nodes) == count
    assert len(found.reasons) == (MOST_REASONS + 1 if gone else 0)
    return events["call"] + events["c_call"]


@pytest.mark.parametrize("gone", [False, True])
def test_the_work_to_find_machines_by_name_grows_with_their_number_alone(*, gone: bool) -> None:
    assert _calls(1500, gone=gone) < 4 * _calls(500, gone=gone), (
        "3 times as many, 9 times the pairs"
    )


def test_a_uuid_means_its_machine_in_any_case() -> None:
    uuid = UUID(int=0xABC)
    there = {"a": facts(replace(machine(1, "x"), uuid=uuid)), "b": facts()}
    found = adopt(cluster(f"{{adopt: '{str(uuid).upper()}'}}"), CLUSTER, there)
    assert names(found.cluster) == [("x", "a")]


@pytest.mark.parametrize(
    ("nodes", "there", "reason"),
    [
        ("{adopt: x}", facts(), "no such machine on a, b."),
        ("{adopt: x}", facts(machine(1, "y")), "There: y."),
        ("{adopt: x}", facts(Adoptable(machine(1, "x"), made=True)), "nospoon made it"),
        ("{adopt: x}", facts(Adoptable(machine(1, "x"), hindrance="it is odd.")), "it is odd."),
        (
            "{adopt: x}",
            facts(Adoptable(machine(1, "x"), tag=OwnerTag("d", OTHER))),
            "it is a node of another cluster",
        ),
        (
            "{adopt: x, name: z}",
            facts(Adoptable(machine(1, "x"), tag=OwnerTag("d", CLUSTER), node="x")),
            "it is node x of this cluster, and would be z.",
        ),
        (
            "{adopt: x}, {adopt: y, name: x}",
            facts(machine(1, "x"), machine(2, "y")),
            "y on host a would be node x, which is x on host a.",
        ),
        ("{name: x}, {adopt: x}", facts(machine(1, "x")), "node x, which is made by the file."),
    ],
)
def test_what_cannot_be_a_node_is_told(nodes: str, there: HostFacts, reason: str) -> None:
    found = adopt(cluster(nodes), CLUSTER, {"a": there, "b": facts()})
    assert len(found.reasons) == 1
    assert reason in found.reasons[0]


@pytest.mark.parametrize("adopt_", ["{adopt: {match: lab-*}}", f"{{adopt: '{UUID(int=1)}'}}"])
def test_a_node_keeps_its_name_when_its_owner_renames_the_machine(adopt_: str) -> None:
    tag = OwnerTag("d", CLUSTER)
    there = {"a": facts(Adoptable(machine(1, "lab-new"), tag=tag, node="lab-1")), "b": facts()}
    found = adopt(cluster(adopt_), CLUSTER, there)
    assert (found.reasons, names(found.cluster)) == ((), [("lab-1", "a")])


def test_a_machine_that_is_adopted_by_a_name_that_its_owner_changed_is_reported_so() -> None:
    there = {"a": facts(machine(1, "new"), machine(2, "other")), "b": facts()}
    before = [Claimed("a", "old", machine(1, "old"))]
    (reason,) = adopt(cluster("{adopt: old}"), CLUSTER, there, before).reasons
    assert "adopt old: its owner renamed it: write 'new'." in reason
    there = {"a": facts(machine(1, "new"), machine(3, "old")), "b": facts()}
    found = adopt(cluster("{adopt: old}"), CLUSTER, there, before)
    assert (found.reasons, set(found.machines)) == ((), {UUID(int=3)})


def test_machines_that_a_pattern_would_call_the_same_are_told_apart() -> None:
    there = {"a": facts(machine(1, "vm-1"), machine(0xABC << 96, "VM_1")), "b": facts()}
    found = adopt(cluster("{adopt: {match: '*'}}"), CLUSTER, there)
    assert (found.reasons, names(found.cluster)) == ((), [("vm-1", "a"), ("vm-1-00000abc", "a")])
    tag = OwnerTag("d", CLUSTER)
    has = Adoptable(machine(0xABC << 96, "VM_1"), tag=tag, node="vm-1")
    there = {"a": facts(machine(1, "vm-1"), has), "b": facts()}
    found = adopt(cluster("{adopt: {match: '*'}}"), CLUSTER, there)
    assert names(found.cluster) == [("vm-1-00000000", "a"), ("vm-1", "a")], "a node keeps its name"


def test_a_pattern_skips_what_cannot_be_adopted_and_says_so() -> None:
    odd = Adoptable(machine(1, "x1"), hindrance="it is odd.")
    anothers = Adoptable(machine(2, "x2"), tag=OwnerTag("d", OTHER))
    there = {"a": facts(odd, anothers, machine(3, "x3")), "b": facts()}
    found = adopt(cluster("{adopt: {match: x*}}"), CLUSTER, there)
    assert (found.reasons, names(found.cluster)) == ((), [("x3", "a")])
    assert [text.partition(": ")[2] for text in found.skipped] == [
        "it is odd.",
        "it is a node of another cluster. Release it there first.",
    ]


def test_who_only_looks_sees_nodes_whose_machines_are_lost() -> None:
    before = [Claimed("a", "mine", machine(1, "lab-1")), Claimed("a", "left", machine(2, "other"))]
    found = adopt(cluster("{adopt: lab-1}"), CLUSTER, {"a": facts(), "b": facts()}, before)
    assert names(found.cluster) == []
    there = {"a": facts(), "b": facts()}
    found = adopt(cluster("{adopt: lab-1}"), CLUSTER, there, before, lost=True)
    assert names(found.cluster) == [("mine", "a")]
    assert "no such machine" in found.reasons[0]


def test_a_name_that_two_hosts_have_needs_a_host() -> None:
    there = {"a": facts(machine(1, "x")), "b": facts(machine(2, "x"))}
    (reason,) = adopt(cluster("{adopt: x}"), CLUSTER, there).reasons[:1]
    assert "there is one on each of a and b. Name its `host`." in reason
    assert names(adopt(cluster("{adopt: x, host: b}"), CLUSTER, there).cluster) == [("x", "b")]


def test_a_pattern_passes_over_machines_that_nospoon_made() -> None:
    there = {"a": facts(Adoptable(machine(1, "x1"), made=True), machine(2, "x2")), "b": facts()}
    found = adopt(cluster("{adopt: {match: x*}}"), CLUSTER, there)
    assert (found.reasons, names(found.cluster)) == ((), [("x2", "a")])


def test_hosts_without_machines_of_others_are_told() -> None:
    nobody = replace(facts(), machines=None)
    (reason,) = adopt(cluster("{adopt: x}"), CLUSTER, {"a": nobody, "b": nobody}).reasons
    assert "no machines of others can be on host a, host b" in reason


def test_a_host_that_is_away_has_what_was_claimed_there() -> None:
    there = {"a": HostFacts.of_one_away("asleep"), "b": facts()}
    before = [Claimed("a", "mine", machine(1, "lab-1"))]
    found = adopt(cluster("{adopt: {match: lab-*}}"), CLUSTER, there, before)
    assert (found.reasons, names(found.cluster)) == ((), [("mine", "a")])
    assert names(as_remembered(cluster("{adopt: {match: lab-*}}"), CLUSTER, before)) == [
        ("mine", "a")
    ]


def test_what_an_owner_changed_is_told_by_field() -> None:
    was, now = machine(1, "x"), replace(machine(1, "x"), cpus=4)
    key = Key(Kind.MACHINE, "a", "x")
    changed = changed_by_owners([Claimed("a", "x", was)], {key: Resource(key, now)})
    assert [(each.field, each.observed, each.desired) for each in changed["x"]] == [
        ("cpus", "3", "4")
    ]
    assert changed_by_owners([Claimed("a", "x", was)], {key: Resource(key, was)}) == {}
    asking = replace(was, boot=BootMethod.SCRIPT)
    assert changed_by_owners([Claimed("a", "x", was)], {key: Resource(key, asking)}) == {}
    renamed = changed_by_owners([Claimed("a", "x", was)], {key: Resource(key, machine(1, "y"))})
    assert [(each.field, each.desired) for each in renamed["x"]] == [("name", "y")]


@pytest.mark.parametrize(
    ("machine_name", "node"),
    [("Lab_VM 1", "lab-vm-1"), ("--", "machine"), ("ü", "machine"), ("a" * 80, "a" * 63)],
)
def test_names_of_nodes_are_made_of_names_of_machines(machine_name: str, node: str) -> None:
    assert node_name(machine_name) == node


def test_a_uuid_that_a_node_of_another_cluster_has_is_refused() -> None:
    there = {"a": facts(machine(1, "lab-1"), machine(2, "lab-2")), "b": facts()}

    def elsewhere(uuid: UUID) -> str:
        return "your cluster x" if uuid == UUID(int=1) else ""

    found = adopt(cluster("{adopt: lab-1}"), CLUSTER, there, elsewhere=elsewhere)
    (reason,) = found.reasons
    assert reason.startswith(
        "nodes: adopt lab-1: lab-1 on host a: a node of your cluster x has its UUID."
    )
    found = adopt(cluster("{adopt: {match: '*'}}"), CLUSTER, there, elsewhere=elsewhere)
    assert names(found.cluster) == [("lab-2", "a")]
    assert len(found.skipped) == 1
