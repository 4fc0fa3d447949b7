"""Where a plan looks for what is free, and so what of other clusters it needs to know."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from nospoon.clusterfile.load import load
from nospoon.plan.addresses.allocate import Allocations, Endpoint
from nospoon.plan.addresses.networks import PRIVATE, SECOND_PRIVATE
from nospoon.plan.addresses.scopes import LAST, Ports, Scopes, scopes_of


def number(address: str) -> int:
    return int(IPv4Address(address))


LOOPBACK = (number("127.0.0.1"), number("127.0.0.1"))
EARLIER = Allocations(
    endpoints={"a": Endpoint("127.0.0.1", 6230, 8500)}, cidrs={"lan": "10.1.0.0/24"}
)


def of(more: str, earlier: Allocations = EARLIER) -> Scopes:
    return scopes_of(load(f"cluster: c\nhosts: {{s: simulated}}\n{more}", file="f"), earlier)


@pytest.mark.parametrize(
    ("more", "udp"),
    [
        ("nodes: [{}]", [Ports(6230, 16229, *LOOPBACK)]),
        ("bmc: {ports: 7000-7009}\nnodes: [{bmc: [ipmi]}]", [Ports(7000, 7009, *LOOPBACK)]),
        ("bmc: {address: 0.0.0.0}\nnodes: [{}]", [Ports(6230, 16229, 0, LAST)]),
        ("nodes: [{bmc: [redfish]}]", []),
        (
            "bmc: {pool: 10.9.0.0/24}\nnodes: [{bmc: [ipmi, pdu]}]",
            [Ports(each, each, number("10.9.0.0"), number("10.9.0.255")) for each in (623, 161)],
        ),
        (
            "nodes: [{bmc: {port: 7001}}, {bmc: {port: 7100, address: 127.0.0.9}}]",
            [Ports(7001, 7100, LOOPBACK[0], number("127.0.0.9"))],
        ),
    ],
)
def test_udp_ports_are_those_that_the_file_gives_or_leaves_open(
    more: str, udp: list[Ports]
) -> None:
    assert list(of(more).udp) == udp


def test_a_port_of_redfish_is_looked_for_from_the_usual_one_on_and_where_it_was() -> None:
    assert of("nodes: [{}]").redfish == (
        Ports(8000, 8999, *LOOPBACK),
        Ports(8500, 8500, *LOOPBACK),
    )
    assert of("nodes: [{}]", Allocations()).redfish == (Ports(8000, 8999, *LOOPBACK),)
    assert of("bmc: {redfish_port: 8443}\nnodes: [{}]").redfish == ()
    assert of("bmc: {pool: 10.9.0.0/24}\nnodes: [{}]").redfish == ()


def test_networks_are_looked_for_where_one_is_chosen() -> None:
    """Where it was before nothing has to be free: it has that."""
    for earlier in (Allocations(), EARLIER):
        found = of("networks: {lan: {nat: true}}\nnodes: [{}]", earlier)
        assert found.networks == (PRIVATE, SECOND_PRIVATE)
    assert of("networks: {lan: {cidr: 10.2.0.0/24}}\nnodes: [{}]").networks == ()
