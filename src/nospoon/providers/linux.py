"""What a Linux host tells of itself by the commands that every host has."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import PurePosixPath

from nospoon.model.host_facts import Route
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
    """What a host has besides what we make there; `links` by name, None where nobody looked."""

    routes: tuple[Route, ...] = ()
    links: Mapping[str, Link] | None = None
    ovs_bridges: frozenset[str] = frozenset()

    @property
    def masters(self) -> dict[str, str]:
        """Interfaces that are plugged into a bridge -> that bridge."""
        return {name: link.master for name, link in (self.links or {}).items() if link.master}

    @property
    def bridges(self) -> frozenset[str]:
        return frozenset(n for n, link in (self.links or {}).items() if link.kind in BRIDGES)


async def surroundings(runner: Runner, *, networks: bool) -> Surroundings:
    """What is there; nothing is asked of a host that has no networks of ours."""
    if not networks:
        return Surroundings()
    found = await asyncio.gather(_routes(runner), _links(runner), _ovs_bridges(runner))
    return Surroundings(*found)


async def free_space(runner: Runner, path: str) -> int:
    """Bytes free on the file system of a path, or of the nearest directory above it."""
    parents = [str(each) for each in (PurePosixPath(path), *PurePosixPath(path).parents)]
    done = await runner.run(["df", "-B1", "--output=avail", *reversed(parents)], check=False)
    told = [line for line in done.stdout.split() if line.isdigit()]
    return int(told[-1]) if told else 0


async def _links(runner: Runner) -> dict[str, Link]:
    done = await runner.run(["ip", "-json", "-details", "link", "show"])
    return {
        each["ifname"]: Link(each.get("linkinfo", {}).get("info_kind", ""), each.get("master", ""))
        for each in json.loads(done.stdout or "[]")
    }


OVS_BRIDGES = "! command -v ovs-vsctl >/dev/null || ovs-vsctl --timeout=5 list-br"
"""A host without Open vSwitch has none of its bridges."""


async def _ovs_bridges(runner: Runner) -> frozenset[str]:
    """None either where it is installed and does not run: the plan then says what is no bridge."""
    done = await runner.run(["sh", "-c", OVS_BRIDGES], check=False)
    return frozenset(done.stdout.split()) if done.status == 0 else frozenset()


async def _routes(runner: Runner) -> tuple[Route, ...]:
    found = [await _routes_of(runner, family, whole) for family, whole in FAMILIES.items()]
    return tuple(route for routes in found for route in routes)


FAMILIES = {"-4": "0.0.0.0/0", "-6": "::/0"}
"""Option of ip(8) -> what it calls "default"."""


async def _routes_of(runner: Runner, family: str, whole: str) -> list[Route]:
    done = await runner.run(["ip", "-json", family, "route", "show", "table", "main"])
    routes = []
    for entry in json.loads(done.stdout or "[]"):
        destination = entry.get("dst", "default")
        network = ip_network(whole if destination == "default" else destination, strict=False)
        routes.append(Route(network, entry.get("dev", ""), entry.get("gateway", "")))
    return [route for route in routes if not route.network.is_link_local]


async def routes_here() -> tuple[Route, ...]:
    """The routes of the machine on which BMCs answer: this one."""
    return await _routes(runner_for(""))
