"""The Redfish port that a file does not name: the usual one, or the next that is free."""

from __future__ import annotations

import pytest

from nospoon.clusterfile.load import load
from nospoon.control.planning.saved import MOST_CLUSTERS
from nospoon.model.cluster import Cluster
from nospoon.plan.addresses.allocate import Allocations, Endpoint, Occupied, allocate

ANOTHER = Occupied(redfish={("127.0.0.1", 8000), ("0.0.0.0", 8001), ("192.0.2.1", 8002)})
"""Others listen on these; the last one hinders nobody on loopback."""


def cluster(bmc: str) -> Cluster:
    nodes = "nodes: [{name: a}, {name: b, bmc: [redfish]}, {name: c, bmc: {port: 6999}}]"
    return load(f"cluster: c\nhosts: {{a: simulated}}\nbmc: {{{bmc}}}\n{nodes}\n", file="f")


def ports(bmc: str, earlier: Allocations, occupied: Occupied) -> tuple[set[int], Allocations]:
    given, reasons = allocate(cluster(bmc), earlier, occupied)
    assert not reasons
    return {each.redfish_port for each in given.endpoints.values()}, given


def test_the_usual_port_is_chosen_where_it_is_free_and_kept_when_it_is_ones_own() -> None:
    first, given = ports("username: me", Allocations(), Occupied())
    assert first == {8000}
    assert ports("username: me", given, ANOTHER)[0] == {8000}


def test_the_next_free_port_is_chosen_where_another_process_has_the_usual_one_and_kept() -> None:
    first, given = ports("username: me", Allocations(), ANOTHER)
    assert first == {8002}
    assert ports("username: me", given, Occupied())[0] == {8002}


def test_a_port_that_the_file_names_is_taken_as_it_is() -> None:
    _, given = ports("username: me", Allocations(), ANOTHER)
    assert ports("redfish_port: 8000", given, ANOTHER)[0] == {8000}


def test_addresses_of_a_pool_have_the_usual_port() -> None:
    text = "cluster: c\nhosts: {a: simulated}\nbmc: {pool: 10.9.0.0/24}\nnodes: [{}]\n"
    given, reasons = allocate(load(text, file="f"), Allocations(), ANOTHER)
    assert not reasons
    assert {each.redfish_port for each in given.endpoints.values()} == {8000}


@pytest.mark.parametrize(
    ("address", "stays"),
    [
        ("10.9.0.9", True), ("10.9.0.254", True), ("10.9.1.9", False), ("10.8.255.254", False),
        ("110.9.0.9", False), ("::1", False),
    ],
)  # fmt: skip
def test_a_bmc_keeps_its_address_as_long_as_it_is_in_the_pool(address: str, *, stays: bool) -> None:
    """Before, the file may have given another pool, or one address for all."""
    text = "cluster: c\nhosts: {a: simulated}\nbmc: {pool: 10.9.0.0/24}\nnodes: [{name: n}]\n"
    before = Allocations(endpoints={"n": Endpoint(address, 623, 8000)})
    given, reasons = allocate(load(text, file="f"), before, Occupied())
    assert not reasons
    assert given.endpoints["n"].address == (address if stays else "10.9.0.1")


def test_a_port_of_another_users_bmcs_is_left_to_them() -> None:
    foreign = Occupied(foreign={("127.0.0.1", 8000)})
    first, given = ports("username: me", Allocations(), foreign)
    assert first == {8001}
    assert ports("username: me", given, foreign)[0] == {8001}
    _, before = ports("username: me", Allocations(), Occupied())
    assert ports("username: me", before, foreign)[0] == {8001}


def test_a_node_without_redfish_has_no_port_of_it() -> None:
    text = "cluster: c\nhosts: {a: simulated}\nnodes: [{bmc: [ipmi]}, {bmc: [ipmi, redfish]}]\n"
    for pool in ("", "bmc: {pool: 127.9.0.0/24}\n"):
        first, _ = allocate(load(text + pool, file="f"), Allocations(), Occupied())
        again, _ = allocate(load(text + pool, file="f"), first, Occupied())
        for given in (first, again):
            assert [each.redfish_port for each in given.endpoints.values()] == [0, 8000]


def test_a_port_is_free_where_a_member_has_one_with_each_of_his_clusters() -> None:
    foreign = Occupied(foreign={("127.0.0.1", 8000 + number) for number in range(MOST_CLUSTERS)})
    assert ports("username: me", Allocations(), foreign)[0] == {8000 + MOST_CLUSTERS}
