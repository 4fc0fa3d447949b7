"""Addresses of machines stay while nodes come and go around them."""

from __future__ import annotations

from nospoon.model.cluster import Cluster
from nospoon.plan.addresses import known_addresses
from nospoon.plan.allocate import Allocations, Occupied, allocate
from nospoon.spec.load import load

LAN = "networks: {lan: {netboot: builtin, cidr: [10.9.0.0/29, 'fd00:9::/64']}}\n"


def read(nodes: str, lan: str = LAN) -> Cluster:
    return load(f"cluster: dev\nhosts: {{h: {{}}}}\n{lan}nodes: {nodes}", file="x")


def decided(cluster: Cluster, earlier: Allocations | None = None) -> Allocations:
    allocations, reasons = allocate(cluster, earlier or Allocations(), Occupied())
    assert not reasons
    return allocations


def addresses(cluster: Cluster, allocations: Allocations) -> dict[str, str]:
    return {
        f"{node}/{nic}": address
        for (node, nic), address in known_addresses(cluster, allocations).items()
    }


def test_first_they_are_in_the_order_of_the_file() -> None:
    cluster = read("[{name: a}, {name: b, nics: [lan, lan]}]")
    assert addresses(cluster, decided(cluster)) == {
        "a/0": "10.9.0.2", "b/0": "10.9.0.3", "b/1": "10.9.0.4",
    }  # fmt: skip


def test_nodes_that_come_and_go_change_nobody_elses() -> None:
    first = decided(read("[{name: a}, {name: b}, {name: c}]"))
    fewer = read("[{name: b}, {name: c}]")
    second = decided(fewer, first)
    assert addresses(fewer, second) == {"b/0": "10.9.0.3", "c/0": "10.9.0.4"}
    more = read("[{name: x}, {name: b, nics: [lan, lan]}, {name: c}]")
    third = decided(more, second)
    assert addresses(more, third) == {
        "x/0": "10.9.0.2", "b/0": "10.9.0.3", "b/1": "10.9.0.5", "c/0": "10.9.0.4",
    }  # fmt: skip


def test_what_a_smaller_network_has_no_room_for_gets_another() -> None:
    wide = LAN.replace("/29", "/24")
    many = ", ".join(f"{{name: n{n}}}" for n in range(20))
    first = decided(read(f"[{many}]", wide))
    few = read("[{name: n19}, {name: n1}]")
    assert addresses(few, decided(few, first)) == {"n19/0": "10.9.0.2", "n1/0": "10.9.0.3"}


def test_a_network_with_ipv6_alone_keeps_numbers_too() -> None:
    six = "networks: {lan: {netboot: builtin, cidr: 'fd00:9::/64'}}\n"
    first = decided(read("[{name: a}, {name: b}]", six))
    fewer = read("[{name: b}]", six)
    assert addresses(fewer, decided(fewer, first)) == {"b/0": "fd00:9::1001"}
