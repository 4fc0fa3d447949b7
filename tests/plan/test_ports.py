"""Ports of BMCs beside those of other clusters: what cannot be open together is refused."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest

from nospoon.model.cluster import BmcProtocol
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Resource
from nospoon.plan.addresses.ports import (
    Neighbour,
    TakenPorts,
    against_many,
    against_ports,
    against_sharing,
    redfish_places,
    sockets,
    sockets_of,
)

SHARED = Bmc(uuid4(), (BmcProtocol.REDFISH,), "127.0.0.1", 6230, 26999, "admin")
POOLED = replace(SHARED, uuid=uuid4(), address="127.44.0.1", ipmi_port=623, pool="127.44.0.0/29")


def desired(*bmcs: Bmc) -> list[Resource]:
    return [
        Resource(Key(Kind.BMC, "here", f"node-{number}"), bmc) for number, bmc in enumerate(bmcs)
    ]


def neighbours(bmc: Bmc, cluster: str = "a", *, is_own: bool = True) -> list[Neighbour]:
    return [Neighbour(bound, cluster, is_own) for _, bound in sockets(bmc)]


def reasons(wanted: Bmc, held: Bmc) -> list[str]:
    return against_ports(sockets_of(desired(wanted, wanted)), neighbours(held) * 2)


def test_redfish_of_all_addresses_is_refused_beside_that_of_one_and_the_reverse() -> None:
    (reason,) = reasons(POOLED, SHARED)
    assert reason == (
        "bmc.redfish_port: TCP 0.0.0.0:26999 without TLS cannot be served while your cluster a is "
        "served at TCP 127.0.0.1:26999 without TLS. Choose another port."
    )
    (reverse,) = reasons(SHARED, POOLED)
    assert "TCP 127.0.0.1:26999 without TLS cannot be served" in reverse


def test_ipmi_of_a_pool_is_refused_beside_the_same_port_of_one_address() -> None:
    (reason,) = reasons(POOLED, replace(SHARED, ipmi_port=623, redfish_port=0))
    assert reason.startswith("bmc.pool: UDP 0.0.0.0:623 cannot be served while your cluster a")


def test_one_port_has_one_certificate() -> None:
    given = replace(SHARED, ipmi_port=6231, tls=True, certificate="a")
    (reason,) = reasons(replace(SHARED, tls=True), given)
    assert " with TLS and another certificate. " in reason
    assert reason.endswith("or the same `bmc.tls`.")
    assert reasons(given, replace(given, ipmi_port=6232)) == []


def test_one_port_speaks_tls_or_does_not() -> None:
    (reason,) = reasons(SHARED, replace(SHARED, ipmi_port=6231, tls=True))
    assert reason.endswith("Choose another port, or the same `bmc.tls`.")


@pytest.mark.parametrize(
    "other",
    [
        replace(SHARED, ipmi_port=6231),
        replace(SHARED, address="127.0.0.2", tls=True),
        replace(SHARED, ipmi_port=6231, redfish_port=0),
        replace(POOLED, redfish_port=27000),
    ],
)
def test_what_can_be_open_together_or_shared_is_allowed(other: Bmc) -> None:
    assert reasons(SHARED, other) == reasons(other, SHARED) == []


def test_pools_share_their_sockets() -> None:
    assert reasons(POOLED, replace(POOLED, address="127.45.0.1", pool="127.45.0.0/29")) == []


@pytest.mark.parametrize(
    ("wanted", "taken", "is_hindered"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("127.0.0.1", "::", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("0.0.0.0", "127.0.0.2", True),
        ("0.0.0.0", "::1", False),
        ("::", "127.0.0.2", True),
    ],
)
def test_a_port_of_all_addresses_and_one_of_any_hinder_each_other(
    wanted: str, taken: str, *, is_hindered: bool
) -> None:
    ports = TakenPorts({(taken, 623)})
    assert ports.hinder((wanted, 623)) is is_hindered
    assert not ports.hinder((wanted, 624))


def test_a_cluster_of_another_user_is_not_named() -> None:
    (reason,) = against_ports(
        sockets_of(desired(POOLED)), neighbours(replace(SHARED, ipmi_port=0), "", is_own=False)
    )
    assert " while another cluster is served at " in reason


def test_sockets_that_are_shared_count_once() -> None:
    other = replace(SHARED, uuid=uuid4(), ipmi_port=6231)
    wanted, beside = sockets_of(desired(SHARED, other)), neighbours(replace(SHARED, ipmi_port=7))
    assert against_many(wanted, beside, 2, 4) == []
    (reason,) = against_many(wanted, beside, 2, 3)
    assert reason.startswith("bmc.ports: your BMCs would need 4 sockets, and members may have 3.")
    foreign = [replace(each, is_own=False) for each in beside]
    assert against_many(wanted, foreign, 0, 3) == []
    assert against_many(wanted, foreign, 1, 3)


def sharing(wanted: Bmc, held: Bmc) -> list[str]:
    """What a user learns whose BMCs are to be beside one of another user."""
    foreign = list(redfish_places(desired(held)))
    return against_sharing(redfish_places(desired(wanted, wanted)), foreign * 2)


def test_users_do_not_share_an_endpoint_of_redfish() -> None:
    (reason,) = sharing(SHARED, replace(SHARED, ipmi_port=6231))
    assert reason == (
        "bmc.redfish_port: another user's BMCs answer Redfish at 127.0.0.1:26999, and users do not "
        "share an address and port. Choose another `bmc.redfish_port`, or leave it out for one "
        "that is free."
    )
    (reason,) = sharing(POOLED, replace(POOLED, ipmi_port=0))
    assert reason.startswith("bmc.pool: another user's BMCs answer Redfish at 127.44.0.1:26999,")
    assert sharing(SHARED, replace(SHARED, address="0.0.0.0"))


@pytest.mark.parametrize(
    "other",
    [
        replace(SHARED, redfish_port=27000),
        replace(SHARED, redfish_port=0),
        replace(SHARED, address="127.0.0.2"),
    ],
)
def test_users_have_endpoints_of_their_own_side_by_side(other: Bmc) -> None:
    assert sharing(SHARED, other) == []
    assert sharing(replace(SHARED, redfish_port=0), other) == []
    assert sharing(POOLED, replace(POOLED, address="127.44.0.2")) == []
