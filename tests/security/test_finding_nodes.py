"""Nodes of a user are found without a look at all that there are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from tests.plan.test_adoption import machine

from nospoon.control.fleet.authority import Authority
from nospoon.control.fleet.fleet import Fleet, Member
from nospoon.control.fleet.hosts import Hosts
from nospoon.errors import NotFound, UsageError
from nospoon.model.cluster import Host
from nospoon.model.connections import Docker
from nospoon.testing.probed import MACHINE

OWNER, OTHER = 1001, 1002


class Nothing:
    """Hosts and the boot authority, which have nothing to do with names."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class Counted(dict[UUID, Member]):
    """How many nodes are looked at."""

    looks = 0

    def __getitem__(self, key: UUID) -> Member:
        self.looks += 1
        return super().__getitem__(key)


class Unlisted(dict[UUID, Member]):
    """Ten thousand nodes are not gone through: each request took the loop for 25 ms."""

    def values(self) -> Any:
        raise AssertionError


def member(uid: int, cluster: str, node: str) -> Member:
    made = replace(machine(1, node), uuid=uuid4())
    return Member(uid, cluster, uuid4(), node, Host("s"), made)


def test_a_node_is_found_by_its_name_path_and_uuid_alone() -> None:
    fleet = Fleet(cast("Hosts", Nothing()), cast("Authority", Nothing()), lambda _: None)
    one, same, other = (
        member(OWNER, "a", "n"), member(OWNER, "b", "n"), member(OTHER, "a", "n"),
    )  # fmt: skip
    for each in (one, same, other):
        fleet.put(each)
    fleet._members = Unlisted(fleet._members)
    assert fleet.find(OTHER, "n") is other
    assert fleet.find(OWNER, "a/n") is one
    assert fleet.find(OWNER, str(same.uuid)) is same
    with pytest.raises(UsageError, match="several nodes are named 'n': a/n, b/n"):
        fleet.find(OWNER, "n")
    fleet.put(replace(same, node="m"))
    assert fleet.find(OWNER, "n") is one
    fleet.drop(one.uuid)
    fleet._members = dict(fleet._members)
    for missing in ("n", "a/n", str(one.uuid), str(other.uuid), "x/m", str(other.uuid).upper()):
        with pytest.raises(NotFound):
            fleet.find(OWNER, missing)
    assert fleet.find(OWNER, "b/m").node == fleet.find(OWNER, "m").node == "m"


def test_a_node_of_a_path_is_found_without_a_look_at_those_of_its_name() -> None:
    """Nodes of recipe sets all have the same names: all were looked at for each console."""
    fleet = Fleet(cast("Hosts", Nothing()), cast("Authority", Nothing()), lambda _: None)
    members = [member(OWNER, f"set-{number}", "recipe-0") for number in range(50)]
    for each in members:
        fleet.put(each)
    fleet._members = counted = Counted(fleet._members)
    assert fleet.find(OWNER, "set-7/recipe-0") is members[7]
    assert counted.looks == 1
    for each in members:
        fleet.drop(each.uuid)
    assert not fleet._named[OWNER]


def test_the_owner_of_a_bridge_is_found_without_a_look_at_all_nodes() -> None:
    """Whoever asks for a script from a bridge had all nodes gone through."""
    fleet = Fleet(cast("Hosts", Nothing()), cast("Authority", Nothing()), lambda _: None)

    def plugged(uid: int, *bridges: str) -> Member:
        made = member(uid, "a", "n")
        nics = tuple(replace(MACHINE.nics[0], network=each) for each in bridges)
        return replace(made, machine=replace(made.machine, nics=nics, adopted=""))

    one, other = plugged(OWNER, "ns1", "ns1", "ns2"), plugged(OTHER, "ns3")
    for each in (one, plugged(OWNER, "ns1"), other):
        fleet.put(each)
    members, fleet._members = fleet._members, Unlisted(fleet._members)
    found = {each: fleet.owner_of_bridge(each) for each in ("ns1", "ns2", "ns3", "ns4")}
    assert found == {"ns1": OWNER, "ns2": OWNER, "ns3": OTHER, "ns4": None}
    fleet._members = members
    fleet.put(replace(other, machine=replace(other.machine, nics=())))
    fleet.drop(one.uuid)
    assert [fleet.owner_of_bridge(each) for each in ("ns1", "ns2", "ns3")] == [OWNER, None, None]


def test_whether_a_cluster_is_on_a_host_is_known_without_a_look_at_all_nodes() -> None:
    """A cloud that lists relays of any clusters had all nodes gone through for each."""
    fleet = Fleet(cast("Hosts", Nothing()), cast("Authority", Nothing()), lambda _: None)
    one, other = member(OWNER, "a", "n"), member(OTHER, "b", "n")
    same = replace(other, machine=replace(other.machine, uuid=uuid4()), cluster_id=one.cluster_id)
    here, login = Host("s"), Host("s", Docker(), ssh="root@192.0.2.1")
    for each in (one, other, same):
        fleet.put(each)
    members, fleet._members = fleet._members, Unlisted(fleet._members)

    def known(host: Host) -> list[bool]:
        return [fleet.has_nodes(host, each) for each in (one.cluster_id, other.cluster_id, uuid4())]

    assert known(here) == [True, True, False]
    assert known(replace(here, name="t")) == known(login) == [False, False, False]
    fleet._members = members
    fleet.put(replace(other, host=login))
    fleet.drop(one.uuid)
    assert (known(here), known(login)) == ([True, False, False], [False, True, False])
    fleet.drop(same.uuid)
    fleet.drop(uuid4())
    assert known(here) == [False, False, False]


def test_simulated_hosts_of_others_are_compared_once_for_each_cluster() -> None:
    """A simulated host names 10,000 machines: where another user had 20,000 nodes there, a file
    with the same settings took the loop for two seconds and more.
    """
    fleet = Fleet(cast("Hosts", Nothing()), cast("Authority", Nothing()), lambda _: None)
    hosts = [Host("s"), Host("t"), Host("u")]
    for cluster in (uuid4(), uuid4()):
        for number, host in enumerate(hosts * 5):
            made = member(OTHER, "c", f"n{number}")
            fleet.put(replace(made, cluster_id=cluster, host=host))
    fleet.put(replace(member(OWNER, "c", "n"), host=hosts[0]))
    assert [*fleet.hosts_of_others(OWNER, {"s", "t"})] == [*hosts[:2], *hosts[:2]]
    assert [*fleet.hosts_of_others(OTHER, {"s", "t"})] == [hosts[0]]
