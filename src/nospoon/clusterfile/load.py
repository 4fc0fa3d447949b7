"""The pipeline: text -> document -> sections -> nodes -> checks -> Cluster.

Syntax errors end it, for nothing can be said of the rest; all other problems are reported at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from ipaddress import ip_address
from itertools import chain, islice
from uuid import UUID

from nospoon.clusterfile.bmcs import BmcSection
from nospoon.clusterfile.check import check, unfit
from nospoon.clusterfile.document import MAX_PROBLEMS, Document
from nospoon.clusterfile.expand import Complaint, expand, templates_of_labs
from nospoon.clusterfile.hosts import connections_of, place_named, places_of
from nospoon.clusterfile.ironic import place
from nospoon.clusterfile.labs import flavor_of_labs, labs
from nospoon.clusterfile.models import HostSection, NetworkSection
from nospoon.clusterfile.nova import wanted
from nospoon.clusterfile.openstack import connection
from nospoon.clusterfile.references import LocalFile, LocalPair
from nospoon.clusterfile.sections import Sections, read_sections
from nospoon.clusterfile.service_instances import read_instances, written_path
from nospoon.clusterfile.service_nodes import services_of
from nospoon.clusterfile.simulated import AgentsSection, SimulatedSection
from nospoon.errors import Problem, SpecError
from nospoon.model.agent import Agents
from nospoon.model.cluster import (
    USUAL_NETWORK,
    BmcAddressing,
    BootProfile,
    CertificateFiles,
    Cluster,
    Host,
    Network,
    Node,
    Overcommit,
    PduAddressing,
)
from nospoon.model.connections import ConnectionKind, Docker, Libvirt, Lxc, Simulated, Simulation
from nospoon.model.ironic import IronicPlace
from nospoon.model.lab import Lab
from nospoon.model.names import is_name

DEFAULT_HOST = "here"
ONCE = Overcommit(cpus=1, memory=1, disk=1)
"""Of a cloud, whose quotas cannot be given away twice."""

SYSTEM_URI = "qemu:///system"


def _in_order(document: Document, problems: Iterable[Problem]) -> list[Problem]:
    """By place, each once. Of a value that is no value, as one with a tag, nothing else is said."""

    def where(problem: Problem) -> tuple[int, int, str]:
        return problem.line, problem.column, problem.path

    refused = {where(each) for each in document.problems}
    said = [each for each in problems if where(each) not in refused]
    return sorted(dict.fromkeys((*document.problems, *said)), key=where)


def load(
    text: str,
    *,
    file: str,
    default_uri: str = SYSTEM_URI,
    local_file: LocalFile | None = None,
    local_pair: LocalPair | None = None,
) -> Cluster:
    """The cluster that a file describes. Raises `SpecError` with every problem in it.

    `default_uri`: libvirt URI of hosts that name none (a user's daemon takes the session).
    `local_file`: where given, tells of a file that the cluster file names why it cannot be read.
    `local_pair`: the same of a certificate and its key, why nothing can be served with them.
    """
    document = Document(text, file)
    sections = read_sections(document)
    if not isinstance(document.value, dict):
        raise SpecError(sections.problems)
    read_instances(document, sections)
    expansion = expand(sections, default_network=_default_network(sections))
    services = services_of(sections, expansion)
    found = chain(expansion.complaints, check(sections, expansion, local_file, local_pair))
    complaints = islice(found, MAX_PROBLEMS)
    problems = sections.problems + [
        _placed(document, sections, complaint) for complaint in complaints
    ]
    if problems:
        raise SpecError(_in_order(document, problems))
    templates = _templates(sections)
    return Cluster(
        name=sections.cluster,
        hosts=_hosts(sections, default_uri),
        networks=_networks(sections) if expansion.nodes or sections.networks else (),
        profiles=tuple(
            BootProfile(name, p.kernel or "", tuple(p.initrd), p.cmdline, p.script or "")
            for name, p in sections.boot.items()
        ),
        nodes=tuple(expansion.nodes),
        addressing=_addressing(sections.bmc),
        id=UUID(sections.id) if sections.id else None,
        ironic=_ironic(sections),
        nova=wanted(sections.nova),
        flavors=tuple(sections.flavors),
        adoptions=tuple(expansion.adoptions),
        logins=_logins(sections),
        labs=_labs(sections, templates),
        services=services,
        templates=templates,
    )


def _templates(sections: Sections) -> tuple[Node, ...]:
    if not sections.labs:
        return ()
    return tuple(templates_of_labs(sections, default_network=_default_network(sections)))


def _labs(sections: Sections, templates: Iterable[Node]) -> tuple[Lab, ...]:
    flavors = (flavor_of_labs(each, unfit(sections, each)) for each in templates)
    found = labs(sections.labs, {each.name: each for each in flavors})
    return tuple(replace(each, host=place_named(each.host, sections.hosts)) for each in found)


def _addressing(bmc: BmcSection) -> BmcAddressing:
    return BmcAddressing(
        address=bmc.address,
        ports=bmc.ports,
        redfish_port=bmc.redfish_port,
        redfish_given="redfish_port" in bmc.model_fields_set,
        redfish_login=bmc.redfish_auth == "required",
        tls=bool(bmc.tls),
        certificate=_given_certificate(bmc),
        pool=bmc.pool,
        pdu=PduAddressing(outlets=bmc.pdu.outlets, ports=bmc.pdu.ports, v2c=bmc.pdu.v2c),
    )


def _given_certificate(bmc: BmcSection) -> CertificateFiles | None:
    given = bmc.tls
    if isinstance(given, bool):
        return None
    return CertificateFiles(given.certificate, given.key)


def _ironic(sections: Sections) -> IronicPlace | None:
    if sections.ironic is None:
        return None
    return replace(place(sections.ironic), nova=sections.nova is not None)


def _placed(document: Document, sections: Sections, complaint: Complaint) -> Problem:
    path = written_path(sections, complaint.path)
    return document.problem(path, complaint.message, complaint.hint)


def _default_network(sections: Sections) -> str:
    """The network of NICs that name none: the file's first with a name that may be, or the one that
    is always there.
    """
    if not sections.names.get("networks"):
        return USUAL_NETWORK.name
    return next(filter(is_name, sections.networks), "")


def _hosts(sections: Sections, default_uri: str) -> tuple[Host, ...]:
    given = sections.hosts or {DEFAULT_HOST: HostSection()}
    return tuple(
        host for name, section in given.items() for host in _host(name, section, default_uri)
    )


def _logins(sections: Sections) -> tuple[tuple[str, str], ...]:
    """Host -> settings of its cloud."""
    return tuple(
        (name, connection(section.openstack)[1])
        for name, section in sections.hosts.items()
        if section.openstack is not None
    )


def _host(name: str, section: HostSection, default_uri: str) -> Iterator[Host]:
    """One for each of its connections."""
    kinds = connections_of(section)
    for kind, called in zip(kinds, places_of(name, section), strict=True):
        usual = Host(
            name=called,
            drained=section.drained,
            physnets=tuple(sorted(section.physnets.items())),
        )
        over = Overcommit(**dict(section.overcommit))
        match kind:
            case ConnectionKind.OPENSTACK:
                assert section.openstack is not None, "it is one of its connections"
                cloud, _ = connection(section.openstack)
                yield replace(usual, connection=cloud, overcommit=ONCE)
            case ConnectionKind.LXC:
                assert section.lxc is not None, "it is one of its connections"
                lxc = Lxc(section.lxc.ids, section.lxc.new_privileges)
                yield replace(usual, connection=lxc, overcommit=over, ssh=section.ssh)
            case ConnectionKind.DOCKER:
                assert section.docker is not None, "it is one of its connections"
                docker = Docker(section.docker.socket, section.docker.new_privileges)
                yield replace(usual, connection=docker, overcommit=over, ssh=section.ssh)
            case ConnectionKind.SIMULATED:
                assert section.simulated is not None, "it is one of its connections"
                simulated = Simulated(_simulation(section.simulated))
                yield replace(usual, connection=simulated, overcommit=over)
            case ConnectionKind.LIBVIRT:
                yield replace(
                    usual,
                    connection=Libvirt(section.libvirt or default_uri),
                    overcommit=over,
                    ssh=section.ssh,
                    address=str(section.address or _address_in(section.ssh)),
                )


def _address_in(ssh: str) -> str:
    """The address that an ssh destination names, "" when it names none (ssh(1))."""
    host = ssh.removeprefix("ssh://").rpartition("@")[2]
    bare = host[1:].partition("]")[0] if host.startswith("[") else host
    for candidate in (bare, bare.partition(":")[0]):
        try:
            return str(ip_address(candidate))
        except ValueError:
            continue
    return ""


def _simulation(section: SimulatedSection) -> Simulation:
    return Simulation(
        power_on=section.power_on,
        power_off=section.power_off,
        shut_down=section.shut_down,
        boot=section.boot,
        power_failures=section.power_failures,
        console=section.console,
        cpus=section.cpus,
        memory=section.memory or 0,
        machines=tuple(section.machines),
        agents=_agents(section.agents) if section.agents is not None else None,
    )


def _agents(section: AgentsSection) -> Agents:
    return Agents(
        api=section.api,
        boot_script=section.boot_script,
        address=str(section.address),
        port=section.port,
        tls=section.tls,
        command=section.command,
        commands=tuple(sorted(section.commands.items())),
        failing=tuple(sorted(section.failing.items())),
        failures=section.failures,
        silent=section.silent,
        heartbeat=section.heartbeat,
    )


def _networks(sections: Sections) -> tuple[Network, ...]:
    if not sections.networks:
        return (USUAL_NETWORK,)
    return tuple(
        Network(
            name=name,
            cidr=n.ipv4,
            cidr6=n.ipv6,
            netboot=n.netboot,
            physnet=n.physnet,
            bridge=n.bridge,
            vlan=n.vlan,
            provider=n.provider,
            segment=n.segment,
            segment_id=n.segment_id,
            mtu=n.mtu,
            nat=n.nat,
            router=n.router or "",
            dhcp=n.dhcp,
            host_ports=_host_ports(n),
            anti_spoofing=n.anti_spoofing,
            switch=n.switch,
            overlay=n.overlay,
            virtual_ips=tuple(sorted(map(str, n.virtual_ips))),
        )
        for name, n in sections.networks.items()
    )


def _host_ports(given: NetworkSection) -> tuple[int, ...] | None:
    """None: all of them."""
    if given.host_ports == "all" or (given.host_ports is None and given.nat):
        return None
    return tuple(sorted(set(given.host_ports or ())))
