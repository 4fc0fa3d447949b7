"""What `nospoon host setup` prepares a host for, by the connections of its file."""

import pytest

from nospoon.cli.commands import host
from nospoon.clusterfile.load import load


@pytest.mark.parametrize(
    ("hosts", "packages", "preparations"),
    [
        ("here: {libvirt: 'qemu:///system'}", [], {}),
        (
            "here: {libvirt: 'qemu:///system', lxc: true}",
            ["lxc", "uidmap"],
            {"nospoon_containers": True},
        ),
        (
            "here: {libvirt: 'qemu:///system', docker: true}",
            ["podman", "runc"],
            {"nospoon_engine": True},
        ),
        (
            "here: {libvirt: 'qemu:///system', docker: {socket: /run/podman/podman.sock}}",
            ["podman", "runc"],
            {"nospoon_engine": True},
        ),
        ("here: {libvirt: 'qemu:///system', docker: {socket: /run/docker.sock}}", [], {}),
        (
            "here: {libvirt: 'qemu:///system', lxc: true, docker: true}",
            ["lxc", "uidmap", "podman", "runc"],
            {"nospoon_containers": True, "nospoon_engine": True},
        ),
    ],
)
def test_a_host_is_prepared_for_each_of_its_connections(
    hosts: str, packages: list[str], preparations: dict[str, bool]
) -> None:
    cluster = load(f"cluster: x\nhosts: {{{hosts}}}\nnodes: [{{}}]\n", file="x.yaml")
    assert host.more_packages(cluster, None) == packages
    assert host.preparations(cluster) == preparations


def test_a_host_is_not_prepared_for_connections_of_another() -> None:
    hosts = (
        "a: {libvirt: 'qemu:///system'}, "
        "b: {ssh: root@b, libvirt: 'qemu+ssh://root@b/system', lxc: true}, "
        "c: {ssh: root@c, libvirt: 'qemu+ssh://root@c/system', docker: true}"
    )
    cluster = load(f"cluster: x\nhosts: {{{hosts}}}\nnodes: [{{}}]\n", file="x.yaml")
    found = {each.ssh: host.more_packages(cluster, None, each.ssh) for each in cluster.hosts}
    assert found == {"": [], "root@b": ["lxc", "uidmap"], "root@c": ["podman", "runc"]}
    assert host.preparations(cluster, "") == {}
    assert host.preparations(cluster, "root@b") == {"nospoon_containers": True}


def test_a_volume_group_and_open_vswitch_have_packages_of_their_own() -> None:
    text = (
        "cluster: x\nhosts: {here: {libvirt: 'qemu:///system', physnets: {public: br0}}}\n"
        "networks: {lan: {physnet: public, switch: ovs}}\nnodes: [{nics: [lan]}]\n"
    )
    more = host.more_packages(load(text, file="x.yaml"), "vg0")
    assert more == ["openvswitch-switch", "lvm2"]
