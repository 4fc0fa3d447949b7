"""Routers and floating IPs of the development cloud."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack

import pytest
from tests.cloud.test_virtual_ips import connection, plugged

from nospoon.testing.cloud import OwnCloud
from nospoon.testing.ironic import until

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")


def pings(address: str) -> bool:
    """From this machine."""
    argv = ["busybox", "ping", "-q", "-c", "3", "-A", "-W", "1", address]
    return subprocess.run(argv, check=False, capture_output=True).returncode == 0


@pytest.mark.timeout(300, func_only=True)
def test_a_router_leads_out_of_a_projects_network_and_a_floating_ip_leads_in(
    cloud: OwnCloud,
) -> None:
    member, admin = connection(cloud), connection(cloud, "nospoon-cloud-admin")
    outside = next(member.network.networks(name="public"))
    network = member.network.create_network(name="routed")
    subnet = member.network.create_subnet(
        network_id=network.id, ip_version=4, cidr="10.77.0.0/24", enable_dhcp=False
    )
    router = member.network.create_router(
        name="routed", external_gateway_info={"network_id": outside.id}
    )
    member.network.add_interface_to_router(router, subnet=subnet.id)
    port = member.network.create_port(network_id=network.id, port_security_enabled=False)
    agents = admin.network.agents(binary="neutron-openvswitch-agent")
    admin.network.update_port(port.id, binding_host_id=next(agents).host)
    with ExitStack() as stack:
        guest = stack.enter_context(plugged(cloud, "routed0", port))
        guest.run("ip", "route", "add", "default", "via", "10.77.0.1")
        until(lambda: guest.pings("172.24.5.1"), 90)
        floating = member.network.create_ip(floating_network_id=outside.id, port_id=port.id)
        until(lambda: pings(floating.floating_ip_address), 60)
        member.network.delete_ip(floating)
        until(lambda: not pings(floating.floating_ip_address), 60)
    member.network.delete_port(port)
    member.network.remove_interface_from_router(router, subnet=subnet.id)
    member.network.delete_router(router)
    member.network.delete_network(network)
