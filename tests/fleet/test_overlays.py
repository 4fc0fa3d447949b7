"""One network on several hosts that share no L2: traffic crosses, and each host boots its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from tests.fleet.conftest import FarHost, Farm

pytestmark = [pytest.mark.libvirt, pytest.mark.timeout(300)]

HOSTS = {"rack-a": "198.51.100.1", "rack-b": "198.51.100.2"}
NETWORKS = """
networks:
  lan: {overlay: vxlan, cidr: 172.31.7.0/24, netboot: builtin, mtu: 1400}
  other: {overlay: vxlan}
"""
NODES = "nodes: [{name: 'n{n}', count: 2, firmware: bios, memory: 256MiB, placement: spread}]"


@pytest.fixture
def joined(farm: Farm) -> Iterator[Farm]:
    """Two of the hosts have a cable between them, and addresses at its ends."""
    one, two = (farm.hosts[name] for name in HOSTS)
    pids = [str(host.keeper.pid) for host in (one, two)]
    subprocess.run(
        ["ip", "link", "add", "up0", "netns", pids[0], "type", "veth",
         "peer", "name", "up0", "netns", pids[1]], check=True,
    )  # fmt: skip
    for name, address in HOSTS.items():
        farm.hosts[name].run("ip", "address", "add", f"{address}/24", "dev", "up0")
        farm.hosts[name].run("ip", "link", "set", "up0", "up")
    yield farm
    farm.rack.down()
    one.run("ip", "link", "delete", "up0")


def a_file(farm: Farm, name: str, networks: str = NETWORKS, **addresses: str) -> str:
    lines = [
        f"  {host}: {{ssh: {host}, libvirt: 'qemu+ssh://{host}/system', address: '{address}'}}"
        for host, address in (HOSTS | addresses).items()
    ]
    head = f"cluster: {name}\n{farm.rack.bmc()}hosts:\n" + "\n".join(lines)
    return farm.rack.file(f"{head}\n{networks}{NODES}\n", f"{name}.yaml")


class Plugged:
    """A namespace with a port on a bridge of a host, as a machine would have one."""

    def __init__(self, host: FarHost, bridge: str, address: str) -> None:
        self.host, self.end = host, f"p{address.rpartition('.')[2]}"
        host.run("ip", "netns", "add", self.end)
        host.run("ip", "link", "add", self.end, "type", "veth", "peer", "eth0", "netns", self.end)
        host.run("ip", "link", "set", self.end, "master", bridge, "up")
        self.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")

    def run(self, *argv: str) -> str:
        return self.host.run("ip", "netns", "exec", self.end, *argv)

    def reaches(self, other: Plugged, address: str, size: int = 100) -> bool:
        """Whether a datagram of this size arrives there: one is sent every tenth of a second."""
        listening = subprocess.Popen(
            [*other.host.enter, "ip", "netns", "exec", other.end, *python(LISTEN, address)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.run(*python(SEND, address, str(size)))
        said, _ = listening.communicate(timeout=240)
        return said.strip() == str(size)

    def close(self) -> None:
        self.host.run("ip", "netns", "delete", self.end)


LISTEN = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 9999)); s.settimeout(4)
try: print(len(s.recv(65535)))
except TimeoutError: print("nothing")
"""
SEND = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO (ip(7)): never in pieces
for _ in range(30):
    try: s.sendto(b"x" * int(sys.argv[2]), (sys.argv[1], 9999))
    except OSError: pass
    time.sleep(0.1)
"""


def python(script: str, *argv: str) -> list[str]:
    return ["/usr/bin/python3", "-c", script, *argv]


def bridges(host: FarHost) -> dict[str, dict[str, Any]]:
    """Network -> its bridge on this host, by the end of its name."""
    links = json.loads(host.run("ip", "-json", "-details", "link", "show", "type", "bridge"))
    return {link["ifname"].partition("-")[2]: link for link in links}


def test_nodes_on_two_hosts_are_on_one_network(joined: Farm) -> None:
    rack, name = joined.rack, joined.rack.name()
    file = a_file(joined, name)
    rack.run("up", "--yes", file)
    assert {row["host"] for row in rack.json("status", name)} == set(HOSTS)
    assert "Nothing to do" in rack.run("up", "--yes", file).stderr
    one, two = (joined.hosts[each] for each in HOSTS)
    near = Plugged(one, bridges(one)["lan"]["ifname"], "172.31.7.101")
    far = Plugged(two, bridges(two)["lan"]["ifname"], "172.31.7.102")
    alone = Plugged(two, bridges(two)["other"]["ifname"], "172.31.7.103")
    for each in (near, far, alone):
        each.run("ip", "link", "set", "eth0", "mtu", "1400")
    try:
        assert near.reaches(far, "172.31.7.102")
        assert far.reaches(near, "172.31.7.101", size=1400 - 28)
        assert not far.reaches(near, "172.31.7.101", size=1401 - 28), "more than the MTU"
        assert not near.reaches(alone, "172.31.7.103"), "another network"
    finally:
        for each in (near, far, alone):
            each.close()


@pytest.mark.boots
def test_each_host_boots_its_own_nodes_on_a_network_of_several(joined: Farm) -> None:
    rack, name = joined.rack, joined.rack.name()
    rack.run("up", "--yes", a_file(joined, name))
    assert {row["verdict"] for row in rack.json("verify", name)} == {"as declared"}


def test_a_tunnel_that_is_gone_is_drift_and_mended_and_down_leaves_none(joined: Farm) -> None:
    rack, name = joined.rack, joined.rack.name()
    file = a_file(joined, name)
    rack.run("up", "--yes", file)
    host = joined.hosts["rack-a"]
    device = f"vx{bridges(host)['lan']['ifname'].removeprefix('ns')}"
    host.run("ip", "link", "delete", device)
    assert "the tunnel to the other hosts is not there" in rack.run("plan", file).stdout
    rack.run("up", "--yes", file)
    assert "Nothing to do" in rack.run("up", "--yes", file).stderr
    host.run("bridge", "fdb", "append", "00:00:00:00:00:00", "dev", device, "dst", "198.51.100.9")
    assert "the tunnel's peers differ" in rack.run("plan", file).stdout
    rack.run("up", "--yes", a_file(joined, name, NETWORKS.replace("overlay: vxlan, ", "")))
    assert device not in host.run("ip", "-o", "link"), "no overlay any more"
    rack.run("down", "--yes", name)
    for each in HOSTS:
        assert "vxlan" not in joined.hosts[each].run("ip", "-details", "link")


def test_another_address_of_a_host_leads_the_tunnels_there(joined: Farm) -> None:
    rack, name = joined.rack, joined.rack.name()
    rack.run("up", "--yes", a_file(joined, name))
    joined.hosts["rack-b"].run("ip", "address", "add", "198.51.100.3/24", "dev", "up0")
    file = a_file(joined, name, **{"rack-b": "198.51.100.3"})
    steps = [each for each in rack.json("plan", file)["steps"] if each["kind"] == "network"]
    assert {(each["action"], each["host"]) for each in steps} == {
        ("change", "rack-a"), ("change", "rack-b"),
    }  # fmt: skip
    assert {change["rule"] for each in steps for change in each["changes"]} == {"live"}
    rack.run("up", "--yes", file)
    near, far = (joined.hosts[each] for each in HOSTS)
    device = f"vx{bridges(near)['lan']['ifname'].removeprefix('ns')}"
    assert "dst 198.51.100.3 self" in near.run("bridge", "fdb", "show", "dev", device)
    assert "local 198.51.100.3" in far.run("ip", "-details", "link", "show", "dev", device)


def test_hosts_without_an_address_can_have_no_tunnel(farm: Farm) -> None:
    file = farm.file(farm.rack.name(), f"{NETWORKS}{NODES}")
    refused = farm.rack.run("plan", file, status=1)
    assert "network lan: host rack-a has no `address` for others" in refused.stderr
