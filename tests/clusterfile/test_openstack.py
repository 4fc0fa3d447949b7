"""Hosts that are projects of a cloud: what the file says of them, and what is refused."""

from __future__ import annotations

import json

import pytest

from nospoon.clusterfile.load import load
from nospoon.errors import SpecError
from nospoon.model.cluster import Cluster
from nospoon.model.connections import OpenStack

FILE = """
cluster: dev
hosts:
  cloud:
    openstack:
      cloud:
        name: mine
        auth: {auth_url: http://192.0.2.1/v3, username: u, password: secret, project_name: p}
      region: two
      flavors: [metal]
      boot_address: 198.51.100.1
    physnets: {external: rack}
networks: {external: {physnet: external}, provision: {}}
nodes: [{name: n, nics: [{network: external}, {network: provision}]}]
"""


def read(text: str) -> Cluster:
    return load(text, file="cluster.yaml")


THROWAWAY = "cluster: dev\nthrowaway: true\n"
HERE = "hosts:\n  here: {}\n"
WHY = "the operator of a cloud says how its compute hosts cache disks (`disk_cachemodes`)"


def test_caches_that_a_cloud_does_not_have_are_refused_where_they_are_written() -> None:
    """Nova reads them from `nova.conf` alone."""
    disks = FILE.replace("{name: n, ", "{name: n, disks: [1GiB, {size: 1GiB, cache: unsafe}], ")
    assert problems(disks) == [
        f"cluster.yaml:14:53: nodes[0].disks[1].cache: {WHY}. Drop `cache` of this disk"
    ]
    flavor = FILE + "flavors: {f: {disks: [{size: 1GiB, cache: none}]}}\n"
    (problem,) = problems(flavor)
    assert f"flavors.f.disks[0].cache: {WHY}" in problem
    assert problems(FILE.replace("cluster: dev\n", THROWAWAY)) == [
        f"cluster.yaml:3:12: throwaway: {WHY}. Drop `throwaway`: all hosts are clouds"
    ]


def test_what_only_some_hosts_cache_as_their_file_says_is_not_refused_but_where_it_is_pinned() -> (
    None
):
    mixed = FILE.replace("hosts:\n", HERE).replace("cluster: dev\n", THROWAWAY)
    mixed = mixed.replace("{name: n, ", "{name: n, disks: [{size: 1GiB, cache: none}], ")
    read(mixed)
    (problem,) = problems(mixed.replace("{name: n,", "{name: n, host: cloud,"))
    assert "nodes[0].disks[0].cache: " in problem
    read(mixed.replace("{name: n,", "{name: n, host: here,"))


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        read(text)
    return [str(problem) for problem in caught.value.problems]


def test_a_host_names_its_cloud_and_where_guests_reach_us() -> None:
    cluster = read(FILE)
    (host,) = cluster.hosts
    cloud = host.connection
    assert isinstance(cloud, OpenStack)
    assert (cloud.cloud, cloud.flavors) == ("mine", ("metal",))
    assert cloud.boot_address == "198.51.100.1"
    assert host.where == "openstack: mine"
    assert (host.overcommit.cpus, host.overcommit.memory) == (1, 1)


def test_no_secret_is_kept_with_the_host() -> None:
    cluster = read(FILE)
    assert "secret" not in repr(cluster)
    ((name, told),) = cluster.logins
    assert name == "cloud"
    assert json.loads(told)["auth"]["password"] == "secret"
    assert json.loads(told)["region_name"] == "two"


def test_a_new_password_leads_to_the_same_project() -> None:
    before, after = read(FILE).hosts[0], read(FILE.replace("secret", "other")).hosts[0]
    other = read(FILE.replace("region: two", "region: three")).hosts[0]
    assert before.machine == after.machine
    assert before.machine != other.machine


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            "    libvirt: qemu:///system\n",
            "a cloud is a host of its own: expected no libvirt",
        ),
        ("    ssh: root@a\n", "a cloud is reached by its APIs: expected no ssh"),
        ("    address: 192.0.2.7\n", "a cloud is reached by its APIs: expected no address"),
        ("    overcommit: {cpus: 2}\n", "what a cloud gives is its project's quota"),
    ],
)
def test_what_a_cloud_cannot_have_is_refused(more: str, said: str) -> None:
    text = FILE.replace("    physnets", f"{more}    physnets")
    assert any(said in problem for problem in problems(text))


def test_a_cloud_of_which_there_is_only_the_name_is_the_commands_to_look_up() -> None:
    start, end = FILE.index("      cloud:\n"), FILE.index("      region")
    with pytest.raises(SpecError, match=r"hosts\..*unknown cloud 'mine'"):
        read(f"{FILE[:start]}      cloud: mine\n{FILE[end:]}")
