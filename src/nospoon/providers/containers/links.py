"""Links of running containers that are in no bridge, or in another one than theirs: another program
removed them, or recreated its bridge. liblxc plugs in when a container starts, and does not look
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nospoon.model.cluster import Switch
from nospoon.model.resources.machines import Machine, MachineNic
from nospoon.model.resources.resource import Observed
from nospoon.providers import openvswitch
from nospoon.providers.printed import rows_of
from nospoon.providers.unlinked import with_unlinked
from nospoon.runtime.runner import Runner

SETTLES = 0.2
"""Seconds within which a container that starts or stops is plugged in, or gone."""
PLUG = """
! ip link show dev "$1" >/dev/null 2>&1 || ip link set dev "$1" master "$2"
"""
"""Shell, of a link and its bridge: plug it in, if it is there still."""


@dataclass(frozen=True, slots=True)
class _Places:
    """Where links are. `masters`: link -> the bridge of Linux that it is in, "" for none."""

    masters: Mapping[str, str]
    switch: openvswitch.Switch

    def has_lost(self, nic: MachineNic) -> bool:
        """Whether its link is there, and not where it is to be. What is in a bridge of Open vSwitch
        that is gone cannot be plugged in again.
        """
        if nic.port not in self.masters:
            return False
        if nic.switch is Switch.BRIDGE:
            return self.masters[nic.port] != nic.network
        is_known = nic.network in self.switch.bridges
        return is_known and self.switch.ports.get(nic.port) != openvswitch.wanted(nic)


async def seen(runner: Runner, machines: Sequence[Observed]) -> Sequence[Observed]:
    """The same machines; their NICs that are not where they were plugged in are as those whose link
    is down.
    """
    nics = [nic for each in machines for nic in _nics(each)]
    if not nics:
        return machines
    first = await _places(runner, nics)
    if not any(first.has_lost(nic) for nic in nics):
        return machines
    await asyncio.sleep(SETTLES)
    again = await _places(runner, nics)
    return [_without(each, _lost(each, first) & _lost(each, again)) for each in machines]


async def plug(runner: Runner, machine: Machine) -> None:
    """Plug the links of one that runs in where it has them."""
    nics = [nic for nic in machine.nics if nic.network]
    if not nics:
        return
    places = await _places(runner, nics)
    for nic in filter(places.has_lost, nics):
        if nic.switch is Switch.OVS:
            place, now = openvswitch.wanted(nic), places.switch.ports.get(nic.port)
            await openvswitch.plug(runner, nic.port, place, now, {})
        else:
            await runner.run(["sh", "-ec", PLUG, "sh", nic.port, nic.network])


async def _places(runner: Runner, nics: Sequence[MachineNic]) -> _Places:
    has_ovs = any(nic.switch is Switch.OVS for nic in nics)
    switch = await openvswitch.look(runner) if has_ovs else openvswitch.NONE
    return _Places(await _masters(runner), switch)


async def _masters(runner: Runner) -> dict[str, str]:
    done = await runner.run(["ip", "-json", "link", "show", "type", "veth"])
    links = await rows_of(done)
    return {str(each["ifname"]): str(each.get("master", "")) for each in links if "ifname" in each}


def _nics(observed: Observed) -> list[MachineNic]:
    """Those with which it was started, of one that runs."""
    has = observed.live or observed.shape
    if not observed.running or not isinstance(has, Machine):
        return []
    return [nic for nic in has.nics if nic.network]


def _lost(observed: Observed, places: _Places) -> frozenset[str]:
    """MACs of NICs that are not where they are to be."""
    return frozenset(nic.mac for nic in _nics(observed) if places.has_lost(nic))


def _without(observed: Observed, lost: frozenset[str]) -> Observed:
    return with_unlinked(observed, sorted(lost)) if lost else observed
