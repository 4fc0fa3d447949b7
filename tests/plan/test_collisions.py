"""What two clusters may not both have: UDP ports, outlets, and networks of one host."""

from __future__ import annotations

import pytest

from nospoon.plan.addresses.allocate import Allocations, Endpoint


def at(address: str, ipmi: int, redfish: int = 8000) -> Allocations:
    return Allocations(hosts={"n": "here"}, endpoints={"n": Endpoint(address, ipmi, redfish)})


@pytest.mark.parametrize(
    ("one", "other", "collides"),
    [
        (at("127.0.0.1", 6230), at("127.0.0.1", 6230), True),
        (at("127.0.0.1", 6230), at("127.0.0.1", 6231), False),
        (at("127.0.0.1", 6230), at("127.0.0.2", 6230), False),
        (at("127.0.0.1", 0), at("127.0.0.1", 0), False),
        (
            Allocations(cidrs={"a": "172.30.0.0/24"}, hosts={"n": "here"}),
            Allocations(cidrs={"b": "172.30.0.0/25"}, hosts={"m": "here"}),
            True,
        ),
        (
            Allocations(cidrs={"a": "172.30.0.0/24"}, hosts={"n": "here"}),
            Allocations(cidrs={"b": "172.30.0.0/25"}, hosts={"m": "there"}),
            False,
        ),
    ],
)
def test_clusters_collide_where_they_have_the_same(
    one: Allocations, other: Allocations, *, collides: bool
) -> None:
    assert one.collides(other) is collides
    assert other.collides(one) is collides
