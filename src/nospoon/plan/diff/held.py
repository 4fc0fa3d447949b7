"""What a running machine still has and no one desires any more stays until the machine lets go.

A NIC or a disk leaves a running machine at its power-off. Its network, with the network boot on it,
and its disk, with the image below it, are removed by the first `up` after that, not before. So is
its address in DHCP: the machine renews it. A NIC that only gets another MAC keeps its address,
which both MACs are given until then: the machine has one of them at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.netboot import NetbootService, Reservation
from nospoon.model.resources.resource import Observed, Resource, is_adopted
from nospoon.plan.order.order import dependents, named_links
from nospoon.plan.order.steps import Step


def held(
    deletions: Iterable[Step], found: Collection[Observed], ends: AbstractSet[Key]
) -> tuple[list[Step], list[Step]]:
    """Which of these deletions are made now, and which are made later.

    `ends`: what is removed now, were it only to be made again: it lets go.
    """
    wanted = list(deletions)
    if not wanted:
        return [], []
    gone = {step.key for step in wanted}
    running = [each for each in found if each.running and each.key not in ends | gone]
    links = [each for each in found if each.key.kind is Kind.NETWORK]
    holders = {each.key: f"{each.key.name} runs with it until its power-off" for each in running}
    others = {each.key for each in running if is_adopted(each.shape)}
    live = [replace(each, shape=each.live or each.shape) for each in running]
    below = [each for each in found if each.key in gone and each.key.kind is Kind.VOLUME]
    images = [each for each in found if each.key.kind is Kind.BOOT_IMAGE]
    users = dependents([*links, *images, *live, *below])
    why: dict[Key, str] = {}
    for step in sorted(wanted, key=lambda step: step.key.kind is not Kind.VOLUME):
        # whichever boot image is there rescues a server of others
        by = [
            user
            for user in users.get(step.key, ())
            if user not in others or step.key.kind not in {Kind.BOOT_IMAGE, Kind.RELAY}
        ]
        holding = [holders.get(user) or why.get(user, "") for user in by]
        if any(holding):
            why[step.key] = next(filter(None, holding))
    why |= _served(wanted, links, why)
    now = [step for step in wanted if step.key not in why]
    later = [
        replace(step, why=why[step.key], at_power_off=True) for step in wanted if step.key in why
    ]
    return now, later


def _served(
    deletions: Iterable[Step], links: Collection[Observed], why: Mapping[Key, str]
) -> dict[Key, str]:
    """Services on networks that stay: their machines renew their addresses."""
    networks = named_links(links)
    result = {}
    for step in deletions:
        match step.observed:
            case Observed(shape=NetbootService(bridge=bridge)):
                network = networks.get((step.key.place, bridge))
                if network is not None and network in why:
                    result[step.key] = why[network]
            case _:
                pass
    return result


def with_addresses(
    desired: Mapping[Key, Resource], found: Mapping[Key, Observed], ends: AbstractSet[Key]
) -> dict[Key, Resource]:
    """Desired services that keep addresses which machines that run on have, as they are to be.

    `ends`: what is removed now, were it only to be made again: it lets go.
    """
    services = {key: each for key, each in found.items() if isinstance(each.shape, NetbootService)}
    if not services:  # 10,000 machines may run
        return {}
    used: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for key, each in found.items():
        has = each.live or each.shape
        if each.running and key in desired and key not in ends and isinstance(has, Machine):
            for nic in has.nics:
                used[key.place, nic.network].add(nic.mac.lower())
    result = {}
    for key, there in services.items():
        match desired[key].shape if key in desired else None, there.shape:
            case NetbootService() as wanted, NetbootService() as served:
                shape = _serving(wanted, served, used[key.place, wanted.bridge])
                if shape != wanted:
                    result[key] = replace(desired[key], shape=shape)
            case _:
                pass
    return result


def _serving(
    wanted: NetbootService, served: NetbootService, used: AbstractSet[str]
) -> NetbootService:
    """A service that goes on giving addresses to the MACs which are used, on the same network."""
    if (wanted.address, wanted.address6) != (served.address, served.address6):
        return wanted
    named = {mac.lower() for each in wanted.reservations for mac in each.macs}
    result = list(wanted.reservations)
    for each in served.reservations:
        held = tuple(mac for mac in each.macs if mac.lower() in used and mac.lower() not in named)
        if held:
            result = _added(result, each, held)
    alike = set(result) == set(served.reservations)
    return replace(wanted, reservations=served.reservations if alike else tuple(result))


def _added(given: list[Reservation], had: Reservation, macs: tuple[str, ...]) -> list[Reservation]:
    """With these MACs where the address is now; none has an address that another node was given."""
    places = {had.address, had.address6} - {""}
    at = [n for n, each in enumerate(given) if not places.isdisjoint((each.address, each.address6))]
    if not at:
        return [*given, replace(had, mac=macs[0], also=macs[1:])]
    now = given[at[0]]
    if now.uuid != had.uuid:
        return given
    return [*given[: at[0]], replace(now, also=(*now.also, *macs)), *given[at[0] + 1 :]]
