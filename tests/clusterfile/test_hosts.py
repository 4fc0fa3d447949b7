"""Hosts with several connections, and the places that they make of it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from nospoon.clusterfile.load import load
from nospoon.clusterfile.recovered import cluster_file
from nospoon.errors import SpecError
from nospoon.model.cluster import Cluster, Host, Overcommit
from nospoon.model.connections import Docker, Libvirt, Lxc, Simulated
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Observed
from nospoon.model.resources.tags import OwnerTag
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


BOTH = "libvirt: qemu:///system, lxc: true"


def test_containers_are_a_place_beside_libvirts_machines_on_the_same_networks() -> None:
    here, beside = read(f"{{here: {{{BOTH}, physnets: {{a: br0}}}}}}").hosts
    assert (here.name, here.connection, here.network_place) == (
        "here",
        Libvirt("qemu:///system"),
        "here",
    )
    assert (beside.name, beside.connection, beside.network_place) == ("here:lxc", Lxc(), "here")
    assert beside.physnets == here.physnets
    far = "libvirt: 'qemu+ssh://a/system', ssh: a, lxc: {idmap: '1000000:65536'}"
    _, beside = read(f"{{far: {{{far}}}}}").hosts
    assert (beside.connection, beside.ssh) == (Lxc((1_000_000, 65_536)), "a")


def test_an_engine_is_a_place_of_containers_as_well() -> None:
    *_, beside = read(f"{{here: {{{BOTH}, docker: true}}}}").hosts
    assert (beside.name, beside.connection, beside.network_place) == (
        "here:docker",
        Docker(),
        "here",
    )
    *_, beside = read(f"{{here: {{{BOTH}, docker: {{socket: /run/docker.sock}}}}}}").hosts
    assert beside.connection == Docker("/run/docker.sock")
    *_, lxc = read(f"{{here: {{{BOTH[:-4]}{{new_privileges: true}}}}}}").hosts
    assert lxc.connection == Lxc(new_privileges=True)


def test_every_other_place_makes_its_own_networks() -> None:
    (*_, simulated) = read(f"{{here: {{{BOTH}, simulated: true}}}}").hosts
    assert (simulated.name, simulated.network_place) == ("here:simulated", "here:simulated")


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("{lxc: true}", "expected libvirt beside lxc. Write `libvirt: qemu:///system` as well"),
        ("{lxc: true, simulated: true}", "expected libvirt beside lxc"),
        ("{docker: true}", "expected libvirt beside docker"),
        (
            f"{{{BOTH}, docker: {{socket: docker.sock}}}}",
            "expected the path of a socket, such as /run/docker.sock, got 'docker.sock'",
        ),
        (f"{{{BOTH}, docker: {{socket: /run/../s}}}}", "expected the path of a socket"),
        ("{lxc: true, libvirt: 'qemu:///session'}", "libvirt's user at qemu:///session has none"),
        (
            "{lxc: true, libvirt: 'qemu+tls://a/system'}",
            "with `ssh` where it is on another machine",
        ),
        (
            f"{{{BOTH[:-4]}{{idmap: 1-2}}}}",
            "expected FIRST:COUNT, such as 1000000:65536, got '1-2'",
        ),
        (f"{{{BOTH[:-4]}{{idmap: '0:65536'}}}}", "expected ids from 100000 to 4294967294"),
        (f"{{{BOTH[:-4]}{{idmap: '4294900000:99999'}}}}", "expected ids from 100000 to 4294967294"),
        (f"{{{BOTH[:-4]}{{idmap: '100000:1000'}}}}", "expected at least 65536 ids, got 1000"),
    ],
)
def test_containers_without_bridges_or_with_ids_of_others_are_refused(host: str, why: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(f"{{here: {host}}}")
    assert why in str(caught.value)


def test_a_recovered_file_has_containers_beside_libvirts_machines() -> None:
    hosts = read(f"{{here: {{{BOTH[:-4]}{{idmap: '1000000:65536'}}}}}}").hosts
    machine = Observed(Key(Kind.MACHINE, "here", "n"), MACHINE, OwnerTag("d", ID))
    again = load(cluster_file("c", ID, hosts, [machine], lambda _: {}), file="c.yaml")
    assert again.hosts == hosts
