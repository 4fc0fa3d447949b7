"""Which IPv4 network each segment gets: the file's, what it had, or the next free one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network
from itertools import chain

from nospoon.model.cluster import Cluster
from nospoon.plan.addresses.taken import Taken

PRIVATE = IPv4Network("172.30.0.0/16")
"""Where free networks are looked for: /24s in here, then in 10.213.0.0/16."""
SECOND_PRIVATE = IPv4Network("10.213.0.0/16")


def networks(
    cluster: Cluster,
    earlier: Mapping[str, str],
    *,
    routed: Iterable[IPv4Network],
    others: Iterable[IPv4Network],
    elsewhere: Iterable[IPv4Network],
    avoided: Iterable[IPv4Address],
    disputed: Collection[str],
    reasons: list[str],
    first_choice: int,
) -> Iterator[tuple[str, str]]:
    """Name and CIDR of each, `earlier` by name; `reasons`: why not, for the rest.

    `routed`: by hosts, beside which none can be. `others`: of other clusters on these hosts, which
    no new one gets; one that this cluster has stays, but for the `disputed`. `elsewhere`: of other
    clusters on any host, which new ones get where no others are free: a simulated host has any
    network, so its user could keep all of them from all others. `avoided`: addresses that no new
    one has. `first_choice`: number of the /24 where the search begins.
    """
    fixed = [net.cidr for net in cluster.networks if isinstance(net.cidr, IPv4Network)]
    pool = cluster.addressing.pool
    near = [*routed, *fixed, *((pool,) if pool else ())]
    kept = dict(_kept(cluster, earlier, disputed, near))  # first, wherever the file has it
    taken = Taken([*near, *others, *kept.values()])
    never, rather = Taken(map(IPv4Network, avoided)), Taken(elsewhere)
    all_ = [each for each in _candidates(first_choice) if never.frees(each)]
    free = chain(
        (each for each in all_ if taken.frees(each) and rather.frees(each)),
        (each for each in all_ if taken.frees(each)),
    )
    for network in cluster.networks:
        if network.existing:
            continue
        if network.cidr is not None:
            yield network.name, str(network.cidr)
        elif network.name in kept:
            yield network.name, str(kept[network.name])
        elif network.chosen:
            chosen = next(free, None)
            if chosen is None:
                reasons.append(
                    f"network {network.name}: no free /24 in {PRIVATE} or {SECOND_PRIVATE}. "
                    "Set its `cidr`."
                )
                continue
            taken.add(chosen)
            yield network.name, str(chosen)


def _kept(
    cluster: Cluster,
    earlier: Mapping[str, str],
    disputed: Collection[str],
    near: Iterable[IPv4Network],
) -> Iterator[tuple[str, IPv4Network]]:
    """Those that were chosen before, and hold. `near`: beside which none can be."""
    taken = Taken(near)
    for network in cluster.networks:
        before = earlier.get(network.name) if network.chosen else None
        if before is None or network.existing or network.name in disputed:
            continue
        if taken.frees(kept := IPv4Network(before)):
            taken.add(kept)
            yield network.name, kept


def chosen_among(address: str) -> str:
    """Of an IPv4 address in the ranges of chosen networks the first three numbers, else ""."""
    return address.rpartition(".")[0] if address.startswith(_BEGINNINGS) else ""


_BEGINNINGS = tuple(
    f"{str(each.network_address).removesuffix('.0.0')}." for each in (PRIVATE, SECOND_PRIVATE)
)


def _candidates(first_choice: int) -> Iterator[IPv4Network]:
    """Each once: what was taken when it came up is taken for the networks after as well."""
    private = list(PRIVATE.subnets(new_prefix=24))
    begin = first_choice % len(private)
    yield from (*private[begin:], *private[:begin], *SECOND_PRIVATE.subnets(new_prefix=24))
