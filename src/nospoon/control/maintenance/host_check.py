"""`host check`: what a host has of what nospoon needs there. It changes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from nospoon.control.fleet.hosts import Hosts
from nospoon.control.maintenance import cloud_check
from nospoon.errors import NospoonError, ProviderError
from nospoon.model.capabilities import Capabilities
from nospoon.model.cluster import Cluster, Host, Netboot, Switch
from nospoon.model.declared import Console, Media
from nospoon.model.host_facts import HostFacts, QuotaName
from nospoon.model.principal import OwnerId
from nospoon.model.rest.hosts import HostFinding, Verdict
from nospoon.plan.placement.hosts import against_network
from nospoon.plan.quotas import TAKEN
from nospoon.plan.trunks import Trunks
from nospoon.runtime.clock import Clock
from nospoon.runtime.paced import paced
from nospoon.runtime.process import printed_by
from nospoon.runtime.runner import Runner
from nospoon.runtime.workers import Workers

SKEW = 5.0
"""Seconds by which the clock of a host may differ before logs of both cannot be read together."""
GIBI = 1 << 30
CONSOLES = {
    Console.TAIL: (
        Verdict.OK, "their logs are read; typing needs a serial console proxy of the cloud"
    ),
    Console.NONE: (Verdict.WITHOUT, "machines there have none"),
}  # fmt: skip
LOADER_ALONE = "loaders read them over HTTP; operating systems see no CD"
MOST = 20_000
"""Findings of a file, a thousand hosts of which may each lack a thousand networks; hosts that come
after so many are not looked at.
"""
Said = tuple[str, Verdict, str]
Compare = Callable[[Host, HostFacts], Awaitable[Sequence[Said]]]


@dataclass(frozen=True, slots=True)
class Uses:
    """`plugged`: whether a host has ports -> networks that nodes are plugged into there, by name ->
    the hosts that the file names for these.
    """

    trunks: Trunks
    plugged: Mapping[bool, Mapping[str, frozenset[str]]]

    @classmethod
    def of(cls, cluster: Cluster) -> Uses:
        """Of 20,000 nodes, for a thread."""
        trunks, plugged = Trunks.of(cluster), {}
        for has_ports, host in {each.declares.has_ports: each for each in cluster.hosts}.items():
            found = defaultdict[str, set[str]](set)
            for node in cluster.nodes:
                for name in trunks.plugged(node, host):
                    found[name].add(node.host)
            plugged[has_ports] = {name: frozenset(hosts) for name, hosts in found.items()}
        return cls(trunks, plugged)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A program on a host: which package has it, what for, whether every cluster needs it, and what
    does as well.
    """

    program: str
    package: str
    purpose: str
    needed: Callable[[Cluster], bool]
    instead: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.program, *self.instead)


def _always(cluster: Cluster) -> bool:
    del cluster
    return True


def _netboot(cluster: Cluster) -> bool:
    return any(network.netboot is Netboot.BUILTIN for network in cluster.networks)


def _tpm(cluster: Cluster) -> bool:
    return any(node.tpm for node in cluster.nodes)


def _firewall(cluster: Cluster) -> bool:
    return any(not network.existing for network in cluster.networks)


def _ovs(cluster: Cluster) -> bool:
    return any(network.switch is Switch.OVS for network in cluster.networks)


PROGRAMS = (
    Wanted("qemu-img", "qemu-utils", "disks", _always),
    Wanted("ip", "iproute2", "bridges and routes", _always),
    Wanted("dnsmasq", "dnsmasq-base", "network boot", _netboot),
    Wanted("swtpm", "swtpm", "TPM 2.0", _tpm),
    Wanted("iptables", "iptables", "isolation and NAT of networks", _firewall, ("nft",)),
    Wanted("ovs-vsctl", "openvswitch-switch", "networks with `switch: ovs`", _ovs),
)
LOOK = (
    'for p in "$@"; do PATH=$PATH:/usr/sbin:/sbin command -v "$p" >/dev/null && echo "$p"; done; :'
)


class HostChecker:
    """Looks at the hosts of a cluster file. `pools`: host -> directory of its pools."""

    def __init__(self, hosts: Hosts, clock: Clock, pools: Callable[[Host], str]) -> None:
        self._hosts, self._clock, self._pools = hosts, clock, pools

    async def check(
        self, cluster: Cluster, workers: Workers, owner: OwnerId
    ) -> Sequence[HostFinding]:
        """The findings of each host, in the order of the file. Nodes and networks are gone through
        by `workers`, in their `owner`'s turn.
        """
        uses = await workers.run(owner, Uses.of, cluster)

        async def compare(host: Host, facts: HostFacts) -> Sequence[Said]:
            return await workers.run(owner, _compared, cluster, host, facts, uses)

        found = list[HostFinding]()
        async for host in paced(cluster.hosts):
            if len(found) < MOST:
                found += [each async for each in self._host(cluster, host, compare)]
            else:
                why = f"not looked at: the hosts before have {MOST} findings"
                found.append(HostFinding(host.name, "connection", Verdict.WITHOUT, why))
        return found

    async def _host(
        self, cluster: Cluster, host: Host, compare: Compare
    ) -> AsyncIterator[HostFinding]:
        def said(what: str, verdict: Verdict, detail: str) -> HostFinding:
            return HostFinding(host.name, what, verdict, detail)

        cloud, containers = host.declares.has_ports, host.declares.shares_networks
        if host.declares.is_real and not cloud and not containers:
            runner = self._hosts.use(host).runner
            try:
                async for what, verdict, detail in self._commands(cluster, runner):
                    yield said(what, verdict, detail)
            except NospoonError as error:
                yield said("commands", Verdict.MISSING, str(error))
        try:
            facts = await self._hosts.facts(host, pools=self._pools(host))
            can = await self._hosts.capabilities(host)
        except NospoonError as error:
            yield said("connection", Verdict.MISSING, str(error))
            return
        yield said("connection", Verdict.OK, host.where)
        if containers:
            return  # the rest is said of the host's first connection
        if not cloud:
            yield said("KVM", *kvm(can))
        if host.declares.console is not Console.STREAM:
            yield said("consoles", *CONSOLES[host.declares.console])
        if host.declares.media is Media.LOADER:
            yield said("virtual media", Verdict.OK, LOADER_ALONE)
        for what, verdict, detail in await compare(host, facts):
            yield said(what, verdict, detail)

    async def _commands(self, cluster: Cluster, runner: Runner) -> AsyncIterator[Said]:
        names = [name for each in PROGRAMS for name in each.names]
        there = set(printed_by(await runner.run(["sh", "-c", LOOK, "sh", *names])).split())
        for each in PROGRAMS:
            if there.intersection(each.names):
                yield each.program, Verdict.OK, each.purpose
            else:
                verdict = Verdict.MISSING if each.needed(cluster) else Verdict.WITHOUT
                detail = f"{each.purpose}: install the package {each.package} there"
                yield each.program, verdict, detail
        skew = await self._skew(runner)
        verdict = Verdict.OK if abs(skew) < SKEW else Verdict.MISSING
        yield "clock", verdict, f"{abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} ours"

    async def _skew(self, runner: Runner) -> float:
        """Seconds by which a host's clock is ahead."""
        done = await runner.run(["date", "+%s.%N"])
        try:
            return float(printed_by(done)) - self._clock()
        except ValueError as error:
            raise ProviderError("`date` printed what is not a time") from error


def _compared(cluster: Cluster, host: Host, facts: HostFacts, uses: Uses) -> Sequence[Said]:
    """What a host has of what the file asks for."""
    cloud = host.declares.has_ports
    found = chain(
        _resources(facts),
        cloud_check.findings(cluster, host, facts) if cloud else _bridges(host, facts),
        () if cloud else _filters(cluster, host, facts),
        _networks(cluster, host, facts, uses),
    )
    return list(found)


def kvm(can: Capabilities) -> tuple[Verdict, str]:
    """Whether machines run fast; before it was tried, nothing is missing."""
    match can.accelerator:
        case "tcg":
            return Verdict.WITHOUT, f"{can.accelerator_note}; machines are emulated, slowly"
        case "":
            return Verdict.OK, can.accelerator_note or "`up` tries it with a Linux guest"
        case tried:
            return Verdict.OK, tried


def _resources(facts: HostFacts) -> Iterator[Said]:
    """What is told, where it is known."""
    known = {
        "CPUs": str(facts.cpus) if facts.cpus else "",
        "memory": f"{facts.memory / GIBI:.1f} GiB" if facts.memory else "",
        "disk": f"{facts.disk / GIBI:.1f} GiB free for pools" if facts.disk else "",
        "firmware": ", ".join(sorted(facts.firmwares)),
        "architectures": ", ".join(sorted(facts.archs)),
    }
    yield from ((what, Verdict.OK, detail) for what, detail in known.items() if detail)
    for name, share in facts.quota.shares.items():
        if name not in {QuotaName.CPUS, QuotaName.MEMORY}:
            row = TAKEN[name]
            yield row.called, Verdict.OK, f"{share.left // row.unit} of {share.most // row.unit}"
    hidden = [TAKEN[name].called for name in QuotaName if name in facts.quota.unknown]
    if hidden:
        yield "quotas", Verdict.WITHOUT, f"not shown to this login: {', '.join(hidden)}"


def _bridges(host: Host, facts: HostFacts) -> Iterator[Said]:
    for physnet, link in host.physnets:
        yield f"physnet {physnet}", *_mapped(link, facts)


def _filters(cluster: Cluster, host: Host, facts: HostFacts) -> Iterator[Said]:
    """Of libvirt, where guests can be filtered."""
    if not (facts.real and host.declares.makes_networks):
        return
    wanted = any(network.anti_spoofing for network in cluster.networks)
    purpose = "networks with `anti_spoofing`"
    if facts.anti_spoofing:
        yield "clean-traffic", Verdict.OK, purpose
    else:
        detail = f"{purpose}: install the package libvirt-daemon-config-nwfilter there"
        yield "clean-traffic", Verdict.MISSING if wanted else Verdict.WITHOUT, detail


def _networks(cluster: Cluster, host: Host, facts: HostFacts, uses: Uses) -> Iterator[Said]:
    """Existing bridges that nodes are plugged into. What this host has not is missing if a node has
    to be here; else its nodes go elsewhere.
    """
    plugged = uses.plugged[host.declares.has_ports]
    for network in cluster.networks:
        if not network.existing or network.name not in plugged:
            continue
        why = " ".join(against_network(network, host, facts, uses.trunks.tagged))
        here = len(cluster.hosts) == 1 or host.name in plugged[network.name]
        if not why:
            detail = f"plugged into {network.bridge or dict(host.physnets).get(network.physnet)}"
            yield f"network {network.name}", Verdict.OK, detail
        else:
            yield f"network {network.name}", Verdict.MISSING if here else Verdict.WITHOUT, why


def _mapped(link: str, facts: HostFacts) -> tuple[Verdict, str]:
    """Where machines plug in that want to reach this link."""
    if facts.links is not None and link not in facts.links:
        return Verdict.MISSING, f"there is no interface or bridge {link}"
    if link in facts.ovs_bridges:
        return Verdict.OK, f"bridge {link} of Open vSwitch"
    bridge = facts.bridge(link)
    if facts.links is not None and bridge not in facts.bridges:
        return Verdict.MISSING, f"{link} is in no bridge: `nospoon host setup` makes one for it"
    return Verdict.OK, f"bridge {bridge}"
