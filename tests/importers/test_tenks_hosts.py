"""Tenks's inventory: hosts are reached where they are, and what is lost of them is told."""

from __future__ import annotations

from typing import Any

import pytest

from nospoon.clusterfile.load import load
from nospoon.errors import UsageError
from nospoon.importers import READERS, Source
from nospoon.model.cluster import Cluster

OVERRIDE = """
node_types: {type0: {volumes: [{capacity: 2GB}], physical_networks: [physnet0]}}
specs: [{type: type0, count: 2}]
physnet_mappings: {physnet0: br0}
"""
HV1 = {"ansible_host": "192.0.2.10", "ansible_port": 2222, "ansible_user": "stack"}
HV2 = {"ansible_host": "192.0.2.11"}


def listed(**hosts: dict[str, Any]) -> dict[str, Any]:
    """As `ansible-inventory --list` prints it."""
    return {"libvirt": {"hosts": list(hosts)}, "_meta": {"hostvars": hosts}}


def imported(inventory: dict[str, Any], more: str = "") -> tuple[Cluster, tuple[str, ...]]:
    made = READERS["tenks"](Source("override.yml", OVERRIDE + more, "t", inventory))
    assert all(f"#   {each}\n" in made.text for each in made.left_out)
    return load(made.text, file="made", local_file=None), made.left_out


def places(cluster: Cluster) -> list[tuple[str, str]]:
    return [(host.ssh, host.where) for host in cluster.hosts]


def test_the_port_of_ssh_is_carried_over() -> None:
    cluster, left = imported(listed(hv1=HV1))
    there = "stack@192.0.2.10:2222"
    assert places(cluster) == [(f"ssh://{there}", f"qemu+ssh://{there}/system")]
    assert left == ()


@pytest.mark.parametrize(
    ("variables", "end"),
    [
        ({"libvirt_local_uri": "qemu:///system"}, "/system"),
        ({"libvirt_local_uri": "qemu+unix:///session"}, "/session"),
    ],
)
def test_a_libvirtd_that_is_local_there_is_not_taken_for_ours(
    variables: dict[str, str], end: str
) -> None:
    cluster, left = imported(listed(hv1=HV1, hv2=HV2 | variables))
    assert places(cluster)[1] == ("root@192.0.2.11", f"qemu+ssh://root@192.0.2.11{end}")
    assert left == ()


def test_a_libvirtd_of_all_hosts_is_looked_for_on_each() -> None:
    inventory = listed(hv2=HV2, here={"ansible_connection": "local"})
    cluster, _ = imported(inventory, "libvirt_local_uri: qemu:///session")
    there, here = places(cluster)
    assert there == ("root@192.0.2.11", "qemu+ssh://root@192.0.2.11/session")
    assert here == ("", "qemu:///session")


def test_a_uri_that_names_its_host_stays_and_one_that_leads_nowhere_from_here_is_told() -> None:
    named, nowhere = "qemu+tls://192.0.2.11/system", "qemu+tcp://localhost/system"
    cluster, left = imported(listed(hv2=HV2 | {"libvirt_local_uri": named}))
    assert (cluster.hosts[0].where, left) == (named, ())
    cluster, left = imported(listed(hv2=HV2 | {"libvirt_local_uri": nowhere}))
    assert cluster.hosts[0].where == "qemu+ssh://root@192.0.2.11/system"
    assert left == (f"inventory: libvirt_local_uri of hv2: {nowhere} leads to it alone",)


def test_a_uri_that_is_none_is_refused_with_its_host() -> None:
    with pytest.raises(UsageError, match=r"override.yml: libvirt_local_uri of hv2: Invalid IPv6"):
        imported(listed(hv2=HV2 | {"libvirt_local_uri": "qemu://[x/system"}))


def test_sockets_of_their_own_are_told_for_uris_have_no_query() -> None:
    asked = {"libvirt_local_uri": "qemu+unix:///session?socket=/s"}
    cluster, left = imported(listed(hv2=HV2 | asked))
    assert cluster.hosts[0].where == "qemu+ssh://root@192.0.2.11/system"
    uri = asked["libvirt_local_uri"]
    assert left == (f"inventory: libvirt_local_uri of hv2: {uri} names a socket of its own",)
    both = {"libvirt_local_uri": "qemu:///session", "libvirt_custom_socket_path": "/run/x"}
    cluster, left = imported(listed(hv2=HV2 | both))
    assert cluster.hosts[0].where == "qemu+ssh://root@192.0.2.11/session"
    assert left == (
        "inventory: libvirt_custom_socket_path of hv2: libvirt is reached at its usual socket",
    )


def test_a_host_without_an_address_is_reached_by_its_name() -> None:
    cluster, _ = imported(listed(rack2={}, localhost={}, six={"ansible_host": "2001:db8::1"}))
    assert places(cluster) == [
        ("root@rack2", "qemu+ssh://root@rack2/system"),
        ("", "qemu:///system"),
        ("root@2001:db8::1", "qemu+ssh://root@[2001:db8::1]/system"),
    ]


def test_hosts_of_groups_below_count_and_their_absence_is_told() -> None:
    below = {"libvirt": {"children": ["racks"]}, "racks": {"hosts": ["hv2"]}}
    cluster, left = imported(below | {"_meta": {"hostvars": {"hv2": HV2}}})
    assert (places(cluster)[0][0], left) == ("root@192.0.2.11", ())
    cluster, left = imported({"racks": {"hosts": ["hv2"]}, "_meta": {"hostvars": {}}})
    assert [host.name for host in cluster.hosts] == ["here"]
    assert left == ("inventory: no host in its group 'libvirt'",)


def test_settings_of_bmcs_that_hosts_do_not_share_are_told() -> None:
    own = {
        "ipmi_address": "192.0.2.10",
        "ipmi_port_range_start": 6300,
        "ipmi_port_range_end": 6310,
        "ipmi_password": "secret",
    }
    cluster, left = imported(listed(hv1=HV1 | own, hv2=HV2))
    assert (str(cluster.addressing.address), cluster.addressing.ports) == ("0.0.0.0", (6230, 6240))
    assert set(left) == {f"inventory: {name} of hv1: `bmc` holds for all hosts" for name in own}
    _, left = imported(listed(hv1=HV1 | own), "ipmi_port_range_start: 6305")
    assert "inventory: ipmi_port_range_start of hv1: `bmc` holds for all hosts" in left


def test_settings_of_bmcs_that_all_hosts_share_are_carried_over() -> None:
    shared = {"ipmi_port_range_start": 6300, "ipmi_port_range_end": 6310, "ipmi_username": "me"}
    cluster, left = imported(listed(hv1=HV1 | shared, hv2=HV2 | shared))
    assert (cluster.addressing.ports, left) == ((6300, 6310), ())
    assert cluster.nodes[0].credentials.username == "me"


def test_bmcs_answer_at_the_address_of_a_hypervisor_here_and_of_no_other() -> None:
    local = {"ansible_connection": "local", "ipmi_address": "127.0.0.5"}
    cluster, left = imported(listed(here=local, hv2=HV2))
    assert (str(cluster.addressing.address), left) == ("127.0.0.5", ())
    _, left = imported(listed(hv2=HV2 | {"ipmi_address": "192.0.2.11"}))
    assert left == ("inventory: ipmi_address of hv2: `bmc` holds for all hosts",)


def test_every_other_variable_of_a_host_is_told_once_but_for_those_of_tenks_itself() -> None:
    of_tenks = {
        "bridge_prefix": "brtenks",
        "libvirt_pool_capacity": None,
        "libvirt_pool_path": "/var/lib/libvirt/tenks_pool/",
        "libvirt_pool_owner": "{{ ansible_user_id }}",
        "libvirt_local_uri": "qemu:///system?socket={{ libvirt_custom_socket_path }}",
    }
    pool = {"libvirt_pool_path": "/srv/x"}
    key = {"ansible_ssh_private_key_file": "/k"}
    hosts = listed(hv1=HV1 | of_tenks | pool | key, hv2=HV2 | of_tenks | key)
    assert imported(hosts)[1] == (
        "inventory: ansible_ssh_private_key_file of hv1, hv2",
        "inventory: libvirt_pool_path of hv1",
    )


def test_templates_and_connections_that_are_not_ssh_are_told() -> None:
    filled_in = {"ansible_host": "{{ ip }}", "physnet_mappings": {"physnet0": "{{ nic }}"}}
    cluster, left = imported(listed(hv1=filled_in, box={"ansible_connection": "docker"}))
    assert cluster.hosts[0].ssh == "root@hv1"
    assert dict(cluster.hosts[0].physnets) == {"physnet0": "br0"}
    assert left == (
        "inventory: ansible_connection of box",
        "inventory: ansible_host of hv1: a template, which Ansible fills in",
        "inventory: physnet_mappings of hv1: a template, which Ansible fills in",
    )
