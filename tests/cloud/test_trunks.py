"""A NIC of a node gets the frames of other networks tagged: of those that the file names alone."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from openstack.network.v2.port import Port
from tests.cloud.test_rack import everything
from tests.cloud.test_virtual_ips import Guest, connection, plugged

from nospoon.testing.cloud import OwnCloud
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
FILE = """
cluster: {name}
hosts:
  cloud:
    openstack: {{cloud: nospoon-cloud, flavors: [metal.tiny], boot_address: 172.24.5.1}}
    physnets: {{external: rack}}
networks:
  ext: {{physnet: external}}
  lan: {{}}
  red: {{vlan: 101}}
  blue: {{vlan: 102}}
  green: {{}}
nodes:
  - {{name: n, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB],
     nics: [ext, {{network: lan, trunk: [101, 102]}}]}}
"""
OWN = "10.99.0.1"
OTHERS = {"10.99.0.2": "lan", "10.99.0.3": "red", "10.99.0.4": "blue", "10.99.0.5": "green"}
"""Addresses of other guests, each on one of the networks."""
ASK = """
import select, socket, struct, sys, time
link, vlan, own, *others = sys.argv[1:]
SOL_PACKET, PACKET_AUXDATA, VLAN_VALID, ETH_P_ALL, ARP = 263, 8, 0x10, 3, b"\\x08\\x06"
ends = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
ends.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
ends.bind((link, 0))
mac, found = ends.getsockname()[4], set()
tag = struct.pack("!HH", 0x8100, int(vlan)) if int(vlan) else b""
for _ in range(3):
    for each in others:
        asked = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac + socket.inet_aton(own)
        asked += bytes(6) + socket.inet_aton(each)
        ends.send(b"\\xff" * 6 + mac + tag + ARP + asked)
    end = time.monotonic() + 1
    while (left := end - time.monotonic()) > 0 and select.select([ends], [], [], left)[0]:
        frame, more, *_ = ends.recvmsg(2048, 256)
        was = 0  # Linux takes the tag out of the frame
        for _, kind, data in more:
            status, tci = struct.unpack("=I12xH2x", data) if kind == PACKET_AUXDATA else (0, 0)
            was = tci & 0xFFF if status & VLAN_VALID else was
        if frame[12:14] == ARP and frame[20:22] == b"\\0\\x02" and was == int(vlan):
            found.add(socket.inet_ntoa(frame[28:32]))
print(*sorted(found))
"""
"""Asks for addresses by ARP (RFC 826), in frames with a tag (IEEE 802.1Q) or, with 0, without one,
and prints those that answer so: the kernel of the tests may have no interfaces of VLANs."""


def reached(guest: Guest, vlan: int) -> list[str]:
    """Networks whose guests answer."""
    argv = ["/usr/bin/python3", "-c", ASK, guest.link, str(vlan), guest.address, *OTHERS]
    return [OTHERS[each] for each in guest.run(*argv).split()]


def another(cloud: OwnCloud, server: str, network: str) -> Port:
    """A port on a network of the cluster, at the compute host of a server."""
    member, admin = connection(cloud), connection(cloud, "nospoon-cloud-admin")
    plain = {"port_security_enabled": False, "fixed_ips": []}
    made = member.network.create_port(network_id=network, **plain)
    host = next(admin.network.ports(device_id=server)).binding_host_id
    admin.network.update_port(made.id, binding_host_id=host)
    return made


@pytest.mark.timeout(600, func_only=True)
def test_tagged_frames_reach_the_networks_of_the_trunk_alone(cloud: OwnCloud, rack: Rack) -> None:
    member, name = connection(cloud), rack.name()
    before = everything(member)
    text = FILE.format(name=name) + rack.bmc()
    file = rack.file(text)
    rack.run("up", file, "--yes")
    assert "Nothing to do" in rack.run("plan", file).stdout
    (server,) = member.compute.servers(name=f"{name}-n")
    (trunk,) = member.network.trunks()
    ports = {each.name: each for each in member.network.ports()}
    plugs = [ports[f"{name}-n-1{of}"] for of in ("", ".101", ".102")]
    assert len({each.mac_address for each in plugs}) == 1, "as VLAN interfaces of Linux have"
    links = {each.name.rpartition("-")[2]: each.id for each in member.network.networks()}
    others = {address: another(cloud, server.id, links[of]) for address, of in OTHERS.items()}
    with ExitStack() as stack:
        for address, port in others.items():
            stack.enter_context(plugged(cloud, OTHERS[address], port, address=address))
        own = plugged(cloud, "tagged", plugs[0], address=OWN, trunk=trunk.id)
        guest = stack.enter_context(own)
        until(lambda: member.network.get_trunk(trunk.id).status == "ACTIVE")
        until(lambda: reached(guest, 0) == ["lan"])
        until(lambda: reached(guest, 101) == ["red"])
        until(lambda: reached(guest, 102) == ["blue"])
        assert reached(guest, 103) == []

        member.network.delete_trunk_subports(trunk.id, [{"port_id": plugs[2].id}])
        until(lambda: reached(guest, 102) == [])
        rack.file(text.replace("trunk: [101, 102]", "trunk: [102]").replace("vlan: 101", ""))
        steps = [(each["action"], each["kind"]) for each in rack.json("plan", file)["steps"]]
        assert sorted(steps) == [("change", "trunk"), ("delete", "port")]
        rack.run("up", file, "--yes")
        until(lambda: reached(guest, 102) == ["blue"])
        assert reached(guest, 101) == []
        assert "Nothing to do" in rack.run("plan", file).stdout
    for port in others.values():
        member.network.delete_port(port.id)
    rack.file(
        text.replace(", trunk: [101, 102]", "").replace("vlan: 101", "").replace("vlan: 102", "")
    )
    rack.run("up", file, "--yes")
    assert list(member.network.trunks()) == []
    assert "Nothing to do" in rack.run("plan", file).stdout
    rack.file(text)
    rack.run("up", file, "--yes")
    assert "Nothing to do" in rack.run("plan", file).stdout
    rack.run("down", name, "--yes")
    assert everything(member) == before
