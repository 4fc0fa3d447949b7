"""What a Linux host tells of itself by the commands that every host has."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, ip_network
from pathlib import PurePosixPath

from nospoon.model.host_facts import Route
from nospoon.providers.printed import lines_of, rows_of
from nospoon.providers.reached import used
from nospoon.runtime.paced import paced
from nospoon.runtime.runner import Runner, runner_for

BRIDGES = frozenset({"bridge", "openvswitch"})
"""Kinds of links into which machines are plugged."""


@dataclass(frozen=True, slots=True)
class Link:
    """`kind` as ip-link(8) calls it; `master`: the bridge that it is plugged into."""

    kind: str
    master: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a host has besides what we make there; `links` by name, None where nothing looked.

    `boot_ports`: UDP ports of network boot that no dnsmasq of nospoon can have beside another
    server, and that server, "" where it cannot be seen.
    """

    routes: tuple[Route, ...] = ()
    links: Mapping[str, Link] | None = None
    ovs_bridges: frozenset[str] = frozenset()
    boot_ports: Mapping[int, str] = field(default_factory=dict)

    @property
    def masters(self) -> dict[str, str]:
        """Interfaces that are plugged into a bridge -> that bridge."""
        return {name: link.master for name, link in (self.links or {}).items() if link.master}

    @property
    def bridges(self) -> frozenset[str]:
        return frozenset(n for n, link in (self.links or {}).items() if link.kind in BRIDGES)


async def surroundings(runner: Runner, *, networks: bool, boot_ports: bool) -> Surroundings:
    """What is there; a host without networks of this cluster is asked nothing. `boot_ports`: they
    are tried, too.
    """
    if not networks:
        return Surroundings()
    routes, links, (ovs_bridges, taken) = await asyncio.gather(
        _routes(runner), _links(runner), _services(runner, boot_ports=boot_ports)
    )
    return Surroundings(routes, links, ovs_bridges, taken)


async def free_space(runner: Runner, path: str) -> int:
    """Bytes free on the file system of a path, or of the nearest directory above it; 0: unknown,
    and so 1 where it is full.
    """
    parents = [str(each) for each in (PurePosixPath(path), *PurePosixPath(path).parents)]
    done = await runner.run(["df", "-B1", "--output=avail", *reversed(parents)], check=False)
    numbers = [line.strip() for line in lines_of(done) if line.strip().isdecimal()]
    return max(int(numbers[-1]), 1) if numbers else 0


ENTERS = """
user=$1 group=$2; shift 2
groups=--clear-groups
! getent passwd "$user" >/dev/null || groups=--init-groups
exec setpriv --reuid="$user" --regid="$group" "$groups" sh -c '
  for each in "$@"; do
    [ -d "$each" ] || exit 0
    [ -x "$each" ] || { echo "$each"; exit 0; }
  done' sh "$@"
"""
"""Shell: the first of these directories, from the top, that a user may not enter."""


async def closed_to(runner: Runner, user: tuple[int, int], path: str) -> str:
    """The first directory on the way to a path, and itself, that a user (uid and gid) may not
    enter; "" where there is none, or where who runs this may not try it.
    """
    parents = [str(each) for each in reversed((PurePosixPath(path), *PurePosixPath(path).parents))]
    words = [str(each) for each in user]
    done = await runner.run(["sh", "-ec", ENTERS, "sh", *words, *parents], check=False)
    found = next(iter(lines_of(done)), "") if done.status == 0 else ""
    return found if found in parents else ""


async def _links(runner: Runner) -> dict[str, Link]:
    done = await runner.run(["ip", "-json", "-details", "link", "show"])
    found = {}
    async for each in paced(await rows_of(done)):
        about = each.get("linkinfo")
        kind = about.get("info_kind", "") if isinstance(about, dict) else ""
        found[str(each.get("ifname", ""))] = Link(str(kind), str(each.get("master", "")))
    return found


TRY_BOOT_PORTS = """
import errno, socket
for port, address in ((67, "0.0.0.0"), (69, "127.255.255.254")):
    tried = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        if port == 67:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
        tried.bind((address, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            print("taken", port)
    tried.close()
"""
"""Python: as `services.netboot.dnsmasq.obstacle`, on a host where nospoon is not installed."""
SERVICES = f"""
! command -v ovs-vsctl >/dev/null || ovs-vsctl --timeout=5 list-br | sed "s/^/bridge /"
if [ -n "$1" ] && command -v python3 >/dev/null; then
  python3 -I -S -c '{TRY_BOOT_PORTS}'
  ss -H -n -l -u -p | sed "s/^/socket /"
fi
"""
"""Shell: a line for each bridge of Open vSwitch, for each port of network boot that is taken, and
for each UDP socket, by ss(8). One command, because each is a round trip to a host over ssh. A host
without Open vSwitch has none of its bridges.
"""
_SOCKET = re.compile(r'socket \S+ +\d+ +\d+ +(\S+):(\d+) .*users:\(\("([^"]*)",pid=(\d+)')
_ALL_ADDRESSES = (str(IPv4Address(0)), "*", "[::]")
"""As ss(8) writes them. What is bound to a device, written after a %, hinders no other server."""


async def _services(
    runner: Runner, *, boot_ports: bool
) -> tuple[frozenset[str], Mapping[int, str]]:
    """No bridges where Open vSwitch is installed and does not run: the plan then says what
    is no bridge. No ports where no Python is there to try them: `up` then says what is taken.
    """
    done = await runner.run(["sh", "-c", SERVICES, "sh", "try" if boot_ports else ""], check=False)
    printed = lines_of(done)
    lines = [words for line in printed if len(words := line.split()) > 1]
    holders = {
        int(port): f"{name} (pid {pid})"
        for found in map(_SOCKET.match, printed)
        if found is not None
        for address, port, name, pid in [found.groups()]
        if address in _ALL_ADDRESSES
    }
    taken = (int(line[1]) for line in lines if line[0] == "taken" and line[1].isdecimal())
    bridges = frozenset(line[1] for line in lines if line[0] == "bridge")
    return bridges, {port: holders.get(port, "") for port in taken}


async def _routes(runner: Runner) -> tuple[Route, ...]:
    """And single addresses that are used by a default route."""
    found = [await _routes_of(runner, family, whole) for family, whole in FAMILIES.items()]
    routes = [route for routes in found for route in routes]
    return (*routes, *await used(runner, routes))


FAMILIES = {"-4": "0.0.0.0/0", "-6": "::/0"}
"""Option of ip(8) -> what it calls "default"."""


async def _routes_of(runner: Runner, family: str, whole: str) -> list[Route]:
    done = await runner.run(["ip", "-json", family, "route", "show", "table", "main"])
    routes = []
    async for entry in paced(await rows_of(done)):
        destination = str(entry.get("dst", "default"))
        with contextlib.suppress(ValueError):  # of a host that prints what ip(8) does not
            network = ip_network(whole if destination == "default" else destination, strict=False)
            if not network.is_link_local:
                device, gateway = str(entry.get("dev", "")), str(entry.get("gateway", ""))
                routes.append(Route(network, device, gateway))
    return routes


async def routes_here() -> tuple[Route, ...]:
    """The routes of the machine on which BMCs answer: this one."""
    return await _routes(runner_for(""))
