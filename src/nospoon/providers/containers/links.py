"""Links of running containers that are in no bridge, or in another one than theirs: another program
removed them, or recreated its bridge. liblxc plugs in when a container starts, and does not look
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nospoon.model.cluster import Switch
from nospoon.model.resources import Machine, MachineNic, Observed
from nospoon.providers.printed import rows_of
from nospoon.runtime.runner import Runner

SETTLES = 0.2
"""Seconds within which a container that starts or stops is plugged in, or gone."""
PLUG = """
while [ $# -gt 1 ]; do
  ! ip link show dev "$1" >/dev/null 2>&1 || ip link set dev "$1" master "$2"
  shift 2
done
"""
"""Shell, of pairs of a link and its bridge: plug those in that are there."""


async def seen(runner: Runner, machines: Sequence[Observed]) -> Sequence[Observed]:
    """The same machines; their NICs that are not where they were plugged in are as those whose link
    is down.
    """
    if not any(_nics(each) for each in machines):
        return machines
    first = await _masters(runner)
    if not any(_lost(each, first) for each in machines):
        return machines
    await asyncio.sleep(SETTLES)
    again = await _masters(runner)
    return [_without(each, _lost(each, first) & _lost(each, again)) for each in machines]


async def plug(runner: Runner, machine: Machine) -> None:
    """Plug the links of one that runs in where it has them."""
    pairs = [word for nic in _bridged(machine) for word in (nic.port, nic.bridge)]
    if pairs:
        await runner.run(["sh", "-ec", PLUG, "sh", *pairs])


async def _masters(runner: Runner) -> dict[str, str]:
    """Link -> the bridge that it is in, "" for none."""
    done = await runner.run(["ip", "-json", "link", "show", "type", "veth"])
    links = await rows_of(done)
    return {str(each["ifname"]): str(each.get("master", "")) for each in links if "ifname" in each}


def _bridged(machine: Machine) -> list[MachineNic]:
    """NICs on bridges of Linux."""
    return [nic for nic in machine.nics if nic.bridge and nic.switch is Switch.BRIDGE]


def _nics(observed: Observed) -> list[MachineNic]:
    """Those with which it was started, of one that runs."""
    has = observed.live or observed.shape
    return _bridged(has) if observed.running and isinstance(has, Machine) else []


def _lost(observed: Observed, masters: Mapping[str, str]) -> frozenset[str]:
    """MACs of NICs that are not where they are to be."""
    return frozenset(
        nic.mac for nic in _nics(observed) if masters.get(nic.port, nic.bridge) != nic.bridge
    )


def _without(observed: Observed, lost: frozenset[str]) -> Observed:
    shape, live = observed.shape, observed.live
    assert isinstance(shape, Machine), "machine keys have machine shapes"
    if not lost:
        return observed
    down = tuple(sorted(lost))
    has = replace(live, unlinked=down) if isinstance(live, Machine) else None
    return replace(observed, shape=replace(shape, unlinked=down), live=has)
