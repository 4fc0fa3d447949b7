"""The cluster file's sections as pydantic models: the one source of checks, schema and reference.

Field descriptions are the reference documentation (docs/reference/file.md is made from them). Those
of a machine's parts are in `hardware`, of nodes in `node_groups`, of BMCs in `bmcs`, of enrolment
in `ironic` and `nova`.
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from nospoon.clusterfile.bmcs import BmcSection
from nospoon.clusterfile.command_line import CommandLine
from nospoon.clusterfile.docker import DockerSection
from nospoon.clusterfile.fields import (
    Address,
    Name,
    Networks,
    Uri,
    WholeUrl,
    parse_ssh,
)
from nospoon.clusterfile.ironic import IronicSection
from nospoon.clusterfile.labs import LabSection
from nospoon.clusterfile.lxc import LxcSection
from nospoon.clusterfile.node_groups import FlavorSection, NodeGroupSection
from nospoon.clusterfile.nova import NovaSection
from nospoon.clusterfile.openstack import OpenStackSection
from nospoon.clusterfile.section import (
    Flag,
    Number,
    OneOrMore,
    Section,
    Text,
    Whole,
    few,
    listed,
    no_items,
)
from nospoon.clusterfile.services import ServiceSection
from nospoon.clusterfile.simulated import OrSwitch, SimulatedSection, switched
from nospoon.model.cluster import Netboot, Overlay, Switch
from nospoon.model.segments import SegmentType

MAX_PATTERNS = 100
"""Groups that adopt by a pattern, which is compared with every machine."""
MAX_PARTS = 100_000
"""Disks of all nodes of a cluster, NICs, in clouds VLANs in trunks, and networks on all hosts: with
24 disks for each, a plan of 20,000 nodes took a gigabyte of memory.
"""
MAX_DESCRIBED = 96 << 20
"""Characters of what all nodes of a cluster and all flavors of its labs are given for Ironic, with
traits, portgroups and VLANs: of each node they are written out.
"""
MAX_CLOUD_INIT = 256 << 20
"""Characters of user data and ssh keys that all nodes of a cluster are given: each may have half a
megabyte, and a digest is made of it.
"""
Ratio = Annotated[Number, Field(gt=0, le=1000)]


class OvercommitSection(Section):
    """How often what a host has may be given away: machines that are off use nothing of it."""

    cpus: Ratio = Field(32.0, description="Virtual CPUs a CPU of the host; default 32.")
    memory: Ratio = Field(1.5, description="Times the host's memory; default 1.5.")
    disk: Ratio = Field(10.0, description="Times the free space for pools; default 10.")


class HostSection(Section):
    """A place where machines are made."""

    libvirt: Uri | None = Field(
        None,
        description="libvirt connection URI: `qemu:///system`, `qemu:///session`, "
        "`qemu+ssh://[USER@]HOST[:PORT]/system` or `qemu+tls`; no query.",
    )
    lxc: Annotated[LxcSection | None, BeforeValidator(switched), OrSwitch()] = Field(
        None, description="Containers beside libvirt's machines, by liblxc; default no."
    )
    docker: Annotated[DockerSection | None, BeforeValidator(switched), OrSwitch()] = Field(
        None,
        description="Containers beside libvirt's machines, by Podman's service or Docker Engine; "
        "default no.",
    )
    simulated: Annotated[SimulatedSection | None, BeforeValidator(switched), OrSwitch()] = Field(
        None, description="Machines without processes, inside the daemon, and how they behave."
    )
    openstack: OpenStackSection | None = Field(
        None, description="Machines are servers in a project of an OpenStack cloud."
    )
    ssh: Annotated[Text, BeforeValidator(parse_ssh)] = Field(
        "",
        description="How commands are run there: `[USER@]HOST` or `ssh://[USER@]HOST[:PORT]`, as "
        "ssh(1) takes it; empty: here.",
    )
    physnets: Annotated[dict[Name, Text], few(1000)] = Field(
        default_factory=dict,
        description="Physical network name -> bridge of this host (Linux or Open vSwitch), or an "
        "interface that is in a Linux bridge; of a cloud: name or id of a network.",
    )
    address: Address | None = Field(
        None,
        description="Address by which the other hosts reach this one, for networks with `overlay`; "
        "default: that in `ssh`.",
    )
    drained: Flag = Field(
        default=False, description="Place nothing new here; what is here stays. Default no."
    )
    overcommit: OvercommitSection = Field(
        default_factory=OvercommitSection,
        description="How often its resources are given away; a cloud's are given once.",
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"simulated": True} if value == "simulated" else value


class NetworkSection(Section):
    """An L2 segment that nodes plug into."""

    cidr: Networks = Field(
        (),
        description="Network of the segment, IPv4 or IPv6, or a list of one of each; when missing, "
        "a free IPv4 network is chosen.",
    )
    netboot: Netboot = Field(
        Netboot.NONE,
        description="`builtin`: nospoon answers DHCP, TFTP and HTTP; `none` (default): it "
        "does not.",
    )
    physnet: Text = Field("", description="Plug into the bridge that each host maps to this name.")
    bridge: Text = Field("", description="Plug into this existing bridge on every host.")
    vlan: Annotated[Whole, Field(ge=1, le=4094)] | None = Field(
        None,
        description="VLAN id on the physical network (needs `switch: ovs`, or in a cloud "
        "`provider`), or in a cloud that by which NICs' `trunk` names it; default none.",
    )
    provider: Annotated[Text, Field(max_length=255)] = Field(
        "",
        description="In a cloud: the physical network of Neutron's in which nospoon makes this "
        "network, as its VLAN `vlan`, or untagged with `segment: flat`. Needs the right to do so, "
        "which administrators have.",
    )
    segment: SegmentType | None = Field(
        None,
        description="In a cloud: what Neutron makes this network of: `flat` or `vlan` (of "
        "`provider`), `vxlan`, `geneve` or `gre`. Needs the right to do so, which administrators "
        "have. Default `vlan` with `provider`, else the cloud's choice.",
    )
    segment_id: Annotated[Whole, Field(ge=1, le=(1 << 32) - 1)] | None = Field(
        None,
        description="In a cloud, with `segment`: the VNI (`vxlan`, `geneve`: 24 bits) or key "
        "(`gre`); default the cloud's choice. A VLAN's is `vlan`.",
    )
    mtu: Annotated[Whole, Field(ge=576, le=65535)] = Field(
        1500, description="MTU in bytes; default 1500."
    )
    switch: Switch = Field(
        Switch.BRIDGE,
        description="The existing bridge: `bridge` (Linux's; default) or `ovs` (Open vSwitch's).",
    )
    overlay: Overlay | None = Field(
        None,
        description="`vxlan`: one network on all hosts, by tunnels between their addresses; "
        "default: each host has one of its own.",
    )
    nat: Flag = Field(
        default=False,
        description="Lead out: guests reach what the host reaches, from its address; default no.",
    )
    router: Name | None = Field(
        None,
        description="In a cloud: the router that leads out of it (with `nat`). Networks that name "
        "the same one reach one another; default: each network has its own.",
    )
    dhcp: Flag = Field(
        default=True,
        description="In a cloud, with `nat`: Neutron answers DHCP there; `false`: it does not, for "
        "what deploys the nodes does, such as an undercloud. Default yes, and no without `nat`.",
    )
    host_ports: (
        Literal["all"]
        | Annotated[list[Annotated[Whole, Field(ge=1, le=65535)]], Field(max_length=1024)]
        | None
    ) = Field(
        None,
        description="Ports at the host's address that guests reach besides what nospoon serves "
        "there (DHCP, TFTP, boot files, ICMP), such as those of an Ironic; `all`: everything. "
        "Default: none, and all with `nat`.",
    )
    anti_spoofing: Flag = Field(
        default=False,
        description="Each NIC sends only from its own MAC and IPv4 address (libvirt's filter "
        "`clean-traffic`); no IPv6, VLANs, Open vSwitch or `qemu:///session`. Simulated hosts "
        "filter nothing. Default no.",
    )
    virtual_ips: Annotated[list[Address], BeforeValidator(listed), OneOrMore()] = Field(
        default_factory=no_items,
        max_length=10,
        description="Virtual IPs, at most 10, which nodes move between each other as keepalived "
        "does: no node is given one, and `anti_spoofing` and a cloud's port security let each "
        "node send from them. Default: none.",
    )

    @property
    def ipv4(self) -> IPv4Network | None:
        return next((each for each in self.cidr if isinstance(each, IPv4Network)), None)

    @property
    def ipv6(self) -> IPv6Network | None:
        return next((each for each in self.cidr if isinstance(each, IPv6Network)), None)


class BootProfileSection(Section):
    """What the network boots."""

    kernel: Text | None = Field(None, description="Kernel: a path beside the file, or an http URL.")
    script: WholeUrl | None = Field(
        None, description="In place of a kernel: URL of an iPXE script, such as Ironic's boot.ipxe."
    )
    initrd: Annotated[list[Text], BeforeValidator(listed), OneOrMore()] = Field(
        default_factory=no_items,
        max_length=64,
        description="Initial ramdisk, or a list of them: paths or URLs.",
    )
    cmdline: CommandLine = Field(
        "",
        description="Kernel command line. iPXE fills in `${uuid}` and its other settings; "
        "`{{boot}}` is the URL of nospoon's boot server as the machine reaches it.",
    )


class ClusterFile(Section):
    """A cluster file. `cluster` and `nodes`, or `cluster` and `services`, are enough."""

    cluster: Name = Field(description="Name of the cluster.")
    id: Text | None = Field(
        None, description="Pin the cluster's UUID; default: random, remembered."
    )
    throwaway: Flag = Field(
        default=False,
        description="The cluster is disposable: its disks may be lost when a host crashes. The "
        "default of their `cache` is then `unsafe`. Default no.",
    )
    hosts: dict[Name, HostSection] = Field(
        default_factory=dict, description="Hosts; default: this machine, as `here`."
    )
    networks: dict[Name, NetworkSection] = Field(
        default_factory=dict, description="Networks; default: `provision`, isolated, with netboot."
    )
    flavors: dict[Name, FlavorSection] = Field(default_factory=dict, description="Kinds of nodes.")
    boot: dict[Name, BootProfileSection] = Field(
        default_factory=dict, description="Boot profiles, by name."
    )
    bmc: BmcSection = Field(default_factory=BmcSection, description="BMC addresses and accounts.")
    ironic: IronicSection | None = Field(
        None, description="Enroll the nodes in Ironic; default: not enrolled."
    )
    nova: NovaSection | None = Field(
        None, description="Flavors in the Nova of that Ironic's cloud; default: none."
    )
    labs: dict[Name, LabSection] = Field(
        default_factory=dict, description="Labs, whose machines recipes of a scheduler get."
    )
    services: dict[Name, ServiceSection] = Field(
        default_factory=dict, description="What VMs and containers run, by the services' names."
    )
    nodes: list[NodeGroupSection] = Field(
        default_factory=no_items,
        description="Groups of nodes; may be left out where there are `services`.",
    )
