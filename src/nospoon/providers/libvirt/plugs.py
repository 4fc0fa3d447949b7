"""Taps of running machines that are in no bridge: somebody took them out, or made a bridge of his
anew. libvirt plugs in when a machine starts, and does not look again.

Those of bridges that we made are the fault of the network; the others are the machine's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import libvirt

from nospoon.model.cluster import Switch
from nospoon.model.resources import Machine, MachineNic, Observed
from nospoon.providers.libvirt.elements import attribute_of, parsed
from nospoon.providers.libvirt.faults import NO_DOMAIN, NO_NETWORK
from nospoon.providers.libvirt.hypervisor import Connect, Hypervisor, ignoring
from nospoon.providers.libvirt.owner import owner_in
from nospoon.runtime import process
from nospoon.runtime.runner import Runner

NO_DEVICE = "Cannot find device"
"""What ip(8) says of a link that is not there."""


class Plugs:
    """Finds them, and plugs them in again. `runner` runs ip(8) on the host."""

    def __init__(self, hypervisor: Hypervisor, runner: Runner, deployment: str) -> None:
        self._hypervisor, self._runner, self._deployment = hypervisor, runner, deployment

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
        own = await self._hypervisor.ask(self._own, "look for networks")
        return [_unplugged(each, loose, own) for each in machines]

    async def mend(self, machine: Machine) -> None:
        """Plug its NICs in where it has them now."""
        loose = await self.loose()
        nics = [nic for nic in _on_bridges(machine, frozenset()) if nic.port in loose]
        if not nics:
            return
        has = await self._hypervisor.ask(taps_of, "look for the taps of a running machine")
        for nic in nics:
            if nic.port in has.get(nic.bridge, ()):
                await self.plug_in(nic.port, nic.bridge)

    async def plug_in(self, tap: str, bridge: str, *, mtu: int | None = None) -> None:
        """One whose machine has ended meanwhile is gone, and no error."""
        width = ["mtu", str(mtu)] if mtu is not None else []
        argv = ["ip", "link", "set", "dev", tap, "master", bridge, *width]
        done = await self._runner.run(argv, check=False)
        if done.status != 0 and NO_DEVICE not in done.stderr:
            process.refuse(done)

    def _own(self, connect: Connect) -> frozenset[str]:
        """Bridges that we made."""
        found = ((root, owner_in(root)) for root, _ in described(connect))
        return frozenset(
            attribute_of(root, "bridge", "name")
            for root, owner in found
            if owner is not None and owner.tag.deployment == self._deployment
        )


def _unplugged(machine: Observed, loose: frozenset[str], own: frozenset[str]) -> Observed:
    assert isinstance(machine.shape, Machine)
    has = machine.live or machine.shape
    assert isinstance(has, Machine)
    will = {(nic.mac.lower(), nic.bridge) for nic in machine.shape.nics}
    lost = tuple(
        nic.mac.lower()
        for nic in _on_bridges(has, own)
        if nic.port in loose and (nic.mac.lower(), nic.bridge) in will
    )
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


def described(connect: Connect) -> Iterator[tuple[ET.Element, bool]]:
    """Every network's description and whether it is active; those that vanish meanwhile are not.

    libvirt lists networks and describes each in calls of its own: others come and go in between.
    """
    for network in connect.listAllNetworks(0):
        try:
            xml = network.XMLDesc(libvirt.VIR_NETWORK_XML_INACTIVE)
            active = bool(network.isActive())
        except libvirt.libvirtError as error:
            if error.get_error_code() != NO_NETWORK:
                raise
            continue
        yield parsed(xml), active
