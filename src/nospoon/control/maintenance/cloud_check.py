"""What a cloud allows, has and bills, as far as its APIs say."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from nospoon.errors import MOST_REASONS
from nospoon.model.cluster import Cluster, Host, Node
from nospoon.model.host_facts import ENDLESS, QCOW2, HostFacts
from nospoon.model.images import HypervisorType
from nospoon.model.node_kind import NodeKind
from nospoon.model.rest.hosts import Verdict
from nospoon.model.sizes import size
from nospoon.plan.placement.flavors import chosen, disk_space, lacking, root_space
from nospoon.plan.placement.hosts import against_boot_images
from nospoon.plan.quotas import routers
from nospoon.plan.trunks import Trunks
from nospoon.plan.words import counted, listed

READER = "reader"
"""The role that changes nothing (Keystone's default roles)."""
Found = Iterator[tuple[str, Verdict, str]]


def findings(cluster: Cluster, host: Host, facts: HostFacts) -> Found:
    """(What, whether that is enough for the cluster, what was found)."""
    nodes = [node for node in cluster.nodes if node.host in ("", host.name)]
    yield from _rights(facts)
    yield from _flavors(cluster, host, facts)
    yield from _images(nodes, facts)
    yield from _computes(nodes, facts)
    yield from _extensions(cluster, nodes, host, facts)
    asks = any(node.kind is NodeKind.BAREMETAL for node in nodes)
    there = host.connection.is_asked
    yield "way to the daemon", _whether(there=there, needed=asks), _way(host)
    yield "billed", Verdict.OK, ", ".join(_billed(cluster, nodes, host, facts))


def _rights(facts: HostFacts) -> Found:
    """Roles alone: what each may do, policies of the cloud say, which no API shows."""
    if facts.roles:
        can = set(facts.roles) - {READER}
        why = "" if can else ": it may change nothing"
        yield "roles", Verdict.OK if can else Verdict.MISSING, f"{', '.join(facts.roles)}{why}"


def _flavors(cluster: Cluster, host: Host, facts: HostFacts) -> Found:
    """Those that nodes may have, and which nodes have none."""
    for each in facts.sizes:
        disks = "volumes" if each.disk >= ENDLESS else f"{size(each.disk)} of disks"
        detail = f"{counted(each.cpus, 'CPU')}, {size(each.memory)}, {disks}"
        yield f"flavor {each.name}", Verdict.OK, detail
    found = (
        (node.name, why)
        for alike in _alike(cluster.nodes)
        if (why := lacking(alike[0], host, facts))
        for node in alike
    )
    for name, why in islice(found, MOST_REASONS):
        yield f"node {name}", Verdict.MISSING, why
    if next(found, None) is not None:
        yield "nodes", Verdict.MISSING, f"more than {MOST_REASONS} have no flavor"


def _alike(nodes: Iterable[Node]) -> Collection[Sequence[Node]]:
    """Those that fit into the same flavors: there may be thousands of both."""
    alike = defaultdict[tuple[object, ...], list[Node]](list)
    for node in nodes:
        shape = node.kind, node.cpus, node.memory, disk_space(node), root_space(node)
        alike[shape].append(node)
    return alike.values()


def _images(nodes: Sequence[Node], facts: HostFacts) -> Found:
    if facts.image_formats is None:
        return
    formats = ", ".join(sorted(facts.image_formats))
    if facts.boot_image_format:
        how = ". Boot images are qcow2." if facts.boot_image_format == QCOW2 else ""
        yield "images", Verdict.OK, f"Glance takes {formats}{how}"
    else:
        wanted = any(node.kind is NodeKind.BAREMETAL for node in nodes)
        verdict = Verdict.MISSING if wanted else Verdict.WITHOUT
        yield "images", verdict, f"{against_boot_images(facts)} It takes {formats}."


def _computes(nodes: Sequence[Node], facts: HostFacts) -> Found:
    """What an administrator is shown: whether containers have a place."""
    if facts.computes is None:
        return
    needed = any(node.kind is NodeKind.CONTAINER for node in nodes)
    runs = listed(sorted(facts.computes)) or "nothing"
    there = HypervisorType.LXC in facts.computes
    yield "containers", _whether(there=there, needed=needed), f"compute hosts run {runs}"


def _extensions(cluster: Cluster, nodes: Sequence[Node], host: Host, facts: HostFacts) -> Found:
    """What Neutron is asked for beside networks and ports, and who needs it."""
    trunks = Trunks.of(cluster)
    if facts.trunks is not None:
        needed = any(trunks.carried(nic) for node in nodes for nic in node.nics)
        yield "trunks", _whether(there=facts.trunks, needed=needed), "`trunk` of NICs"
    there = bool(facts.external_networks)
    needed = any(_routers(cluster, nodes, host)) or any(_floating(nodes, host))
    names = listed([name for name, _ in facts.external_networks])
    outside = f"routers and floating IPs lead to {names}" if there else "no external network"
    yield "external networks", _whether(there=there, needed=needed), outside
    if any(network.provider for network in cluster.networks):
        there = facts.provider_networks
        yield "provider networks", _whether(there=there, needed=True), "`provider` of networks"


def _whether(*, there: bool, needed: bool) -> Verdict:
    if there:
        return Verdict.OK
    return Verdict.MISSING if needed else Verdict.WITHOUT


def _way(host: Host) -> str:
    """By which guests ask what to boot: whether it leads here, a guest alone can try."""
    if host.connection.relay is not None:
        return f"a relay on network {host.connection.relay.network}"
    if host.connection.is_asked:
        return f"{host.connection.boot_address}: guests have to reach it from their networks"
    return "none: no `boot_address` and no `relay`, so that bare metal cannot boot"


def _billed(cluster: Cluster, nodes: Sequence[Node], host: Host, facts: HostFacts) -> Iterator[str]:
    """What the cluster has there while it is up, if all nodes that may be there are. Prices are in
    no API of OpenStack's; quantities are what they are of.
    """
    made = [node for node in nodes if node.adopted is None]
    sizes = [
        (each, len(alike))
        for alike in _alike(made)
        if (each := chosen(alike[0], host, facts)) is not None
    ]
    relay = host.connection.relay
    flavors = Counter([relay.flavor] if relay else [])
    for each, number in sizes:
        flavors[each.name] += number
    of_flavors = ", ".join(f"{number} of {name}" for name, number in sorted(flavors.items()))
    yield f"{counted(flavors.total(), 'server')}{f' ({of_flavors})' if of_flavors else ''}"
    if sizes:
        cpus = sum(each.cpus * number for each, number in sizes)
        memory = sum(each.memory * number for each, number in sizes)
        yield f"{counted(cpus, 'CPU')} and {size(memory)} of memory for nodes"
    beside = any(each.disk >= ENDLESS for each, _ in sizes)
    volumes = sum(disk_space(node) for node in made) if beside else 0
    if volumes:
        yield f"{size(volumes)} of volumes"
    made_routers, floating = _routers(cluster, nodes, host), len(list(_floating(nodes, host)))
    if made_routers:
        yield counted(len(made_routers), "router")
    if floating:
        yield counted(floating, "floating IP")


def _routers(cluster: Cluster, nodes: Sequence[Node], host: Host) -> Collection[str]:
    """None of networks of other hosts' nodes alone."""
    elsewhere = [node for node in cluster.nodes if node.host not in ("", host.name)]
    made = Trunks.of(cluster).made(host, nodes, elsewhere) if nodes else []
    return routers(made)


def _floating(nodes: Sequence[Node], host: Host) -> Iterator[str]:
    relay = host.connection.relay
    if relay is not None and relay.floating_ip:
        yield relay.floating_ip
    yield from (nic.floating_ip for node in nodes for nic in node.nics if nic.floating_ip)
