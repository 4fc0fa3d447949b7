"""`host check`: what a host has of what nospoon needs there. It changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass

from nospoon.control.fleet.hosts import Hosts
from nospoon.errors import NospoonError, ProviderError
from nospoon.model.capabilities import Capabilities, Media
from nospoon.model.cluster import Cluster, Host, Netboot, Switch
from nospoon.model.host_facts import HostFacts
from nospoon.model.rest.hosts import HostFinding, Verdict
from nospoon.plan.placement.flavors import lacking
from nospoon.plan.placement.hosts import against_network
from nospoon.plan.words import counted, size
from nospoon.runtime.clock import Clock
from nospoon.runtime.paced import paced
from nospoon.runtime.runner import Runner

SKEW = 5.0
"""Seconds by which the clock of a host may differ before logs of both cannot be read together."""
GIBI = 1 << 30
LOADER_ALONE = "loaders read them over HTTP; operating systems see no CD"


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

    async def check(self, cluster: Cluster) -> Sequence[HostFinding]:
        """Every finding of every host, in the order of the file."""
        return [
            each async for host in paced(cluster.hosts) async for each in self._host(cluster, host)
        ]

    async def _host(self, cluster: Cluster, host: Host) -> AsyncIterator[HostFinding]:
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
        if can.media is Media.LOADER:
            yield said("virtual media", Verdict.OK, LOADER_ALONE)
        for what, verdict, detail in (
            *_resources(facts),
            *(_sizes(cluster, facts) if cloud else _bridges(host, facts)),
            *(() if cloud else _filters(cluster, facts)),
            *_networks(cluster, host, facts),
        ):
            yield said(what, verdict, detail)

    async def _commands(
        self, cluster: Cluster, runner: Runner
    ) -> AsyncIterator[tuple[str, Verdict, str]]:
        names = [name for each in PROGRAMS for name in each.names]
        there = set((await runner.run(["sh", "-c", LOOK, "sh", *names])).stdout.split())
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
            return float(done.stdout) - self._clock()
        except ValueError as error:
            raise ProviderError("`date` printed what is not a time") from error


def kvm(can: Capabilities) -> tuple[Verdict, str]:
    """Whether machines run fast; before it was tried, nothing is missing."""
    match can.accelerator:
        case "tcg":
            return Verdict.WITHOUT, f"{can.accelerator_note}; machines are emulated, slowly"
        case "":
            return Verdict.OK, can.accelerator_note or "`up` tries it with a Linux guest"
        case tried:
            return Verdict.OK, tried


def _resources(facts: HostFacts) -> Iterator[tuple[str, Verdict, str]]:
    """What is told, where it is known."""
    known = {
        "CPUs": str(facts.cpus) if facts.cpus else "",
        "memory": f"{facts.memory / GIBI:.1f} GiB" if facts.memory else "",
        "disk": f"{facts.disk / GIBI:.1f} GiB free for pools" if facts.disk else "",
        "machines": str(facts.quota.servers) if facts.quota.servers is not None else "",
        "firmware": ", ".join(sorted(facts.firmwares)),
        "architectures": ", ".join(sorted(facts.archs)),
    }
    yield from ((what, Verdict.OK, detail) for what, detail in known.items() if detail)


def _sizes(cluster: Cluster, facts: HostFacts) -> Iterator[tuple[str, Verdict, str]]:
    """The flavors that nodes may have, and which nodes have none."""
    for each in facts.sizes or ():
        detail = f"{counted(each.cpus, 'CPU')}, {size(each.memory)}, {size(each.disk)} of disks"
        yield f"flavor {each.name}", Verdict.OK, detail
    for node in cluster.nodes:
        if why := lacking(node, facts):
            yield f"node {node.name}", Verdict.MISSING, why


def _bridges(host: Host, facts: HostFacts) -> Iterator[tuple[str, Verdict, str]]:
    for physnet, link in host.physnets:
        yield f"physnet {physnet}", *_mapped(link, facts)


def _filters(cluster: Cluster, facts: HostFacts) -> Iterator[tuple[str, Verdict, str]]:
    """Of libvirt, where guests can be filtered."""
    if not (facts.real and facts.managed_networks):
        return
    wanted = any(network.anti_spoofing for network in cluster.networks)
    purpose = "networks with `anti_spoofing`"
    if facts.anti_spoofing:
        yield "clean-traffic", Verdict.OK, purpose
    else:
        detail = f"{purpose}: install the package libvirt-daemon-config-nwfilter there"
        yield "clean-traffic", Verdict.MISSING if wanted else Verdict.WITHOUT, detail


def _networks(cluster: Cluster, host: Host, facts: HostFacts) -> Iterator[tuple[str, Verdict, str]]:
    """Existing bridges that nodes are plugged into. What this host has not is missing if a node has
    to be here; else its nodes go elsewhere.
    """
    for network in cluster.networks:
        users = [node for node in cluster.nodes if network.name in {n.network for n in node.nics}]
        if not network.existing or not users:
            continue
        why = " ".join(against_network(network, host, facts))
        here = len(cluster.hosts) == 1 or any(node.host == host.name for node in users)
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
