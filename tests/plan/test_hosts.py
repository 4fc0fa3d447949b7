"""Hosts of one machine: told apart, or refused."""

from __future__ import annotations

import pytest

from nospoon.model.cluster import Host
from nospoon.model.connections import ConnectionKind
from nospoon.plan.identity import pool_end
from nospoon.plan.refuse import against_twins

SECOND = "qemu+unix:///system?socket=/run/second/libvirt-sock"


@pytest.mark.parametrize(
    "other",
    [
        "qemu:///system",
        "qemu+unix:///system?socket=/var/run/libvirt/libvirt-sock",
        "qemu:///system?socket=/run/libvirt/libvirt-sock",
    ],
)
def test_two_hosts_that_are_one_libvirtd_are_refused(other: str) -> None:
    (why,) = against_twins([Host("a"), Host("b", uri=other)])
    assert why.startswith("hosts a and b are one libvirtd")
    far = "qemu+ssh://rack/system"
    assert list(against_twins([Host("a", uri=far, ssh="rack"), Host("b", uri=far, ssh="rack")]))


def test_a_second_libvirtd_another_mode_and_another_machine_are_hosts_of_their_own() -> None:
    hosts = [
        Host("a"),
        Host("b", uri=SECOND),
        Host("c", uri="qemu:///session"),
        Host("d", uri="qemu+ssh://rack/system", ssh="rack"),
        Host("e", uri="qemu+ssh://other/system", ssh="other"),
        Host("f", kind=ConnectionKind.SIMULATED, uri=""),
        Host("g", kind=ConnectionKind.SIMULATED, uri=""),
    ]
    assert list(against_twins(hosts)) == []


def test_pools_of_a_second_libvirtd_have_directories_of_their_own() -> None:
    assert pool_end("qemu:///system") == ""
    assert pool_end(SECOND) not in {"", pool_end(SECOND.replace("second", "third"))}
