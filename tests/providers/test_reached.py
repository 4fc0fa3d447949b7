"""Single addresses that a host uses: a network of a cluster would take them over."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network
from typing import cast

from nospoon.model.host_facts import Route
from nospoon.providers import linux, reached
from nospoon.runtime.process import Finished
from nospoon.runtime.runner import LocalRunner, Runner

SAID = """\
names 10.255.255.53
names fd00:5::53%eth0
names 127.0.0.53
peer 10.9.0.7
peer [::ffff:10.9.0.8]
peer 192.0.2.9
peer 10.8.0.5
own 10.8.0.5
own [::ffff:192.0.2.2]
peer 1.2.3.4
peer 172.16.5.5
peer nothing
odd

names
"""


class Said:
    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        del stdin, check
        return Finished(tuple(argv), 0, SAID, "")


def routes(*given: str) -> list[Route]:
    return [Route(ip_network(network), device) for network, device in map(str.split, given)]


async def test_addresses_that_only_a_default_route_leads_to_are_found() -> None:
    """Not the host's own, not those of its networks, and no public one of a connection."""
    known = routes("0.0.0.0/0 eth0", "192.0.2.0/24 eth0", "172.16.0.0/12 tun0", "::/0 eth1")
    found = await reached.used(cast("Runner", Said()), known)
    assert {(str(each.network), each.device, each.used) for each in found} == {
        ("10.255.255.53/32", "eth0", "a server of names"),
        ("10.9.0.7/32", "eth0", "a connection"),
        ("10.9.0.8/32", "eth0", "a connection"),
        ("fd00:5::53/128", "eth1", "a server of names"),
    }


async def test_a_host_without_a_default_route_reaches_none() -> None:
    assert await reached.used(cast("Runner", Said()), routes("192.0.2.0/24 eth0")) == []


async def test_this_machine_says_what_it_uses() -> None:
    """What is found is in no route of the kernel but a default one."""
    done = await LocalRunner().run(["sh", "-c", reached.USED])
    assert {line.split()[0] for line in done.stdout.splitlines()} <= reached.KINDS.keys()
    found = await linux.routes_here()
    kernels = [each for each in found if not each.used and each.network.prefixlen]
    for each in found:
        if each.used:
            assert not any(other.network.overlaps(each.network) for other in kernels)
