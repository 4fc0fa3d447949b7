"""Guests that make up MAC addresses: each of them may lease an address for an hour, and with each
lease dnsmasq writes all of them to the daemon's disk, and waits for it.
"""

from __future__ import annotations

from ipaddress import ip_address
from uuid import UUID

from nospoon.clusterfile.load import load
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.netboot import NetbootService
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.networks import STRANGERS
from nospoon.plan.resolution.resolve import resolve

ID = UUID("5d0f2f0e-0000-4000-8000-000000000002")


def service(network: str, more: str = "") -> NetbootService:
    text = (
        f"cluster: dev\nnetworks: {{lan: {{{network}, netboot: builtin}}}}\n{more}nodes: [{{}}]\n"
    )
    cluster = load(text, file="x")
    allocations, _ = allocate(cluster, Allocations(), Occupied())
    found = resolve(cluster, ID, allocations, Surroundings({"here": "/pools"}, {}, {}))
    shape = found[Key(Kind.NETBOOT, "here", "lan")].shape
    assert isinstance(shape, NetbootService)
    return shape


def size(addresses: tuple[str, str]) -> int:
    first, last = map(ip_address, addresses)
    return int(last) - int(first) + 1


def test_few_addresses_of_a_large_network_are_for_unknown_clients() -> None:
    shape = service("cidr: [10.0.0.0/8, 'fd00:9::/64']")
    assert (size(shape.range), size(shape.range6)) == (STRANGERS, STRANGERS)


def test_they_are_the_last_ones_because_nodes_take_the_first() -> None:
    assert service("cidr: 10.8.0.0/16").range == ("10.8.251.255", "10.8.255.254")
    below = service("cidr: 10.8.0.0/16", "bmc: {pool: 10.8.128.0/17}\n")
    assert below.range == ("10.8.124.0", "10.8.127.255")


def test_a_small_network_has_all_of_its_addresses_for_them() -> None:
    assert service("cidr: 10.8.0.0/24").range == ("10.8.0.2", "10.8.0.254")
