"""Hosts with several connections, and the places that they make of it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from nospoon.clusterfile.load import load
from nospoon.clusterfile.recovered import cluster_file
from nospoon.errors import SpecError
from nospoon.model.cluster import Cluster, Host, Overcommit
from nospoon.model.connections import Libvirt, Simulated
from nospoon.model.resources import Key, Kind, Observed, OwnerTag
from nospoon.testing.probed import MACHINE

ID = UUID("5d0f2f0e-0000-4000-8000-000000000001")


def read(hosts: str, nodes: str = "[{}]") -> Cluster:
    return load(f"cluster: c\nhosts: {hosts}\nnodes: {nodes}\n", file="c.yaml")


@pytest.mark.parametrize("first", ["libvirt", "simulated"])
def test_the_first_of_two_connections_has_the_name_of_the_host(first: str) -> None:
    parts = {"libvirt": "libvirt: qemu+ssh://kvm1/system", "simulated": "simulated: true"}
    given = [parts.pop(first), *parts.values()]
    settings = "ssh: kvm1, physnets: {a: br0}, drained: true, overcommit: {cpus: 2}"
    far, simulated = read(f"{{far: {{{', '.join(given)}, {settings}}}}}").hosts
    usual = Host("far", physnets=(("a", "br0"),), drained=True, overcommit=Overcommit(cpus=2))
    assert far == replace(usual, connection=Libvirt("qemu+ssh://kvm1/system"), ssh="kvm1")
    assert simulated == replace(usual, name="far:simulated", connection=Simulated())
    assert far.section == simulated.section == "far"


def test_a_node_chooses_one_of_the_connections_of_a_host() -> None:
    hosts = "{here: {libvirt: 'qemu:///system', simulated: true}, there: simulated}"
    nodes = "[{host: here}, {host: 'here:simulated'}, {host: there}, {host: 'here:libvirt'}]"
    found = [each.host for each in read(hosts, nodes).nodes]
    assert found == ["here", "here:simulated", "there", "here"], "the first may be named, too"


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("there:libvirt", "no host named 'there:libvirt'"),
        ("here:openstack", "no host named 'here:openstack'"),
        ("here:", "expected the name of a host, or HOST:CONNECTION, got 'here:'"),
    ],
)
def test_a_connection_that_a_host_has_not_is_refused(host: str, why: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(
            "{here: {libvirt: 'qemu:///system', simulated: true}, there: simulated}",
            f"[{{host: '{host}'}}]",
        )
    assert why in str(caught.value)


def test_a_recovered_file_has_both_connections_of_a_host_in_one_section() -> None:
    hosts = read("{here: {libvirt: 'qemu:///system', simulated: true}}").hosts
    bare = replace(MACHINE, disks=(), nics=())
    found = [
        Observed(Key(Kind.MACHINE, host.name, name), bare, OwnerTag("d", ID))
        for host, name in zip(hosts, "ab", strict=True)
    ]
    recovered = load(cluster_file("c", ID, hosts, found, lambda _: {}), file="c.yaml")
    assert recovered.hosts == hosts
    assert [node.host for node in recovered.nodes] == ["here", "here:simulated"]
