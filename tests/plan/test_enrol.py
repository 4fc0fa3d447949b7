"""What of a node is told to Ironic: by its driver, and with its secrets apart."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from nospoon.clusterfile.load import load
from nospoon.model.resources.bmcs import Bmc, Secrets
from nospoon.model.resources.keys import Kind
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.enrollment.enrol import login, settings, values
from nospoon.plan.identity import snmp_community
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.resolve import resolve

ID = UUID("5d0f2f0e-0000-4000-8000-000000000001")
SECRETS = Secrets("password", "00ff", "community")
HEAD = 'cluster: dev\nhosts: {sim: simulated}\nironic: {endpoint: "http://h"}\n'


def enrolled(node: str) -> tuple[dict[str, Any], Bmc]:
    """The settings of the one node of this group, and its BMC."""
    cluster = load(f"{HEAD}nodes: [{node}]", file="x")
    allocations, reasons = allocate(cluster, Allocations(), Occupied())
    assert not reasons
    around = Surroundings({"sim": "/pools"}, {}, {})
    desired = resolve(cluster, ID, allocations, around)
    (settings,) = [each.shape for key, each in desired.items() if key.kind is Kind.IRONIC_NODE]
    (bmc,) = [each.shape for key, each in desired.items() if key.kind is Kind.BMC]
    assert isinstance(bmc, Bmc)
    return values(settings.settings), bmc  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("bmc", "driver"),
    [
        ("[ipmi, redfish, pdu]", "ipmi"),
        ("[redfish, pdu]", "redfish"),
        ("[pdu]", "snmp"),
        ("[]", "manual-management"),
    ],
)
def test_the_driver_is_the_first_that_a_bmc_speaks(bmc: str, driver: str) -> None:
    told, _ = enrolled(f"{{count: 1, bmc: {bmc}}}")
    assert told["driver"] == driver


def test_the_snmp_driver_is_told_the_outlet_and_its_community() -> None:
    told, bmc = enrolled("{count: 1, bmc: [ipmi, pdu], ironic: {driver: snmp}}")
    assert bmc.outlet is not None
    info = {name.partition("/")[2]: v for name, v in told.items() if "driver_info/" in name}
    assert info == {
        "snmp_driver": "apc_rackpdu",
        "snmp_address": bmc.outlet.address,
        "snmp_port": bmc.outlet.port,
        "snmp_outlet": 1,
        "snmp_version": "2c",
    }
    assert login(told, SECRETS) == {"snmp_community": snmp_community("community")}


def test_snmp_version_3_has_a_user_and_two_keys() -> None:
    told, _ = enrolled("{count: 1, bmc: [pdu], ironic: {driver_info: {snmp_version: 3}}}")
    assert told["driver_info/snmp_user"] == "nospoon"
    assert login(told, SECRETS) == {"snmp_auth_key": "community", "snmp_priv_key": "community"}


def test_no_secret_is_among_the_settings() -> None:
    for bmc in ("ipmi", "redfish", "pdu"):
        told, _ = enrolled(f"{{count: 1, bmc: [{bmc}]}}")
        assert login(told, SECRETS)
        assert not set(login(told, SECRETS)) & {name.partition("/")[2] for name in told}


def test_the_key_of_a_bmc_is_told_only_where_there_is_one() -> None:
    told, _ = enrolled("{count: 1, bmc: [ipmi]}")
    assert login(told, SECRETS)["ipmi_hex_kg_key"] == "00ff"
    assert login(told, Secrets("p")) == {"ipmi_password": "p"}


def test_a_node_to_be_discovered_is_started_when_its_network_boots_it() -> None:
    text = 'cluster: dev\nironic: {endpoint: "http://h", enrolment: discover}\nnodes: [{count: 1}]'
    cluster = load(text, file="x")
    allocations, _ = allocate(cluster, Allocations(), Occupied())
    desired = resolve(cluster, ID, allocations, Surroundings({"here": "/pools"}, {}, {}))
    (made,) = [each for key, each in desired.items() if key.kind.startswith("ironic")]
    assert made.key.kind is Kind.IRONIC_DISCOVERY
    assert {need.kind for need in made.needs} == {Kind.BMC, Kind.NETBOOT}
    assert set(made.needs) <= set(desired)


@pytest.mark.parametrize("value", ["é", "\ud800", float("inf"), 1 << 70, True, ["a", {"b": 0.5}]])
def test_a_value_is_as_it_was_given(value: object) -> None:
    assert values(settings({"name": value})) == {"name": value}
