"""IPMI ports that a file gives to its BMCs, node by node."""

from __future__ import annotations

import pytest

from nospoon.clusterfile.load import load
from nospoon.errors import SpecError
from nospoon.model.cluster import Cluster
from nospoon.model.grants import DEFAULTS
from nospoon.plan.access import violations
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate

HEAD = "cluster: c\nhosts: {a: simulated}\nbmc: {ports: 7000-7002}\n"


def cluster(nodes: str) -> Cluster:
    return load(f"{HEAD}nodes: [{nodes}]\n", file="f")


def ports(given: Allocations) -> dict[str, int]:
    return {name: each.ipmi_port for name, each in given.endpoints.items()}


def test_a_port_that_is_given_is_its_nodes_and_no_others() -> None:
    wanted = cluster("{name: a}, {name: b, bmc: {port: 7000}}, {name: c, bmc: {port: 9999}}")
    first, reasons = allocate(wanted, Allocations(), Occupied())
    assert (ports(first), reasons) == ({"a": 7001, "b": 7000, "c": 9999}, [])
    swapped = cluster("{name: a, bmc: {port: 7000}}, {name: b}, {name: c}")
    again, reasons = allocate(swapped, first, Occupied())
    assert (ports(again), reasons) == ({"a": 7000, "b": 7001, "c": 7002}, [])


def test_a_port_that_others_have_is_told() -> None:
    occupied = Occupied(endpoints={("127.0.0.1", 9999)}, holder=lambda _: "vbmcd")
    _, (reason,) = allocate(cluster("{name: c, bmc: {port: 9999}}"), Allocations(), occupied)
    assert reason.startswith("node c: port 9999 at 127.0.0.1 is in use by vbmcd.")


def test_a_port_that_another_cluster_has_by_now_is_not_kept() -> None:
    """It was lost with the store, say, and is free since; one of its own process is kept."""
    wanted = cluster("{name: a}, {name: b}, {name: c, bmc: {port: 9999}}")
    first, _ = allocate(wanted, Allocations(), Occupied())
    own = {("127.0.0.1", port) for port in ports(first).values()}
    assert allocate(wanted, first, Occupied(endpoints=own)) == (first, [])
    other = {("127.0.0.1", 7000), ("127.0.0.1", 9999)}
    again, (reason,) = allocate(wanted, first, Occupied(endpoints=own | other, claimed=other))
    assert ports(again) == {"a": 7002, "b": 7001, "c": 9999}
    assert reason.startswith("node c: port 9999 at 127.0.0.1 is in use")


@pytest.mark.parametrize(
    "nodes", ["{name: z, bmc: {port: 7000}}", "{name: a}, {name: z, bmc: {port: 7000}}"]
)
def test_a_port_that_another_node_of_the_cluster_has_is_said_to_be_that_ones(nodes: str) -> None:
    """One that leaves has it until then."""
    first, _ = allocate(cluster("{name: a}"), Allocations(), Occupied())
    _, (reason,) = allocate(cluster(nodes), first, Occupied(endpoints={("127.0.0.1", 7000)}))
    assert reason == (
        "node z: port 7000 at 127.0.0.1 is node a's until an `up` removes that, or gives it "
        "another one. Do that first, or choose another `bmc.port`."
    )


def test_an_outlet_is_not_kept_of_a_pdu_whose_port_another_cluster_has_by_now() -> None:
    wanted = cluster("{name: a, bmc: [pdu]}")
    first, _ = allocate(wanted, Allocations(), Occupied())
    place = first.outlets["a"].place
    assert allocate(wanted, first, Occupied(endpoints={place})) == (first, [])
    again, _ = allocate(wanted, first, Occupied(endpoints={place}, claimed={place}))
    assert again.outlets["a"].place == (place[0], place[1] + 1)


def test_an_address_that_is_given_is_that_of_its_bmc() -> None:
    own = "bmc: {address: 127.0.0.2, port: 623}"
    wanted = cluster(f"{{name: a}}, {{name: b, {own}}}, {{name: c, bmc: {{port: 623}}}}")
    first, reasons = allocate(wanted, Allocations(), Occupied())
    assert reasons == []
    places = {name: (each.address, each.ipmi_port) for name, each in first.endpoints.items()}
    assert places == {"a": ("127.0.0.1", 7000), "b": ("127.0.0.2", 623), "c": ("127.0.0.1", 623)}
    back, _ = allocate(cluster("{name: a}, {name: b}, {name: c}"), first, Occupied())
    assert {each.address for each in back.endpoints.values()} == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("{name: a, bmc: {port: 70}}, {name: b, bmc: {port: 70, address: '::'}}", "also that of a"),
        ("{name: a, bmc: {address: 127.0.0.2}}", "a has an address of its own: expected a port"),
        ("{count: 2, bmc: {port: 7000}}", "port 7000 is also that of node-0"),
        ("{name: a, bmc: {port: 7000}}, {adopt: b, bmc: {port: 7000}}", "is also that of a"),
        ("{bmc: {port: 7000, protocols: [redfish]}}", "speaks no IPMI: expected no port"),
        ("{adopt: {match: x}, bmc: {port: 7000}}", "have a port each: drop port"),
    ],
)
def test_ports_of_nobody_or_of_several_are_refused(nodes: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        cluster(nodes)
    assert message in str(caught.value)


def test_members_are_given_no_privileged_port() -> None:
    found = list(violations(cluster("{name: a, bmc: {port: 623}}"), DEFAULTS))
    assert [each.path for each in found] == [("nodes",)]


def test_members_are_given_no_public_address() -> None:
    (found,) = violations(cluster("{name: a, bmc: {port: 7000, address: 203.0.113.1}}"), DEFAULTS)
    assert found.path == ("nodes",)
    assert "members may not take 203.0.113.1" in found.message
