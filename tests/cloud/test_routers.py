"""Routers of the development cloud, and floating IPs of nodes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from openstack.connection import Connection
from openstack.network.v2.network import Network
from tests.cloud.test_virtual_ips import connection, plugged, ports_of

from nospoon.testing.cloud import OwnCloud
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")


def pings(address: str) -> bool:
    """From this machine."""
    argv = ["busybox", "ping", "-q", "-c", "3", "-A", "-W", "1", address]
    return subprocess.run(argv, check=False, capture_output=True).returncode == 0


@contextmanager
def routed(member: Connection) -> Iterator[Network]:
    """A network of the project with a router to the outside."""
    outside = next(member.network.networks(name="public"))
    network = member.network.create_network(name="routed")
    subnet = member.network.create_subnet(
        network_id=network.id, ip_version=4, cidr="10.77.0.0/24", enable_dhcp=False
    )
    router = member.network.create_router(
        name="routed", external_gateway_info={"network_id": outside.id}
    )
    member.network.add_interface_to_router(router, subnet=subnet.id)
    yield network
    member.network.remove_interface_from_router(router, subnet=subnet.id)
    member.network.delete_router(router)
    member.network.delete_network(network)


FILE = """
cluster: {name}
hosts:
  cloud:
    openstack: {{cloud: nospoon-cloud, flavors: [metal.tiny], boot_address: 172.24.5.1}}
    physnets: {{routed: routed}}
networks: {{lan: {{physnet: routed}}}}
nodes:
  - {{name: n, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB],
     nics: [{{network: lan{floating}}}]}}
"""


@pytest.mark.timeout(600, func_only=True)
def test_a_floating_ip_leads_to_a_node_and_goes_with_its_line(cloud: OwnCloud, rack: Rack) -> None:
    member, name = connection(cloud), rack.name()
    with routed(member), ExitStack() as stack:
        text = FILE.format(name=name, floating=", floating_ip: public") + rack.bmc()
        file = rack.file(text)
        rack.run("up", file, "--yes")
        assert "Nothing to do" in rack.run("plan", file).stdout
        (port,) = ports_of(member, [f"{name}-n"])
        (floating,) = member.network.ips()
        assert floating.port_id == port.id
        (row,) = rack.json("status", name)
        assert row["floating_ips"] == [floating.floating_ip_address]
        guest = stack.enter_context(plugged(cloud, "routed0", port))
        guest.run("ip", "route", "add", "default", "via", "10.77.0.1")
        until(lambda: guest.pings("172.24.5.1"), 90)
        until(lambda: pings(floating.floating_ip_address), 60)

        member.network.update_ip(floating, port_id=None)
        (step,) = rack.json("plan", file)["steps"]
        assert (step["action"], step["kind"]) == ("change", "floating-ip")
        rack.run("up", file, "--yes")
        until(lambda: pings(floating.floating_ip_address), 60)

        rack.file(text.replace(", floating_ip: public", ""))
        rack.run("up", file, "--yes")
        assert list(member.network.ips()) == []
        rack.file(text)
        rack.run("up", file, "--yes")
        rack.run("down", name, "--yes")
        assert list(member.network.ips()) == []
