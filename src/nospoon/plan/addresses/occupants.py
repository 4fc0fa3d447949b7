"""NICs that machines have, whatever the file says by now, and the addresses that DHCP gives them.

A machine that runs keeps its NICs until its power-off, and one that `--target` leaves alone keeps
all that it has: their addresses are no one else's until then. `plan.diff.held` keeps DHCP giving
them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from itertools import takewhile
from uuid import UUID

from nospoon.model.cluster import Cluster, Netboot, Network
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.netboot import NetbootService
from nospoon.model.resources.resource import Observed
from nospoon.plan import identity
from nospoon.plan.addresses.numbers import FIRST6, HostNumbers, nic_key, of_machines
from nospoon.plan.order.order import named_links


@dataclass(frozen=True, slots=True)
class Occupant:
    """A NIC of a machine: its network, its key (`numbers`), and the addresses that it is
    given, "" for none. `stays`: the machine has it after this plan, too.
    """

    network: str
    key: str
    address: str = ""
    address6: str = ""
    stays: bool = False


def occupants(
    observed: Collection[Observed], *, cluster: Cluster, targets: Collection[str] = ()
) -> Iterator[Occupant]:
    """Of all machines; what a machine runs with comes before what it is defined with.

    `targets`: nodes that the plan is for, all where there are none.
    """
    names = {node.name for node in cluster.nodes}
    links = named_links(observed)
    given = _addresses(observed)
    for each in observed:
        left_alone = bool(targets) and each.key.name not in targets
        stays = left_alone or (each.running and each.key.name in names)
        for shape in _shapes(each):
            for nic in shape.nics:
                network = links.get((each.key.place, nic.network))
                if network is not None:
                    key = nic_key(network.name, each.key.name, nic_name(each, nic.mac))
                    where = given.get((network, shape.uuid, nic.mac.lower()), ("", ""))
                    yield Occupant(network.name, key, *where, stays=stays)


def nic_name(machine: Observed, mac: str) -> int | str:
    """What `numbers` calls a NIC of a machine that was found."""
    for shape in _shapes(machine):
        for index in range(len(shape.nics)):
            if identity.mac_address(shape.uuid, index) == mac.lower():
                return index
    return mac.lower()


def _shapes(machine: Observed) -> Iterator[Machine]:
    """As it runs, and as it is defined."""
    for each in (machine.live, machine.shape):
        if isinstance(each, Machine):
            yield each


def _addresses(observed: Iterable[Observed]) -> dict[tuple[Key, UUID, str], tuple[str, str]]:
    """Network, machine and MAC -> what DHCP gives it."""
    return {
        (replace(each.key, kind=Kind.NETWORK), given.uuid, mac.lower()): (
            given.address,
            given.address6,
        )
        for each in observed
        if isinstance(each.shape, NetbootService)
        for given in each.shape.reservations
        for mac in given.macs
    }


def numbers_held(
    cluster: Cluster,
    cidrs: Mapping[str, str],
    hosts: HostNumbers,
    found: Iterable[Occupant],
) -> dict[str, int]:
    """NIC -> the number that its address stands for. `cidrs` by network."""
    known = list(found)
    result: dict[str, int] = {}
    for network in cluster.networks:
        here = [each for each in known if each.network == network.name]
        if network.netboot is Netboot.BUILTIN and not network.existing and here:
            text = cidrs.get(network.name)
            four = _places(cluster, network, IPv4Network(text), hosts, here) if text else {}
            for each in here:
                number = four.get(each.address) if text else _place6(network, each)
                if number is not None:
                    result[each.key] = number
    return result


def _places(
    cluster: Cluster,
    network: Network,
    cidr: IPv4Network,
    hosts: HostNumbers,
    found: Iterable[Occupant],
) -> dict[str, int]:
    """Address -> number."""
    addresses = {IPv4Address(each.address) for each in found if each.address}
    last = max((each for each in addresses if each in cidr), default=cidr[0])
    all_ = of_machines(cluster, network, cidr, hosts)
    up_to_last = enumerate(takewhile(lambda address: address <= last, all_))
    return {str(address): number for number, address in up_to_last if address in addresses}


def _place6(network: Network, found: Occupant) -> int | None:
    """On a network without IPv4."""
    if network.cidr6 is None or not found.address6:
        return None
    address = IPv6Address(found.address6)
    number = int(address) - int(network.cidr6[FIRST6])
    return number if number >= 0 and address in network.cidr6 else None
