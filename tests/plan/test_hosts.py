"""Hosts of one machine: told apart, or refused."""

from __future__ import annotations

import pytest

from nospoon.model.cluster import Host
from nospoon.model.connections import Libvirt, Simulated
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
    (why,) = against_twins([Host("a"), Host("b", Libvirt(other))])
    assert why.startswith("hosts a and b are one libvirtd")
    far = "qemu+ssh://rack/system"
    assert list(
        against_twins([Host("a", Libvirt(far), ssh="rack"), Host("b", Libvirt(far), ssh="rack")])
    )


def test_a_second_libvirtd_another_mode_and_another_machine_are_hosts_of_their_own() -> None:
    hosts = [
        Host("a"),
        Host("b", Libvirt(SECOND)),
        Host("c", Libvirt("qemu:///session")),
        Host("d", Libvirt("qemu+ssh://rack/system"), ssh="rack"),
        Host("e", Libvirt("qemu+ssh://other/system"), ssh="other"),
        Host("f", Simulated()),
        Host("g", Simulated()),
    ]
    assert list(against_twins(hosts)) == []


def test_pools_of_a_second_libvirtd_have_directories_of_their_own() -> None:
    def end(uri: str) -> str:
        return pool_end(Libvirt(uri).socket)

    assert end("qemu:///system") == ""
    assert end(SECOND) not in {"", end(SECOND.replace("second", "third"))}
