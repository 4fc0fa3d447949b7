"""A provisioning network that others made of several segments, each with a subnet of its own.

https://docs.openstack.org/neutron/latest/admin/config-routed-networks.html
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from tests.cloud.test_cloud import connection
from tests.cloud.test_rack import everything

from nospoon.dev.cloud.configuration import EDGE, RACKS
from nospoon.testing.cloud import FULL, OwnCloud
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack

pytestmark = [
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack"),
    pytest.mark.skipif(
        not FULL,
        reason="a routed network of several segments takes a minute of the cloud: "
        "make test-openstack-full",
    ),
]
FILE = """
cluster: {name}
hosts:
  cloud:
    openstack: {{cloud: nospoon-cloud, flavors: [metal.tiny], boot_address: 172.24.5.1}}
    physnets: {{external: rack, leaves: leaves}}
networks: {{external: {{physnet: external}}, leaves: {{physnet: leaves}}}}
nodes:
  - {{name: "n-{{n}}", count: 2, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB],
     nics: [external, leaves]}}
"""
HERE, ELSEWHERE = "198.51.100.0/25", "198.51.100.128/25"
"""Subnets of the segment that the compute node has, and of one that it has not."""


@contextmanager
def leaves(cloud: OwnCloud) -> Iterator[None]:
    """The network `leaves`, of two segments, which an administrator gives the project."""
    network: Any = connection(cloud, "nospoon-cloud-admin").network
    project = connection(cloud).current_project_id
    made = network.create_network(
        name="leaves", project_id=project, provider_network_type="vlan",
        provider_physical_network=RACKS, provider_segmentation_id=311,
    )  # fmt: skip
    try:
        (first,) = network.segments(network_id=made.id)
        second = network.create_segment(
            network_id=made.id, network_type="vlan", physical_network=EDGE, segmentation_id=312
        )
        for segment, cidr in ((first, HERE), (second, ELSEWHERE)):
            network.create_subnet(
                network_id=made.id, ip_version=4, cidr=cidr, segment_id=segment.id,
                enable_dhcp=False, project_id=project,
            )  # fmt: skip
        yield
    finally:
        network.delete_network(made.id)


@pytest.mark.timeout(600, func_only=True)
def test_nodes_have_addresses_of_the_segment_where_they_are(cloud: OwnCloud, rack: Rack) -> None:
    member, name = connection(cloud), rack.name()
    with leaves(cloud):
        before = everything(member)
        file = rack.file(FILE.format(name=name) + rack.bmc())
        rack.run("up", file, "--yes")
        assert "Nothing to do" in rack.run("plan", file).stdout
        given = [
            ip_address(address["ip_address"])
            for port in member.network.ports(
                network_id=member.network.find_network("leaves", ignore_missing=False).id
            )
            for address in port.fixed_ips
        ]
        assert len(given) == 2
        assert all(each in ip_network(HERE) for each in given)
        verdicts = rack.json("verify", file)
        assert [(each["verdict"], each["nics"]) for each in verdicts] == [("as declared", 2)] * 2
        bmc = rack.bmcs(name)["n-0"]
        rack.ipmitool(bmc, "power", "on")
        until(lambda: "is on" in rack.ipmitool(bmc, "power", "status"))
        rack.run("down", name, "--yes")
        assert everything(member) == before
