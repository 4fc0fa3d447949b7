"""Ports of running machines that are not where they were plugged in: another program removed them,
gave them other VLANs, or recreated its bridge. libvirt plugs in when a machine starts, and does not
look again.

Those that are in no bridge, and were in one that we made, are the fault of the network; the others
are the machine's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from xml.etree import ElementTree as ET

import libvirt

from nospoon.errors import ProviderError
from nospoon.model.cluster import Switch
from nospoon.model.resources.machines import Machine, MachineNic
from nospoon.model.resources.resource import Observed
from nospoon.providers import openvswitch
from nospoon.providers.libvirt.bindings import Connect
from nospoon.providers.libvirt.definitions import defined
from nospoon.providers.libvirt.domain_parse import nics_of
from nospoon.providers.libvirt.elements import attribute_of, parsed
from nospoon.providers.libvirt.faults import NO_DOMAIN, NO_NETWORK, TOO_LONG_TEXT
from nospoon.providers.libvirt.hypervisor import Hypervisor, ignoring
from nospoon.providers.libvirt.owner import owner_in
from nospoon.providers.printed import rows_of
from nospoon.providers.unlinked import with_unlinked
from nospoon.runtime import process
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.runner import Runner

log = RateLimitedLog()
UNKNOWN: frozenset[str] = frozenset()
"""Which bridges are ours, before anybody looked."""
SETTLES = 0.2
"""Seconds within which a machine that starts or stops is plugged in, or gone."""
NO_DEVICE = "Cannot find device"
"""What ip(8) says of a link that is not there."""


class Plugs:
    """Finds them, and plugs them in again. `runner` runs ip(8) on the host."""

    def __init__(self, hypervisor: Hypervisor, runner: Runner, deployment: str) -> None:
        self._hypervisor, self._runner, self._deployment = hypervisor, runner, deployment

    async def loose(self) -> frozenset[str]:
        """Taps that are in no bridge."""
        return frozenset(tap for tap, bridge in (await self._taps()).items() if not bridge)

    async def _taps(self) -> dict[str, str]:
        """Tap -> the bridge of Linux that it is in; "" for none, and in the network namespace of
        another host none is known.
        """
        argv = ["ip", "-json", "link", "show", "type", "tun"]
        done = await self._runner.run(argv, check=False)
        links = await rows_of(done) if done.status == 0 else []
        return {str(each["ifname"]): each.get("master", "") for each in links if "ifname" in each}

    async def seen(self, machines: Sequence[Observed]) -> Sequence[Observed]:
        """The same machines; their NICs that are not where they were plugged in are as those whose
        link is down.
        """
        running = [each for each in machines if each.running and not _live(each).adopted]
        if not running:
            return machines
        ports = await self._ports([nic for each in running for nic in _live(each).nics])
        astray = [each for each in running if ports.astray(_live(each).nics, UNKNOWN)]
        if not astray:
            return machines
        await asyncio.sleep(SETTLES)
        again = await self._ports([nic for each in astray for nic in _live(each).nics])
        own = await self._hypervisor.ask(self._own, "look for networks")
        lost = {
            each.key: [
                nic
                for nic in ports.astray(_live(each).nics, own)
                if nic in again.astray(_live(each).nics, own)
            ]
            for each in astray
        }
        return [_unplugged(each, lost.get(each.key, ())) for each in machines]

    async def _ports(self, nics: Sequence[MachineNic]) -> _Ports:
        ovs = any(nic.switch is Switch.OVS for nic in nics)
        switch = await openvswitch.look(self._runner) if ovs else openvswitch.NONE
        return _Ports(await self._taps(), switch)

    async def repair(self, machine: Machine) -> None:
        """Plug its NICs in where it has them now."""
        ports = await self._ports(machine.nics)
        astray = ports.astray(machine.nics, UNKNOWN)
        if not astray:
            return
        look = partial(_started_with, machine)
        has = await self._hypervisor.ask(look, "look at its NICs")
        for nic in astray:
            if nic not in has:
                continue
            if nic.switch is Switch.OVS:
                place, now = openvswitch.wanted(nic), ports.switch.ports.get(nic.port)
                await openvswitch.plug(self._runner, nic.port, place, now, has[nic])
            else:
                await self.plug_in(nic.port, nic.network)
        switched = [nic for nic in astray if nic in has and nic.switch is Switch.OVS]
        still = await self._hypervisor.ask(look, "look at its NICs") if switched else {}
        if left := [nic.port for nic in switched if nic not in still]:
            await openvswitch.unplug(self._runner, left)  # it was switched off meanwhile

    async def plug_in(self, tap: str, bridge: str, *, mtu: int | None = None) -> None:
        """One whose machine has ended meanwhile is gone, and no error."""
        width = ["mtu", str(mtu)] if mtu is not None else []
        await self._set(tap, "master", bridge, *width)
        await self._set(tap, "up")  # of one message Linux would do that first

    async def shut(self, ports: Iterable[str]) -> None:
        """Before their bridge goes: what a guest sends to a port that is in none is its host's, by
        no rule about a bridge. They are up again when they are plugged in.
        """
        for port in ports:
            await self._set(port, "down")

    async def _set(self, tap: str, *how: str) -> None:
        done = await self._runner.run(["ip", "link", "set", "dev", tap, *how], check=False)
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


@dataclass(frozen=True, slots=True)
class _Ports:
    """What is plugged in where. `taps`: their bridges of Linux; `switch`: Open vSwitch."""

    taps: Mapping[str, str]
    switch: openvswitch.Switch

    def astray(self, nics: Iterable[MachineNic], own: Container[str]) -> list[MachineNic]:
        """NICs whose tap is there, and not where they say. Of those in no bridge, none that belong
        to bridges of our `own`.
        """
        return [nic for nic in nics if nic.port in self.taps and self._is_astray(nic, own)]

    def _is_astray(self, nic: MachineNic, own: Container[str]) -> bool:
        if nic.switch is Switch.OVS:
            is_known = nic.network in self.switch.bridges
            return is_known and self.switch.ports.get(nic.port) != openvswitch.wanted(nic)
        bridge = self.taps[nic.port]
        return (
            bool(nic.network) and bridge != nic.network and (bool(bridge) or nic.network not in own)
        )


def _live(machine: Observed) -> Machine:
    """What a machine was started with."""
    has = machine.live or machine.shape
    assert isinstance(has, Machine), "machine keys have machine shapes"
    return has


def _unplugged(machine: Observed, astray: Iterable[MachineNic]) -> Observed:
    assert isinstance(machine.shape, Machine), "machine keys have machine shapes"
    lost = [nic.mac for nic in astray if nic in machine.shape.nics]
    return with_unlinked(machine, lost) if lost else machine


def _started_with(machine: Machine, connect: Connect) -> dict[MachineNic, dict[str, str]]:
    """The NICs of a machine that runs still, each with what libvirt notes of its port at Open
    vSwitch (virNetDevOpenvswitchAddPort).
    """
    found: dict[MachineNic, dict[str, str]] = {}
    with ignoring(NO_DOMAIN):
        domain = connect.lookupByUUID(machine.uuid.bytes)
        if not domain.isActive():
            return found
        root = parsed(domain.XMLDesc(0))
        for nic, each in zip(nics_of(root), root.iterfind("devices/interface"), strict=True):
            found[nic] = {
                "attached-mac": nic.mac,
                "iface-id": attribute_of(each, "virtualport/parameters", "interfaceid"),
                "vm-id": str(machine.uuid),
                "iface-status": "active",
            }
    return found


def taps_of(connect: Connect) -> dict[str, list[str]]:
    """Bridge -> the taps that running machines have for it."""
    taps: dict[str, list[str]] = {}
    for _, root in defined(connect, of=libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE, flags=0):
        for nic in root.iterfind("devices/interface[@type='bridge']"):
            bridge, tap = attribute_of(nic, "source", "bridge"), attribute_of(nic, "target", "dev")
            taps.setdefault(bridge, []).append(tap)
    return taps


def leave_out(name: str, why: str) -> None:
    """A network that says what none of nospoon's does."""
    log.warning("network cannot be read and is left out", network=name, why=why)


def described(connect: Connect) -> Iterator[tuple[ET.Element, bool]]:
    """Every network's description and whether it is active; those that vanish meanwhile are not.

    libvirt lists networks and describes each in calls of its own: others come and go in between.
    """
    for network in connect.listAllNetworks(0):
        try:
            root = parsed(network.XMLDesc(libvirt.VIR_NETWORK_XML_INACTIVE))
            active = bool(network.isActive())
        except ProviderError as error:
            leave_out(network.name(), str(error))
            continue
        except libvirt.libvirtError as error:
            if error.get_error_code() != NO_NETWORK and TOO_LONG_TEXT not in str(error):
                raise
            continue
        yield root, active
