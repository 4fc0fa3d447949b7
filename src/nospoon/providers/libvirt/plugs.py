"""Taps of running machines that are in no bridge: somebody took them out, or made a bridge of his
anew. libvirt plugs in when a machine starts, and does not look again.

Those of bridges that we made are the fault of the network; the others are the machine's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import libvirt

from nospoon.model.cluster import Switch
from nospoon.model.resources import Machine, MachineNic, Observed
from nospoon.providers.libvirt.elements import attribute_of, parsed
from nospoon.providers.libvirt.faults import NO_DOMAIN
from nospoon.providers.libvirt.hypervisor import Connect, Hypervisor, ignoring
from nospoon.runtime.runner import Runner


class Plugs:
    """Finds them, and plugs them in again. `runner` runs ip(8) on the host."""

    def __init__(self, hypervisor: Hypervisor, runner: Runner) -> None:
        self._hypervisor, self._runner = hypervisor, runner

    async def loose(self) -> frozenset[str]:
        """Taps that are in no bridge."""
        argv = ["ip", "-json", "link", "show", "type", "tun"]
        done = await self._runner.run(argv, check=False)
        links: list[dict[str, Any]] = json.loads(done.stdout or "[]") if done.status == 0 else []
        taps = (link for link in links if "ifname" in link)
        return frozenset(str(tap["ifname"]) for tap in taps if "master" not in tap)

    async def seen(self, machines: Sequence[Observed]) -> Sequence[Observed]:
        """The same machines; their NICs on bridges of others that are plugged in nowhere are as
        those whose link is down.
        """
        if not any(each.running for each in machines):
            return machines
        loose = await self.loose()
        if not loose:
            return machines
        own = await self._hypervisor.ask(_own_bridges, "look for networks")
        return [_unplugged(each, loose, own) for each in machines]

    async def mend(self, machine: Machine) -> None:
        """Plug its NICs in where it has them now."""
        loose = (await self.loose()).intersection(nic.port for nic in machine.nics)
        if not loose:
            return
        wanted = await self._hypervisor.ask(taps_of, "look for the taps of a running machine")
        for bridge, taps in wanted.items():
            for tap in loose.intersection(taps):
                await self._runner.run(["ip", "link", "set", "dev", tap, "master", bridge])


def _unplugged(machine: Observed, loose: frozenset[str], own: frozenset[str]) -> Observed:
    assert isinstance(machine.shape, Machine)
    has = machine.live or machine.shape
    assert isinstance(has, Machine)
    lost = tuple(nic.mac.lower() for nic in _on_bridges(has, own) if nic.port in loose)
    if not machine.running or not lost:
        return machine
    down = tuple(dict.fromkeys((*machine.shape.unlinked, *lost)))
    live = replace(has, unlinked=down) if machine.live is not None else None
    return replace(machine, shape=replace(machine.shape, unlinked=down), live=live)


def _on_bridges(machine: Machine, own: frozenset[str]) -> Iterator[MachineNic]:
    """NICs on Linux bridges that somebody else made."""
    for nic in machine.nics:
        if nic.bridge and nic.bridge not in own and nic.switch is not Switch.OVS:
            yield nic


def _own_bridges(connect: Connect) -> frozenset[str]:
    """Of libvirt's networks, ours among them."""
    return frozenset(
        attribute_of(parsed(network.XMLDesc(0)), "bridge", "name")
        for network in connect.listAllNetworks(0)
    )


def taps_of(connect: Connect) -> dict[str, list[str]]:
    """Bridge -> the taps that running machines have for it."""
    taps: dict[str, list[str]] = {}
    for domain in connect.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE):
        with ignoring(NO_DOMAIN):
            for nic in parsed(domain.XMLDesc(0)).iterfind("devices/interface[@type='bridge']"):
                bridge, tap = (
                    attribute_of(nic, "source", "bridge"),
                    attribute_of(nic, "target", "dev"),
                )
                taps.setdefault(bridge, []).append(tap)
    return taps
