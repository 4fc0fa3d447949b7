"""What a running machine still has and nobody desires any more stays until the machine lets go.

A NIC or a disk leaves a running machine at its power-off. Its network, with the network boot on it,
and its disk, with the image below it, are removed by the first `up` after that, not before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from nospoon.model.resources import Key, Kind, NetbootService, Observed
from nospoon.plan.order import bridges, dependents
from nospoon.plan.steps import Step


def held(
    deletions: Iterable[Step], found: Collection[Observed], ends: AbstractSet[Key]
) -> tuple[list[Step], list[Step]]:
    """Which of these deletions are made now, and which are made later.

    `ends`: what is removed now, were it only to be made anew: it lets go.
    """
    wanted = list(deletions)
    if not wanted:
        return [], []
    gone = {step.key for step in wanted}
    running = [each for each in found if each.running and each.key not in ends | gone]
    links = [each for each in found if each.key.kind is Kind.NETWORK]
    holders = {each.key: f"{each.key.name} runs with it until its power-off" for each in running}
    live = [replace(each, shape=each.live or each.shape) for each in running]
    below = [each for each in found if each.key in gone and each.key.kind is Kind.VOLUME]
    users = dependents([*links, *live, *below])
    why: dict[Key, str] = {}
    for step in sorted(wanted, key=lambda step: step.key.kind is not Kind.VOLUME):
        holding = [holders.get(user) or why.get(user, "") for user in users.get(step.key, ())]
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
    networks = bridges(links)
    result = {}
    for step in deletions:
        match step.observed:
            case Observed(shape=NetbootService(bridge=bridge)):
                network = networks.get((step.key.host, bridge))
                if network is not None and network in why:
                    result[step.key] = why[network]
            case _:
                pass
    return result
