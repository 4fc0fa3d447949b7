"""What a cluster takes that members may not have, and what administrators are cautioned about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address

from nospoon.model.cluster import BmcProtocol, Cluster, Host, Node
from nospoon.model.grants import FIRST_UNPRIVILEGED, PRIVATE, Grants
from nospoon.model.host_facts import Route

IPMI_PORT, SNMP_PORT = 623, 161
"""Of BMCs and PDUs with an address of their own (`bmc.pool`)."""
MOST_NETWORKS = 64
"""Of a member's cluster on real hosts, where each has a bridge, rules, and perhaps a server."""
RANGES = ", ".join(map(str, PRIVATE))


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that members may not have. `path`: where it is in the file; `fix`: what helps, ""
    where an administrator may list it.
    """

    path: tuple[str | int, ...]
    message: str
    fix: str = ""


def violations(cluster: Cluster, grants: Grants) -> Iterator[Violation]:
    """Everything of a file that members may not have."""
    for host in cluster.hosts:
        yield from _of_host(host, grants)
    for network in cluster.networks:
        for cidr in (network.cidr, network.cidr6):
            if cidr is not None and not grants.has_network(cidr):
                yield Violation(("networks", network.name, "cidr"), _foreign(str(cidr)))
    yield from _of_tunnels(cluster, grants)
    yield from _of_bridges(cluster, grants)
    yield from _of_bmcs(cluster, grants)


def _of_host(host: Host, grants: Grants) -> Iterator[Violation]:
    why, path = grants.why_not_host(host), ("hosts", host.section, host.connection.kind)
    if why:
        yield Violation(path, unlisted(host, why))
    asked_at = host.connection.boot_address
    if asked_at and not grants.has_network(_alone(asked_at)):
        yield Violation((*path, "boot_address"), _foreign(asked_at))
    agents = host.connection.agents
    if agents is None:
        return
    if not grants.has_network(_alone(agents.address)):
        yield Violation((*path, "agents", "address"), _foreign(agents.address))
    if not grants.has_ports(agents.port, agents.port):
        yield Violation((*path, "agents", "port"), _privileged(str(agents.port)))


def _of_tunnels(cluster: Cluster, grants: Grants) -> Iterator[Violation]:
    """Networks of several hosts: what is sent to an address there is taken for its tunnel's."""
    if all(network.overlay is None for network in cluster.networks):
        return
    for host in cluster.hosts:
        if host.declares.is_real and host.address and not grants.has_tunnels(host):
            message = f"tunnels of members may not lead to {host.address}"
            yield Violation(("hosts", host.section, "address"), message)


def _of_bridges(cluster: Cluster, grants: Grants) -> Iterator[Violation]:
    """On a bridge that is there already, guests reach and hear whoever else is on it."""
    real = [each for each in cluster.hosts if each.declares.is_real and not each.declares.has_ports]
    made = sum(not network.existing for network in cluster.networks)
    if real and made > MOST_NETWORKS:
        message = f"expected at most {MOST_NETWORKS} networks of a member's cluster, got {made}"
        yield Violation(("networks",), message, "Make several clusters of it")
    for network in cluster.networks if real else ():
        if network.bridge and network.bridge not in grants.bridges:
            yield Violation(("networks", network.name, "bridge"), _unlisted_bridge(network.bridge))
    used = {network.physnet for network in cluster.networks if network.physnet}
    for host in real:
        for physnet, link in host.physnets:
            if physnet in used and link not in grants.bridges:
                path = ("hosts", host.section, "physnets", physnet)
                yield Violation(path, _unlisted_bridge(link))


def _of_bmcs(cluster: Cluster, grants: Grants) -> Iterator[Violation]:
    given = cluster.addressing
    nodes = (*cluster.nodes, *_adopting(cluster))
    spoken = {protocol for node in nodes for protocol in node.bmc}
    if given.pool is None and not grants.has_network(_alone(str(given.address))):
        yield Violation(("bmc", "address"), _foreign(str(given.address)))
    if given.pool is not None:
        if not grants.has_network(given.pool):
            yield Violation(("bmc", "pool"), _foreign(str(given.pool)))
        for protocol, port in ((BmcProtocol.IPMI, IPMI_PORT), (BmcProtocol.PDU, SNMP_PORT)):
            if protocol in spoken and not grants.has_ports(port, port):
                yield Violation(("bmc", "pool"), _privileged(f"{port} on each of its addresses"))
    else:
        for path, (first, last) in (
            (("bmc", "ports"), given.ports),
            (("bmc", "pdu", "ports"), given.pdu.ports),
        ):
            if not grants.has_ports(first, last):
                yield Violation(path, _privileged(f"{first}-{last}"))
    yield from _given_to_bmcs(nodes, grants)
    if not grants.has_ports(given.redfish_port, given.redfish_port):
        yield Violation(("bmc", "redfish_port"), _privileged(str(given.redfish_port)))


def _given_to_bmcs(nodes: Sequence[Node], grants: Grants) -> Iterator[Violation]:
    for address in sorted({node.bmc_address for node in nodes} - {""}):
        if not grants.has_network(_alone(address)):
            yield Violation(("nodes",), _foreign(address))
    for port in sorted({node.ipmi_port for node in nodes}):
        if port and not grants.has_ports(port, port):
            yield Violation(("nodes",), _privileged(str(port)))


def _adopting(cluster: Cluster) -> Iterator[Node]:
    return (each.like for each in cluster.adoptions)


def named(host: Host) -> str:
    """A host as messages name it."""
    return f"host {host.name} ({host.where}{f' by ssh {host.ssh}' if host.ssh else ''})"


def unlisted(host: Host, why: str) -> str:
    return f"members may not use {named(host)}: {why}"


def _alone(address: str) -> IPv4Network | IPv6Network:
    return IPv6Network(address) if ":" in address else IPv4Network(address)


def _foreign(what: str) -> str:
    return f"members may not take {what}: it is not in a private network ({RANGES})"


def _unlisted_bridge(name: str) -> str:
    return f"members may not plug nodes into {name} of a host: it is not among the listed bridges"


def _privileged(what: str) -> str:
    return f"members may not listen on port {what}: it is below {FIRST_UNPRIVILEGED}"


def overlapping_routes(pool: IPv4Network, own: Iterable[str], routes: Iterable[Route]) -> list[str]:
    """Routes of this machine that a member's `bmc.pool` would take addresses from. `own`: networks
    of the cluster.
    """
    mine = frozenset(own)
    return [
        f"bmc.pool: {pool} overlaps {each.shown} of this machine, "
        "which members may not take addresses from. Choose another `bmc.pool`."
        for each in routes
        if each.network.version == 4
        and each.network.prefixlen
        and each.network.overlaps(pool)
        and str(each.network) not in mine
    ]


def over_bmcs(
    cidrs: Mapping[str, IPv4Network | IPv6Network], called: Iterable[str]
) -> Iterator[str]:
    """Networks of this machine that would take over BMCs which labs of other users call: logins,
    with passwords, would reach guests. `called`: their addresses; names are not known.
    """
    spans = [(int(c[0]), int(c[-1]), c.version, name) for name, c in cidrs.items()]
    found = set[str]()
    for text in called if spans else ():
        try:
            address = ip_address(text)
        except ValueError:
            continue
        number, version = int(address), address.version
        found |= {n for low, high, v, n in spans if v == version and low <= number <= high}
    for name in sorted(found):
        yield (
            f"network {name}: {cidrs[name]} has addresses of BMCs that labs of other users call "
            "from this machine. Choose another `cidr`, or leave it out."
        )


def public_addresses(cluster: Cluster) -> Iterator[str]:
    """Cautions about networks that others on the internet have (RFC 6890)."""
    given = cluster.addressing
    taken = [(f"network {each.name}", cidr) for each in cluster.networks for cidr in
             (each.cidr, each.cidr6) if not each.existing]  # fmt: skip
    for what, cidr in (*taken, ("bmc.pool", given.pool)):
        if cidr is not None and cidr.is_global:
            yield f"{what}: {cidr} is public: this machine will not reach its owner's addresses"
