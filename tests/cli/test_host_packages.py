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


def test_a_volume_group_and_open_vswitch_have_packages_of_their_own() -> None:
    text = (
        "cluster: x\nhosts: {here: {libvirt: 'qemu:///system', physnets: {public: br0}}}\n"
        "networks: {lan: {physnet: public, switch: ovs}}\nnodes: [{nics: [lan]}]\n"
    )
    more = host.more_packages(load(text, file="x.yaml"), "vg0")
    assert more == ["openvswitch-switch", "lvm2"]
