"""Tunnels between the bridges of one network on several hosts: VXLAN (RFC 7348), by ip-link(8).

What a bridge does not know yet goes to all peers: each has an entry of its own in the forwarding
database, so that no multicast is asked of what lies between the hosts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import structlog

from nospoon.errors import NotOurs
from nospoon.model.resources.networks import Tunnel
from nospoon.providers.libvirt import tunnel_guard
from nospoon.providers.libvirt.tunnel_guard import PORT
from nospoon.providers.printed import rows_of
from nospoon.runtime.process import said_by
from nospoon.runtime.runner import Runner

log = structlog.get_logger()
MOST_LEARNED = 4096
"""MAC addresses that a tunnel's device, or a bridge, learns from what guests send. Frames to others
reach all ports, as they did before these were learned.
"""
EVERYBODY = "00:00:00:00:00:00"
"""The address in the forwarding database that stands for whatever is not known (bridge(8))."""


def device_of(bridge: str) -> str:
    """Name of the tunnel's device: as its bridge's, and as short."""
    return f"vx{bridge.removeprefix('ns')}"


@dataclass(frozen=True, slots=True)
class Tunnels:
    """The tunnels of one host. `owner` is the alias of their devices; others are left alone."""

    runner: Runner
    owner: str

    async def make(self, bridge: str, mtu: int, tunnel: Tunnel) -> None:
        """Have this tunnel plugged into the bridge; one that is there as it shall be stays.

        Raises `NotOurs` where someone else's device has its name.
        """
        name = device_of(bridge)
        if _leads(await self._look(name), tunnel) is False:
            await self.remove(bridge)
        if not await self._look(name):
            where = ("id", str(tunnel.vni), "local", tunnel.local, "dstport", str(PORT),
                     "maxaddress", str(MOST_LEARNED))  # fmt: skip
            await self._ip("link", "add", "name", name, "type", "vxlan", *where)
        done = await self.runner.run(tunnel_guard.making(bridge, tunnel), check=False)
        if done.status:
            log.warning("anyone may send into a tunnel", bridge=bridge, why=said_by(done))
        await self._ip("link", "set", "dev", name, "alias", self.owner)
        await self._ip("link", "set", "dev", name, "mtu", str(mtu), "master", bridge)
        await self._ip("link", "set", "dev", name, "up")  # not before: see `Plugs.shut`
        known = await self._peers(name)
        for peer in sorted(known ^ set(tunnel.peers)):
            change = "append" if peer in tunnel.peers else "delete"
            await self.runner.run(["bridge", "fdb", change, EVERYBODY, "dev", name, "dst", peer])

    async def remove(self, bridge: str) -> None:
        """Take the bridge's tunnel away; one that is not there is no error. Raises `NotOurs`."""
        name = device_of(bridge)
        await self.runner.run(tunnel_guard.removing(bridge), check=False)
        found = await self._look(name)
        if not found:
            return
        if found.get("ifalias", self.owner) != self.owner or _kind(found) != "vxlan":
            raise NotOurs(
                f"a device {name} is there, and nospoon did not make it",
                hint=f"See `ip link show {name}`; remove it.",
            )
        await self._ip("link", "delete", "dev", name)

    async def fault(self, bridge: str, tunnel: Tunnel) -> str:
        """What is wrong with a tunnel that shall be there, "" when nothing is."""
        name = device_of(bridge)
        found = await self._look(name)
        if not found or found.get("master") != bridge or not _leads(found, tunnel):
            return "the tunnel to the other hosts is not there"
        return "" if await self._peers(name) == set(tunnel.peers) else "the tunnel's peers differ"

    async def _look(self, name: str) -> Mapping[str, object]:
        argv = ["ip", "-json", "-details", "link", "show", "dev", name]
        done = await self.runner.run(argv, check=False)
        links = await rows_of(done) if done.status == 0 else []
        return next((each for each in links if each.get("ifname") == name), {})

    async def _peers(self, name: str) -> set[str]:
        done = await self.runner.run(["bridge", "-json", "fdb", "show", "dev", name])
        return set(_destinations(await rows_of(done)))

    async def _ip(self, *argv: str) -> None:
        await self.runner.run(["ip", *argv])


def _destinations(entries: Sequence[Mapping[str, object]]) -> Iterator[str]:
    for each in entries:
        if each.get("mac") == EVERYBODY and "dst" in each:
            yield str(each["dst"])


def _kind(link: Mapping[str, object]) -> str:
    return str(_details(link).get("info_kind", ""))


def _details(link: Mapping[str, object]) -> Mapping[str, object]:
    details = link.get("linkinfo")
    return details if isinstance(details, dict) else {}


def _leads(link: Mapping[str, object], tunnel: Tunnel) -> bool | None:
    """Whether a device is this tunnel's end; None where there is none."""
    if not link:
        return None
    data = _details(link).get("info_data")
    if not isinstance(data, dict):
        return False
    local = data.get("local") or data.get("local6")
    return (data.get("id"), local, data.get("port")) == (tunnel.vni, tunnel.local, PORT)
