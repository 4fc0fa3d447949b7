"""The address of a NIC that a machine still has is that NIC's, whatever the file says by now."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.clusterfile.load import load
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.netboot import NetbootService, Reservation
from nospoon.model.resources.resource import Observed
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan import identity
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.addresses.found_numbers import found_hosts, found_nics
from nospoon.plan.addresses.occupants import occupants
from nospoon.plan.diff.diff import diff
from nospoon.plan.diff.targets import only
from nospoon.plan.order.steps import Action, Plan, Step
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.resolve import resolve
from nospoon.providers.simulated.connection import RULES

ID = UUID("00000000-0000-0000-0000-00000000abcd")
OWN = {**RULES, Kind.NETBOOT: {"reservations": "live"}}
NETS = "net: {netboot: builtin, cidr: 10.9.0.0/28}, stor: {netboot: builtin, cidr: 10.8.0.0/28}"
PINNED = "{network: net, mac: '52:54:00:00:00:01'}"
OTHER = "{network: net, mac: '52:54:00:00:00:02'}"
Given = Mapping[str, str]


def mac(node: str, index: int) -> str:
    return identity.mac_address(identity.node_uuid(ID, node), index)


@dataclass(slots=True)
class World:
    """What is there, and what was decided; `up` does what its plan says at once."""

    nets: str = NETS
    there: dict[Key, Observed] = field(default_factory=dict)
    decided: Allocations = field(default_factory=Allocations)

    def plan(self, nodes: Given, *targets: str) -> Plan:
        listed = ", ".join(f"{{name: {name}, nics: [{nics}]}}" for name, nics in nodes.items())
        text = (
            f"cluster: dev\nhosts: {{h: {{libvirt: 'qemu:///system'}}}}\nnetworks: {{{self.nets}}}"
        )
        cluster = load(f"{text}\nnodes: [{listed}]", file="x")
        nics = tuple(occupants(self.there.values(), cluster=cluster, targets=targets))
        self.decided, reasons = allocate(cluster, self.decided, Occupied(nics=nics))
        assert not reasons
        desired = resolve(cluster, ID, self.decided, Surroundings({"h": "/p"}, {}, {}))
        whole = diff(
            cluster="dev", cluster_id=ID, desired=desired, observed=self.there.values(),
            rules={"h": OWN},
        )  # fmt: skip
        return only(whole, desired, targets)

    def up(self, nodes: Given, *targets: str) -> None:
        self.carry_out(self.plan(nodes, *targets))
        assert self.plan(nodes, *targets).empty, "what is done is done"

    def carry_out(self, plan: Plan) -> None:
        for step in plan.steps:
            self._do(step)

    def _do(self, step: Step) -> None:
        if step.action is not Action.CHANGE:
            self.there.pop(step.removes, None)
        if step.desired is None:
            return
        before = self.there.get(step.key)
        live = None
        if before is not None and before.running:
            live = before.live or before.shape
        shape = step.desired.shape
        self.there[step.key] = Observed(
            step.key, shape, OwnerTag("d", ID),
            running=live is not None, live=live if live != shape else None,
        )  # fmt: skip

    def power(self, node: str, *, on: bool) -> None:
        key = Key(Kind.MACHINE, "h", node)
        self.there[key] = replace(self.there[key], running=on, live=None)

    def reservations(self, network: str = "net") -> Iterator[Reservation]:
        served = self.there[Key(Kind.NETBOOT, "h", network)].shape
        assert isinstance(served, NetbootService)
        return iter(served.reservations)

    def addresses(self, network: str = "net") -> dict[str, str]:
        """MAC -> the address that it is given."""
        return {mac: each.address for each in self.reservations(network) for mac in each.macs}

    def in_use(self, network: str = "net") -> set[str]:
        """MACs with which machines run."""
        bridge = identity.bridge_name(ID, network)
        return {
            nic.mac
            for each in self.there.values()
            if each.running and isinstance(shape := each.live or each.shape, Machine)
            for nic in shape.nics
            if nic.network == bridge
        }


def running(nodes: Given, *on: str, nets: str = NETS) -> World:
    world = World(nets)
    world.up(nodes)
    for each in on or nodes:
        world.power(each, on=True)
    return world


def test_a_nic_that_a_machine_runs_with_keeps_its_address_until_an_up_after_the_power_off() -> None:
    world = running({"m0": "net, stor"})
    after = {"m0": "stor", "m2": "net"}
    world.up(after)
    assert world.addresses() == {mac("m0", 0): "10.9.0.2", mac("m2", 0): "10.9.0.3"}
    world.power("m0", on=False)
    world.up(after)
    assert world.addresses() == {mac("m2", 0): "10.9.0.3"}
    world.up({**after, "m3": "net"})
    assert world.addresses() == {mac("m2", 0): "10.9.0.3", mac("m3", 0): "10.9.0.2"}


def test_an_up_during_which_a_machine_lets_go_of_its_address_is_done() -> None:
    world = running({"m0": "net, stor"})
    after = {"m0": "stor"}
    plan = world.plan(after)
    world.carry_out(plan)
    world.power("m0", on=False)
    again = world.plan(after)
    assert {step.key.kind for step in again.steps} == {Kind.NETBOOT}
    assert plan.undone(again) == []
    other = world.plan({**after, "m2": "net"})
    assert "m2" in {step.key.name for step in plan.undone(other)}


def test_a_change_that_is_taken_back_before_the_power_off_gives_the_same_address() -> None:
    before = {"m0": "net, stor"}
    world = running(before)
    world.up({"m0": "stor", "m2": "net"})
    world.up({"m0": "stor", "m2": "net", "m3": "net"})
    world.up(before)
    assert world.addresses() == {mac("m0", 0): "10.9.0.2"}


def test_the_addresses_of_who_is_off_or_leaves_are_free() -> None:
    world = running({"m0": "net, stor", "m1": "net"}, "m1")
    world.up({"m0": "stor"})
    assert world.addresses() == {}
    world.up({"m0": "stor", "m2": "net"})
    assert world.addresses() == {mac("m2", 0): "10.9.0.2"}


def test_both_macs_of_a_nic_have_its_address_while_its_machine_runs_with_the_old_one() -> None:
    world = running({"m0": PINNED, "m1": "net"})
    world.up({"m0": OTHER, "m1": "net"})
    first = next(world.reservations())
    assert (first.mac, first.also) == ("52:54:00:00:00:02", ("52:54:00:00:00:01",))
    assert first.address == "10.9.0.2"
    world.power("m0", on=False)
    world.up({"m0": OTHER, "m1": "net"})
    assert world.addresses() == {"52:54:00:00:00:02": "10.9.0.2", mac("m1", 0): "10.9.0.3"}


def test_a_mac_that_is_changed_twice_leaves_the_one_in_use_and_the_new_one() -> None:
    world = running({"m0": PINNED})
    world.up({"m0": OTHER})
    world.up({"m0": "net"})
    assert world.addresses() == {mac("m0", 0): "10.9.0.2", "52:54:00:00:00:01": "10.9.0.2"}
    world.up({"m0": PINNED})
    assert world.addresses() == {"52:54:00:00:00:01": "10.9.0.2"}


def test_a_nic_removed_on_another_network_moves_no_address() -> None:
    world = running({"m0": "stor, net", "m1": "stor, net"}, "m0")
    world.up({"m0": "net", "m1": "net"})
    assert world.addresses() == {
        mac("m0", 0): "10.9.0.2", mac("m0", 1): "10.9.0.2", mac("m1", 0): "10.9.0.3",
    }  # fmt: skip
    world.power("m0", on=False)
    world.up({"m0": "net", "m1": "net"})
    assert world.addresses() == {mac("m0", 0): "10.9.0.2", mac("m1", 0): "10.9.0.3"}


def test_a_mac_that_stays_on_its_network_keeps_its_address_there() -> None:
    world = running({"m0": "stor, net, net"})
    world.up({"m0": "net, net"})
    assert world.addresses() == {
        mac("m0", 0): "10.9.0.3", mac("m0", 1): "10.9.0.2", mac("m0", 2): "10.9.0.3",
    }  # fmt: skip
    pinned = running({"m0": f"{PINNED}, {OTHER}"})
    pinned.up({"m0": OTHER, "m1": "net"})
    assert pinned.addresses() == {
        "52:54:00:00:00:01": "10.9.0.2", "52:54:00:00:00:02": "10.9.0.3", mac("m1", 0): "10.9.0.4",
    }  # fmt: skip


def test_numbers_that_earlier_versions_stored_by_place_alone_are_kept() -> None:
    nodes = {"m0": f"{OTHER}, net, {PINNED}"}
    world = running(nodes)
    then = world.addresses()
    swapped = {"net/m0/0": 2, "net/m0/1": 1, "net/m0/2": 0}
    world.decided = replace(world.decided, numbers=swapped)
    world.there.clear()
    world.up(nodes)
    assert world.addresses() == dict(zip(then, reversed(then.values()), strict=True))
    assert world.decided.numbers == {
        "net/m0/52:54:00:00:00:02": 2, "net/m0/1": 1, "net/m0/52:54:00:00:00:01": 0,
    }  # fmt: skip


def test_who_is_found_keeps_its_address_though_an_earlier_version_stored_another_nic() -> None:
    world = running({"m0": f"{PINNED}, {OTHER}"}, "m0")
    world.power("m0", on=False)
    world.decided = replace(world.decided, numbers={"net/m0/0": 0, "net/m0/1": 1})
    world.up({"m0": OTHER})
    assert world.addresses() == {"52:54:00:00:00:02": "10.9.0.3"}


def test_what_dhcp_gives_a_running_machine_goes_before_what_an_up_never_came_to() -> None:
    world = running({"m0": "net"})
    world.decided = replace(world.decided, numbers={"net/m2/0": 0, "net/m0/0": 2})
    world.up({"m0": "net", "m2": "net"})
    assert world.addresses() == {mac("m0", 0): "10.9.0.2", mac("m2", 0): "10.9.0.3"}


def test_who_is_no_target_keeps_all_addresses_on_or_off() -> None:
    world = running({"m0": "net, stor", "m1": "net"}, "m0")
    world.up({"m0": "stor", "m3": "net"}, "m3")
    assert world.addresses() == {
        mac("m0", 0): "10.9.0.2", mac("m1", 0): "10.9.0.3", mac("m3", 0): "10.9.0.4",
    }  # fmt: skip
    world.power("m0", on=False)
    world.up({"m0": "stor", "m3": "net", "m4": "net"}, "m4")
    assert world.addresses()[mac("m0", 0)] == "10.9.0.2"
    assert world.addresses()[mac("m4", 0)] == "10.9.0.5"


def test_a_target_that_runs_keeps_its_address_too() -> None:
    world = running({"m0": PINNED, "m1": "net"})
    world.up({"m0": OTHER, "m1": "net", "m2": "net"}, "m0")
    assert world.addresses() == {
        "52:54:00:00:00:02": "10.9.0.2", "52:54:00:00:00:01": "10.9.0.2", mac("m1", 0): "10.9.0.3",
    }  # fmt: skip


def test_a_machine_that_is_recreated_lets_go() -> None:
    world = running({"m0": "net, stor"})
    key = Key(Kind.MACHINE, "h", "m0")
    made = world.there[key]
    assert isinstance(made.shape, Machine)
    world.there[key] = replace(made, shape=replace(made.shape, uuid=UUID(int=1)))
    assert any(step.action is Action.REPLACE for step in world.plan({"m0": "stor"}).steps)
    world.up({"m0": "stor"})
    assert world.addresses() == {}


def test_numbers_are_found_again_with_those_that_a_machine_runs_with() -> None:
    world = running({"m0": PINNED, "m1": "stor, net"}, "m0", "m1")
    world.up({"m0": "net", "m1": "stor"})
    found = [*world.there.values()]
    assert found_nics(found, found_hosts(found)) == world.decided.numbers


def test_on_a_network_with_ipv6_alone_they_keep_theirs_too() -> None:
    nets = "net: {netboot: builtin, cidr: 'fd00:9::/64'}, stor: {netboot: none}"
    world = running({"m0": "net, stor"}, nets=nets)
    world.decided = replace(world.decided, numbers={})
    world.up({"m0": "stor", "m2": "net"})
    given_to = {each.mac: each.address6 for each in world.reservations()}
    assert given_to == {mac("m0", 0): "fd00:9::1000", mac("m2", 0): "fd00:9::1001"}


@pytest.mark.parametrize("after", ["fd00:8::/64", "fd00:a::/64"])
def test_on_another_network_with_ipv6_alone_they_get_others(after: str) -> None:
    """A number that its address would stand for there is none."""
    nets = "net: {netboot: builtin, cidr: '%s'}, stor: {netboot: none}"
    world = running({"m0": "net"}, nets=nets % "fd00:9::/64")
    world.nets = nets % after
    world.up({"m0": "net"})
    assert [each.address6 for each in world.reservations()] == [after.replace("/64", "1000")]


def test_nodes_on_hosts_that_are_away_keep_what_was_decided() -> None:
    head = f"cluster: dev\nhosts: {{h: {{}}}}\nnetworks: {{{NETS}}}\nnodes: "
    before = load(head + "[{name: m0, nics: [net, stor]}]", file="x")
    after = load(head + "[{name: m0, nics: [stor]}, {name: m2, nics: [net]}]", file="x")
    first, _ = allocate(before, Allocations(), Occupied())
    unseen, _ = allocate(after, first, Occupied(unseen={"m0"}))
    assert (unseen.numbers["net/m0/0"], unseen.numbers["net/m2/0"]) == (0, 1)
    seen, _ = allocate(after, first, Occupied())
    assert seen.numbers["net/m2/0"] == 0


NICS = ["net", "stor", "net, stor", "stor, net", "net, net"]
FILES = st.fixed_dictionaries(
    {"m0": st.sampled_from([*NICS, PINNED, OTHER, f"{PINNED}, {OTHER}"])},
    optional={"m1": st.sampled_from(NICS), "m2": st.sampled_from(NICS)},
)
TURNS = st.lists(st.tuples(FILES, st.sets(st.sampled_from(["m0", "m1", "m2"]))), max_size=5)


@given(TURNS)
def test_no_running_machine_loses_its_address_and_no_two_nodes_share_one(
    turns: list[tuple[Given, Collection[str]]],
) -> None:
    world = World()
    for nodes, switched in turns:
        before = {net: world.addresses(net) for net in ("net", "stor")} if world.there else {}
        world.up(nodes)
        for net, known in before.items():
            now = world.addresses(net)
            assert {m: now.get(m) for m in world.in_use(net)} == {
                m: known[m] for m in world.in_use(net)
            }
            given_to = [(each.address, each.uuid) for each in world.reservations(net)]
            assert len({address for address, _ in given_to}) == len(given_to)
        for node in {*switched} & {*nodes}:
            at = world.there[Key(Kind.MACHINE, "h", node)]
            world.power(node, on=not at.running)


def test_a_service_whose_files_are_lost_gives_no_numbers() -> None:
    key = Key(Kind.NETBOOT, "h", "net")
    lost = NetbootService(bridge="", address="", range=("", ""), reservations=())
    things = [Observed(key=key, shape=lost, tag=OwnerTag("d", ID), fault="its files are lost")]
    assert found_nics(things, found_hosts(things)) == {}
