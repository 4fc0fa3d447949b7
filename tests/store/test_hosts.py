"""Hosts as stores of earlier versions have them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nospoon.model.cluster import Host, Overcommit
from nospoon.model.connections import Docker, Libvirt, Lxc, OpenStack, Simulated, Simulation
from nospoon.store.hosts import host_of, record_of

BEFORE: list[dict[str, Any]] = [
    {
        "name": "here",
        "kind": "libvirt",
        "uri": "qemu+ssh://a/system",
        "ssh": "a",
        "physnets": [["p", "br0"]],
        "drained": True,
        "overcommit": {"cpus": 1.0, "memory": 1.0, "disk": 1.0},
        "simulation": {
            "make": 0.0,
            "power_on": 0.0,
            "power_off": 0.0,
            "shut_down": 0.0,
            "boot": 0.0,
            "power_failures": 0.0,
            "console": "",
            "agents": None,
            "machines": [],
        },
        "address": "192.0.2.1",
        "openstack": None,
    },
    {
        "name": "sim",
        "kind": "simulated",
        "uri": "",
        "ssh": "",
        "physnets": [],
        "drained": False,
        "overcommit": {"cpus": 32.0, "memory": 1.5, "disk": 10.0},
        "simulation": {
            "make": 0.0,
            "power_on": 0.5,
            "power_off": 0.0,
            "shut_down": 0.0,
            "boot": 0.0,
            "power_failures": 0.0,
            "console": "",
            "agents": None,
            "machines": ["lab-1"],
        },
        "address": "",
        "openstack": None,
    },
    {
        "name": "cloud",
        "kind": "openstack",
        "uri": "",
        "ssh": "",
        "physnets": [],
        "drained": False,
        "overcommit": {"cpus": 32.0, "memory": 1.5, "disk": 10.0},
        "simulation": {},
        "address": "",
        "openstack": {
            "cloud": "mine",
            "at": "http://k p",
            "login": "d",
            "flavors": ["m"],
            "zone": "z",
            "boot_address": "192.0.2.2",
        },
    },
]
NOW = (
    Host("here", Libvirt("qemu+ssh://a/system"), "a", (("p", "br0"),), drained=True,
         overcommit=Overcommit(1, 1, 1), address="192.0.2.1"),
    Host("sim", Simulated(Simulation(power_on=0.5, machines=("lab-1",)))),
    Host("cloud", OpenStack("mine", "http://k p", "d", ("m",), "z", "192.0.2.2")),
)  # fmt: skip


@pytest.mark.parametrize(("before", "now"), list(zip(BEFORE, NOW, strict=True)))
def test_a_record_of_before_is_the_host_and_is_written_so_again(
    before: dict[str, Any], now: Host
) -> None:
    assert host_of(before) == now
    assert host_of(json.loads(json.dumps(record_of(now)))) == now
    assert set(record_of(now)) == set(before)


def test_a_cloud_is_not_kept_without_where_it_is() -> None:
    with pytest.raises(ValueError, match="without its cloud"):
        host_of({"name": "cloud", "kind": "openstack"})


@pytest.mark.parametrize("new_privileges", [True, False])
def test_a_place_of_an_engine_is_kept_with_its_socket(*, new_privileges: bool) -> None:
    host = Host("here:docker", Docker("/run/docker.sock", new_privileges), ssh="a")
    assert host_of(json.loads(json.dumps(record_of(host)))) == host


@pytest.mark.parametrize("new_privileges", [True, False])
def test_a_place_of_containers_is_kept_with_its_ids(*, new_privileges: bool) -> None:
    host = Host("here:lxc", Lxc((1_000_000, 65_536), new_privileges), ssh="a")
    assert host_of(json.loads(json.dumps(record_of(host)))) == host
