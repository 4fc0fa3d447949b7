"""Reasons of refused plans find the place in the file that they are about."""

from __future__ import annotations

import pytest

from nospoon.clusterfile.places import placed

FILE = """\
cluster: dev
networks:
  lab: {bridge: br-lab}
hosts:
  one: {libvirt: qemu:///system}
bmc: {address: 192.0.2.1, pool: 192.0.2.0/24}
nodes:
  - {count: 2, overrides: {node-1: {cpus: 2}}}
  - {count: 2}
  - {name: "x-{n:02}", start: 7, count: 3}
  - {adopt: lab}
  - {adopt: "lab: old", name: old}
  - {adopt: {match: "vm-*"}}
"""


@pytest.mark.parametrize(
    ("reason", "place"),
    [
        ("node node-0 fits on no host. one: it is drained.", "8:5"),
        ("node node-1 fits on no host. one: it is drained.", "8:36"),
        ("node node-3 and 1 like it fit on no host.", "9:5"),
        ("nodes node-2, node-3, of one flavor, fit together on no host.", "9:5"),
        ("nodes x-08 and x-09 on host one: both want volume v.", "10:5"),
        ("network lab: host one has no bridge br-lab.", "3:3"),
        ("host one: another user has machines there.", "5:3"),
        ("hosts one and two are one libvirtd.", "5:3"),
        ("bmc.pool: 192.0.2.0/24 holds the route.", "6:33"),
        ("nodes: adopt lab: no such machine on one.", "11:13"),
        ("nodes: adopt lab: old: no such machine on one.", "12:13"),
        ("nodes: adopt vm-*: there is none.", "13:13"),
        ("cannot serve UDP 192.0.2.1:623: Cannot assign requested address.", "6:6"),
    ],
)
def test_a_reason_stands_where_its_cause_is(reason: str, place: str) -> None:
    assert placed([reason], FILE, "dev.yaml") == [f"dev.yaml:{place}: {reason}"]


@pytest.mark.parametrize(
    "reason",
    [
        "a cluster of this name was lost",
        "node node-9 has been given up",
        "network provision: 10.0.0.0/24 overlaps",
        "bmc.ports: none left",
        "nodes: adopt other: no such machine on one.",
        "dev.yaml:5:3: hosts.one: not listed for members",
    ],
)
def test_other_reasons_stay_as_they_are(reason: str) -> None:
    assert placed([reason], FILE, "dev.yaml") == [reason]


def test_a_text_that_cannot_be_read_places_nothing() -> None:
    assert placed(["node a fits on no host."], "a: [", "dev.yaml") == ["node a fits on no host."]
