"""Where health checks of services may lead: a file gives NICs their addresses."""

from __future__ import annotations

import asyncio
import os
import shlex
from uuid import uuid4

import pytest

from nospoon.clusterfile.load import load
from nospoon.control.operations.health import WAY, look, look_from_here
from nospoon.model.service import Health
from nospoon.plan.addresses.addresses import GuestAddress, looked_at
from nospoon.plan.addresses.allocate import Allocations
from nospoon.runtime import process
from nospoon.runtime.reach import Reach
from nospoon.runtime.runner import LocalRunner

FILE = """
cluster: c
hosts: {{a: {{libvirt: "qemu:///system"}}}}
networks: {{lan: {{bridge: br0}}}}
nodes:
  - name: n
    kind: vm
    disks: [{{size: 1GiB, image: /i.qcow2}}]
    nics: [{{network: lan, address: "{address}"}}]
"""


def found(address: str) -> dict[str, str]:
    cluster = load(FILE.format(address=address), file="f")
    addresses = looked_at(cluster, uuid4(), Allocations())
    assert {each.link for each in addresses.values()} <= {"br0"}
    return {node: each.address for node, each in addresses.items()}


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1/24",
        "0.0.0.1/24",
        "169.254.169.254/16",
        "168.63.129.16/24",
        "fd00:ec2::254/64",
        "224.0.0.1/24",
        "::1/128",
        "fe80::1/64",
        "::ffff:127.0.0.1/128",
        "::ffff:169.254.169.254/128",
    ],
)
def test_hosts_ask_no_services_of_their_own_or_of_their_clouds(address: str) -> None:
    assert found(address) == {}


@pytest.mark.parametrize("address", ["192.168.7.9/24", "198.51.100.7/24", "fd00::7/64"])
def test_addresses_of_guests_are_looked_at(address: str) -> None:
    assert found(address) == {"n": address.partition("/")[0]}


LINKS = """
mount -t sysfs sysfs /sys
ip link set lo up
for each in "br0 192.168.7.1/24" "br1 10.66.0.1/24" "br2 10.67.0.1/24"; do
  set -- $each
  ip link add "$1" type bridge && ip address add "$2" dev "$1" && ip link set "$1" up
done
ip link add br0.5 link br0 type macvlan
ip link add eth1 type veth peer name eth2 && ip link set eth1 master br2 up
ip address add 192.168.5.1/24 dev br0.5 && ip link set br0.5 up
ip address add fd00::1/64 dev br0 nodad
ip route add default via 192.168.7.254
ip route add 10.50.0.0/16 via 10.66.0.9
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_hosts_look_on_the_network_of_the_node_alone() -> None:
    """A file's address on an existing bridge led wherever the host's routes lead, also to what the
    host itself listens on at other interfaces.
    """
    meant = [
        ("192.168.7.9", "br0", True),
        ("192.168.5.9", "br0", True),  # on what lies upon it, as VLANs do
        ("fd00::9", "br0", True),
        ("10.67.0.9", "eth1", True),  # which is plugged into br2
        ("10.66.0.9", "br0", False),  # on another network of the host
        ("10.66.0.9", "eth1", False),
        ("10.66.0.1", "br0", False),  # the host's own
        ("192.168.7.1", "br0", False),
        ("192.168.7.255", "br0", False),
        ("fd00::1", "br0", False),
        ("10.50.0.1", "br1", False),  # behind routers
        ("198.51.100.7", "br0", False),
        ("fd01::1", "br0", False),  # nowhere
        ("192.168.7.9", "", False),
        ("192.168.7.9", "../br0", False),
    ]
    looks = "".join(
        f"bash -c {shlex.quote(WAY)} look {address} 1 '' '' {link!r}; echo $?\n"
        for address, link, _ in meant
    )
    done = await process.run(["unshare", "-n", "-m", "sh", "-c", LINKS + looks])
    assert done.stdout.split() == ["0" if is_there else "3" for *_, is_there in meant]


async def test_a_service_of_the_host_itself_is_not_looked_at() -> None:
    def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = int(server.sockets[0].getsockname()[1])
        said = await look(LocalRunner(), GuestAddress("127.0.0.1", "lo"), Health(port))
    assert said == "127.0.0.1 is not on the network of lo for its host, which does not look"


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "169.254.169.254", "0.0.0.0", "::1", "fe80::1", "::ffff:127.0.0.1"]
)
async def test_floating_ips_that_a_cloud_makes_up_lead_nowhere(address: str) -> None:
    """Clouds are named by users, and so are those that answer what they like."""
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as server:
        port = int(server.sockets[0].getsockname()[1])
        for path in ("", "/"):
            why = await look_from_here(address, Health(port, path), Reach())
            assert why.startswith("the daemon does not connect to ")


async def test_listeners_of_the_daemon_are_not_looked_at_by_floating_ips() -> None:
    closed = Reach(closed=lambda address, port: (address, port) == ("192.0.2.1", 8069))
    why = await look_from_here("192.0.2.1", Health(8069), closed)
    assert why == "the daemon does not connect to 192.0.2.1:8069"


@pytest.mark.parametrize(
    "address", ["localhost", "", "metadata.example.org", "1.2.3.4 x", "\x1b[2J"]
)
async def test_names_in_the_place_of_floating_ips_are_not_looked_up(address: str) -> None:
    why = await look_from_here(address, Health(80), Reach())
    assert why.endswith("which is not an address")
    assert "\x1b" not in why
