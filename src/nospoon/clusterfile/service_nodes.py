"""Which nodes run which services, and what cloud-init sets there for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import translate
from graphlib import CycleError

from nospoon.clusterfile.expand import Complaint, Expansion
from nospoon.clusterfile.models import MAX_CLOUD_INIT
from nospoon.clusterfile.sections import Sections, did_you_mean
from nospoon.clusterfile.services import ServiceSection
from nospoon.clusterfile.vendor_data import roles_of, vendor_data
from nospoon.model.cluster import DHCP, Netboot, Nic, Node
from nospoon.model.node_kind import NodeKind
from nospoon.model.service import Health, Service
from nospoon.plan.order.services import start_order

MOST_PLACES = 20_000
"""Nodes of all services together."""
MOST_COMPARED = 4_000_000
"""Names of nodes that are compared with patterns, each with each."""


def services_of(sections: Sections, expansion: Expansion) -> tuple[Service, ...]:
    """The services in an order in which they may start; what is wrong with them is added to the
    complaints, and what cloud-init sets for them to the nodes.
    """
    if not sections.services:
        return ()
    kinds = {node.name: node.kind for node in expansion.nodes}
    of_group: dict[int, list[str]] = {index: [] for index in sections.instances}
    for node, group in zip(expansion.nodes, expansion.groups, strict=True):
        if group in of_group:
            of_group[group].append(node.name)
    found: dict[str, Service] = {}
    wrong: list[Complaint] = []
    left = MOST_PLACES
    wrong += _too_many_patterns(sections, len(kinds))
    for name, section in sections.services.items() if not wrong else ():
        if name in sections.own:
            mine = tuple(of_group[sections.own[name]])
        else:
            mine = _nodes(name, section, kinds, [] if sections.unread else wrong)
        left -= len(mine)
        if left < 0:
            message = f"expected at most {MOST_PLACES} nodes of all services together"
            wrong.append(Complaint(("services",), message, "Name fewer nodes"))
            break
        found[name] = _service(name, section, mine)
    wrong += [
        *_unknown(sections, found),
        *_unseen(found.values()),
        *_too_much(found.values()),
        *_unreached(sections, expansion.nodes, found.values()),
    ]
    if not wrong and not sections.problems:  # else a service that others are after may be missing
        found, wrong = _ordered(found)
    expansion.complaints += wrong
    if not wrong:
        expansion.nodes = _with_setup(expansion.nodes, list(found.values()))
    return tuple(found.values())


def _too_many_patterns(sections: Sections, nodes: int) -> Iterator[Complaint]:
    """Patterns that take minutes: 6,400 of them, with 20,000 nodes."""
    named = (name for each in sections.services.values() for name in each.nodes or ())
    patterns = list(filter(_is_pattern, named))
    if len(patterns) * nodes > MOST_COMPARED:
        message = (
            f"expected at most {MOST_COMPARED // nodes} patterns of names with {nodes} nodes, got "
            f"{len(patterns)}"
        )
        yield Complaint(("services",), message, "Write names, or fewer patterns")


def _unknown(sections: Sections, found: Mapping[str, Service]) -> Iterator[Complaint]:
    combining = set(sections.instances.values()) - sections.own.keys()
    known = sections.names["services"] - combining
    for name, service in found.items():
        for number, other in enumerate(service.after):
            place = ("services", name, "after", number)
            if other in combining:
                message = f"{other!r} is the node of several services, and none itself"
                yield Complaint(place, message, "Name one of those that it combines")
            elif other not in known:
                yield Complaint(place, f"no service {other!r}", did_you_mean(other, known))


def _unseen(services: Iterable[Service]) -> Iterator[Complaint]:
    for each in services:
        if each.role and each.health is None:
            message = "a service with a role needs `health`, by which `up` sees that it is set up"
            hint = "Write `health: PORT`, with a `timeout` that is enough for the role"
            yield Complaint(("services", each.name, "role"), message, hint)


def _too_much(services: Iterable[Service]) -> Iterator[Complaint]:
    given = sum(
        len(each.nodes)
        * (len(each.role) + sum(len(name) + len(value) for name, value in each.environment))
        for each in services
    )
    if given > MAX_CLOUD_INIT:
        message = (
            f"expected at most {MAX_CLOUD_INIT} characters of environment and roles on all nodes "
            f"of a cluster, got {given}"
        )
        yield Complaint(("services",), message, "Give services less of it, or fewer nodes")


def _unreached(
    sections: Sections, nodes: Sequence[Node], services: Iterable[Service]
) -> Iterator[Complaint]:
    """Services that are to be looked at, on nodes whose addresses no host reaches, or knows."""
    out_of_reach = {
        node.name for node in nodes if not any(_reached(sections, n) for n in node.nics)
    }
    for each in services:
        name = next((node for node in each.nodes if node in out_of_reach), "")
        if each.health is not None and name:
            message = f"its host cannot look at a service of node {name!r}: no address is known"
            hint = (
                "Plug a NIC into a network with `netboot: builtin`, or give it an `address` on one "
                "with `nat` or an existing bridge, in a cloud a `floating_ip`"
            )
            yield Complaint(("services", each.name, "health"), message, hint)


def _reached(sections: Sections, nic: Nic) -> bool:
    network = sections.networks.get(nic.network)
    if network is None:  # the one that is always there, or a name that another complaint is about
        return True
    if nic.floating_ip:
        return True
    existing = bool(network.physnet or network.bridge)
    if nic.address not in ("", DHCP):
        return existing or network.nat or network.netboot is Netboot.BUILTIN
    return not existing and network.netboot is Netboot.BUILTIN


def _ordered(found: dict[str, Service]) -> tuple[dict[str, Service], list[Complaint]]:
    """Those that others need first."""
    try:
        order = start_order(list(found.values())).services
    except CycleError as error:
        chain = " -> ".join(error.args[1])
        hint = "Drop an `after`, or give a service nodes of its own"
        return found, [Complaint(("services",), f"these wait for each other: {chain}", hint)]
    return {each.name: each for each in order}, []


def _nodes(
    name: str, section: ServiceSection, kinds: Mapping[str, NodeKind], wrong: list[Complaint]
) -> tuple[str, ...]:
    mine: dict[str, None] = {}
    for number, pattern in enumerate(section.nodes or ()):
        some = _called(pattern, kinds)
        if not some:
            place = ("services", name, "nodes", number)
            wrong.append(Complaint(place, f"no node {pattern!r}", did_you_mean(pattern, kinds)))
        mine |= dict.fromkeys(some)
    if section.nodes is None:
        mine |= dict.fromkeys((*_called(name, kinds), *_called(f"{name}-[0-9]*", kinds)))
        if not mine:
            near = did_you_mean(name, kinds)
            hint = f"{near} Write `nodes: NAME`, or describe its node here: `image: PATH`".lstrip()
            message = f"no node is called {name!r}, or {name + '-0'!r}"
            wrong.append(Complaint(("services", name), message, hint))
    bare = next((node for node in mine if kinds[node] is NodeKind.BAREMETAL), "")
    if bare:
        message = f"services run on nodes of kind vm and container, and {bare!r} is bare metal"
        hint = "Name other nodes, or give it another `kind`"
        wrong.append(Complaint(("services", name), message, hint))
    return tuple(mine)


def _is_pattern(name: str) -> bool:
    return bool(set("*?[") & set(name))


def _called(pattern: str, kinds: Mapping[str, NodeKind]) -> list[str]:
    if pattern in kinds:
        return [pattern]
    if not _is_pattern(pattern):
        return []
    matches = re.compile(translate(pattern)).match
    return [each for each in kinds if matches(each)]


def _service(name: str, section: ServiceSection, nodes: tuple[str, ...]) -> Service:
    health = section.health
    return Service(
        name=name,
        nodes=nodes,
        unit=(section.unit or name).removesuffix(".service"),
        after=tuple(dict.fromkeys(section.after)),
        environment=tuple(section.environment.items()),
        health=Health(health.port, health.path or "", health.timeout) if health else None,
        role=section.role or "",
    )


def _with_setup(nodes: Sequence[Node], services: Sequence[Service]) -> list[Node]:
    """Nodes that have the same services share its text."""
    of: dict[str, list[Service]] = {}
    for service in services:
        for name in service.nodes if service.environment or service.role else ():
            of.setdefault(name, []).append(service)
    texts: dict[tuple[str, ...], tuple[str, str]] = {}
    changed = []
    for node in nodes:
        mine = of.get(node.name, ())
        names = tuple(each.name for each in mine)
        if not names:
            changed.append(node)
            continue
        if names not in texts:
            texts[names] = vendor_data(mine), roles_of(mine)
        text, roles = texts[names]
        init = replace(node.cloud_init, vendor_data=text, roles=roles)
        changed.append(replace(node, cloud_init=init))
    return changed
