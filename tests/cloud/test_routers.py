"""Routers of the development cloud, and floating IPs of nodes."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack

import pytest
from openstack.connection import Connection
from openstack.network.v2.subnet import Subnet
from tests.cloud.test_virtual_ips import connection, plugged

from nospoon.testing.cloud import OwnCloud
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")


def pings(address: str) -> bool:
    """From this machine."""
    argv = ["busybox", "ping", "-q", "-c", "3", "-A", "-W", "1", address]
    return subprocess.run(argv, check=False, capture_output=True).returncode == 0


RANGES = {"10.77.0.0/24", "10.78.0.0/24"}
FILE = """
cluster: {name}
hosts:
  cloud:
    openstack: {{cloud: nospoon-cloud, flavors: [metal.tiny], boot_address: 172.24.5.1}}
networks: {{lan: {{nat: true, cidr: 10.77.0.0/24}}, leaf: {{nat: true, cidr: 10.78.0.0/24}}}}
nodes:
  - {{name: n, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB],
     nics: [{{network: lan{floating}}}, {{network: leaf}}]}}
"""


def led(member: Connection) -> list[Subnet]:
    """Subnets of nospoon's networks that have a gateway."""
    return [each for each in member.network.subnets() if each.gateway_ip and each.cidr in RANGES]


@pytest.mark.timeout(600, func_only=True)
def test_nat_and_floating_ips_lead_out_and_in_and_networks_share_a_router(
    cloud: OwnCloud, rack: Rack
) -> None:
    member, name = connection(cloud), rack.name()
    with ExitStack() as stack:
        text = FILE.format(name=name, floating=", floating_ip: public") + rack.bmc()
        file = rack.file(text)
        rack.run("up", file, "--yes")
        assert "Nothing to do" in rack.run("plan", file).stdout
        port, leaf = sorted(
            member.network.ports(device_id=next(member.compute.servers(name=f"{name}-n")).id),
            key=lambda each: each.name,
        )
        (floating,) = member.network.ips()
        assert floating.port_id == port.id
        (row,) = rack.json("status", name)
        assert row["floating_ips"] == [floating.floating_ip_address]
        guest = stack.enter_context(plugged(cloud, "routed0", port))
        assert port.fixed_ips[0]["ip_address"].startswith("10.77.0.")
        guest.run("ip", "route", "add", "default", "via", "10.77.0.1")
        until(lambda: guest.pings("172.24.5.1"))
        until(lambda: pings(floating.floating_ip_address))

        member.network.update_ip(floating, port_id=None)
        (step,) = rack.json("plan", file)["steps"]
        assert (step["action"], step["kind"]) == ("change", "floating-ip")
        rack.run("up", file, "--yes")
        until(lambda: pings(floating.floating_ip_address))

        rack.file(text.replace(", floating_ip: public", ""))
        rack.run("up", file, "--yes")
        assert list(member.network.ips()) == []
        public = member.network.find_network("public", ignore_missing=False)
        reserved = member.network.create_ip(floating_network_id=public.id)
        address = reserved.floating_ip_address
        rack.file(text.replace("ip: public", f"ip: public, floating_address: {address}"))
        rack.run("up", file, "--yes")
        assert member.network.get_ip(reserved).port_id == port.id
        assert "Nothing to do" in rack.run("plan", file).stdout
        until(lambda: pings(address))
        other = stack.enter_context(plugged(cloud, "routed1", leaf))
        other.run("ip", "route", "add", "default", "via", "10.78.0.1")
        until(lambda: other.pings("172.24.5.1"))
        assert not other.pings(guest.address)
        shared = text.replace("nat: true", "nat: true, router: spine")
        rack.file(shared.replace("ip: public", f"ip: public, floating_address: {address}"))
        rack.run("up", file, "--yes")
        assert "Nothing to do" in rack.run("plan", file).stdout
        assert len(list(member.network.routers())) == 1
        until(lambda: other.pings(guest.address) and guest.pings(other.address))
        until(lambda: pings(address))
        assert all(each.is_dhcp_enabled for each in led(member))
        rack.file(
            shared.replace("spine", "spine, dhcp: false").replace(
                "ip: public", f"ip: public, floating_address: {address}"
            )
        )
        rack.run("up", file, "--yes")
        assert "Nothing to do" in rack.run("plan", file).stdout
        assert not any(each.is_dhcp_enabled for each in led(member))
        until(lambda: other.pings(guest.address) and pings(address))
        rack.run("down", name, "--yes")
        (kept,) = member.network.ips()
        assert (kept.id, kept.port_id, kept.description) == (reserved.id, None, "")
        member.network.delete_ip(kept)
        assert list(member.network.routers()) == []
