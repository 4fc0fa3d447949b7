"""Single addresses that a host uses, and reaches by a default route.

A network of a cluster that has such an address would take it over: its guests would answer the host
in place of who has the address.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from nospoon.model.host_facts import Route
from nospoon.providers.printed import lines_of
from nospoon.runtime.paced import paced
from nospoon.runtime.runner import Runner

Address = IPv4Address | IPv6Address
USED = """
for each in /etc/resolv.conf /run/systemd/resolve/resolv.conf; do
  [ ! -r $each ] || sed -n 's/^nameserver[[:blank:]]/names /p' $each
done
! command -v ss >/dev/null || ss -H -n -t state established | awk '{
  for (i = 3; i <= 4; i++) {
    sub(/:[0-9]*$/, "", $i)
    if (!seen[i, $i]++) print (i == 3 ? "own" : "peer"), $i
  }
}' | head -n 10000
"""
"""Shell: a line for each server of names (resolv.conf(5)), and for each address that connections
have, here and at their other ends (ss(8)).
"""
KINDS = {"names": "a server of names", "peer": "a connection", "own": ""}
MOST = 1000
"""Addresses that are looked at."""


async def used(runner: Runner, routes: Sequence[Route]) -> list[Route]:
    """Those that none of these routes leads to but a default one."""
    done = await runner.run(["sh", "-c", USED], check=False)
    own, found = set[Address](), dict[Address, str]()
    async for line in paced(lines_of(done)):
        kind, _, text = line.partition(" ")
        address = _address(text) if kind in KINDS else None
        if address is None:
            continue
        if kind == "own":
            own.add(address)
        elif kind == "names" or (not address.is_global and len(found) < MOST):
            found.setdefault(address, KINDS[kind])
    known, default = await _by_prefix(routes)
    return [
        Route(ip_network(address), default[address.version], used=found[address])
        for address in found.keys() - own
        if address.version in default and not _leads_to(known, address)
    ]


def _address(text: str) -> Address | None:
    """None for what is none, or can be in no network of a cluster."""
    try:
        found = ip_address(text.strip().partition("%")[0].strip("[]"))
    except ValueError:
        return None
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return None if found.is_loopback or found.is_link_local or found.is_unspecified else found


_ByPrefix = defaultdict[tuple[int, int], set[int]]
"""Version of IP, bits that are not of the network -> networks."""


async def _by_prefix(routes: Sequence[Route]) -> tuple[_ByPrefix, dict[int, str]]:
    """And devices of default routes. A host may have as many routes as addresses."""
    known, default = _ByPrefix(set), dict[int, str]()
    async for route in paced(routes):
        network = route.network
        if network.prefixlen:
            rest = network.max_prefixlen - network.prefixlen
            known[network.version, rest].add(int(network.network_address) >> rest)
        else:
            default.setdefault(network.version, route.device)
    return known, default


def _leads_to(known: _ByPrefix, address: Address) -> bool:
    return any(
        int(address) >> rest in networks
        for (version, rest), networks in known.items()
        if version == address.version
    )
