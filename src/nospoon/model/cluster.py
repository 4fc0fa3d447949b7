"""A cluster as its file describes it, with every default filled in and every node written out.

What is decided later is not here: cluster id, UUIDs, MACs that the file leaves open, BMC ports
and passwords, free networks and placement. `nospoon.plan.resolution` adds those.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from uuid import UUID

from nospoon.model.boot import BootDevice
from nospoon.model.connections import SYSTEM_LIBVIRT, ConnectionSpec
from nospoon.model.declared import Declared, Networking
from nospoon.model.images import HypervisorType
from nospoon.model.ironic import Enrolment, IronicPlace
from nospoon.model.lab import Lab
from nospoon.model.machine import PowerPolicy
from nospoon.model.node_kind import NodeKind
from nospoon.model.nova import WantedFlavor
from nospoon.model.segments import SegmentType
from nospoon.model.service import Service


class Arch(StrEnum):
    """Processor architecture, by the names of QEMU and Ironic."""

    X86_64 = "x86_64"
    AARCH64 = "aarch64"


class Firmware(StrEnum):
    """Firmware of a machine."""

    BIOS = "bios"
    UEFI = "uefi"
    UEFI_SECURE = "uefi-secure"


class BmcProtocol(StrEnum):
    """What a BMC speaks."""

    IPMI = "ipmi"
    REDFISH = "redfish"
    PDU = "pdu"


class Netboot(StrEnum):
    """Who answers DHCP and TFTP on a network: nospoon, or someone else."""

    BUILTIN = "builtin"
    NONE = "none"


class Switch(StrEnum):
    """What switches frames on a network."""

    BRIDGE = "bridge"
    """A Linux bridge."""
    OVS = "ovs"
    """Open vSwitch, with VLANs."""


class Overlay(StrEnum):
    """How a network is one on several hosts that share no L2."""

    VXLAN = "vxlan"


@dataclass(frozen=True, slots=True)
class Overcommit:
    """How often a host's resources may be given away; machines that are off use none."""

    cpus: float = 32.0
    memory: float = 1.5
    disk: float = 10.0


BESIDES = ":"
"""Between the name of a host and the kind of a connection that it has besides its first."""


@dataclass(frozen=True, slots=True)
class Host:
    """A place with capacity, and the connection by which machines are made there.

    What the file calls a host is several of these where it has several connections: the first has
    the host's name, the others have their kind behind it, `here:simulated`.

    `ssh` names how to run commands there; "" is this machine. `physnets` maps a physical network
    to an existing bridge of this host, or network of this cloud. `address`: by which the other
    hosts reach it, "" unknown.
    """

    name: str
    connection: ConnectionSpec = SYSTEM_LIBVIRT
    ssh: str = ""
    physnets: tuple[tuple[str, str], ...] = ()
    drained: bool = False
    overcommit: Overcommit = Overcommit()
    address: str = ""

    @property
    def section(self) -> str:
        """What the file calls it."""
        return self.name.partition(BESIDES)[0]

    @property
    def network_place(self) -> str:
        """The place that makes the networks of its machines: itself, or the host's first."""
        return self.section if self.declares.shares_networks else self.name

    @property
    def declares(self) -> Declared:
        """What the plan may build on before the host is asked."""
        return self.connection.declares

    @property
    def where(self) -> str:
        """How people call the place: a URI, or the connection's kind."""
        return str(self.connection)

    @property
    def place(self) -> tuple[str, ...]:
        """Where it leads: the same under each of its names."""
        return (*self.connection.place, self.ssh)

    @property
    def server(self) -> tuple[str, ...]:
        """What makes its machines: of two names of one libvirtd the same; else each its own."""
        daemon = self.connection.daemon
        return (self.machine, *daemon) if daemon else (self.name,)

    @property
    def machine(self) -> str:
        """The machine that has it, "" for this one and for what is not known."""
        return self.connection.machine or self.ssh

    @property
    def networks_at(self) -> str:
        """What has the networks of its machines, the same of hosts whose networks meet: a machine,
        which has bridges, or a simulated host, which no machine is called as. "" where none of
        another cluster meets them: a cloud switches each by itself, an emulator's are its own, and
        what is made elsewhere is not compared.
        """
        match self.declares.networking:
            case Networking.BRIDGES | Networking.SHARED:
                return f"machine {self.machine}"
            case Networking.SIMULATED:
                return self.name
            case Networking.USER_MODE | Networking.PORTS | Networking.EXISTING:
                return ""

    @property
    def runs_commands(self) -> bool:
        """Whether commands can be run there; simulated machines are in the daemon's process."""
        return bool(self.ssh) or not self.declares.is_real or not self.machine


class Strategy(StrEnum):
    """Which of the hosts that fit a node is liked best."""

    SPREAD = "spread"
    BALANCE = "balance"
    PACK = "pack"


@dataclass(frozen=True, slots=True)
class Placement:
    """Rules for nodes' hosts. `affinity` and `anti_affinity`: "flavor", or a label's key; nodes
    with the same value of it are kept on one host, or on hosts of their own.
    """

    strategy: Strategy = Strategy.SPREAD
    affinity: tuple[str, ...] = ()
    anti_affinity: tuple[str, ...] = ()

    def together_with(self, node: Node) -> tuple[tuple[str, str], ...]:
        """(key, value) pairs whose nodes share a host with this one."""
        return tuple((key, node.value_of(key)) for key in self.affinity)

    def apart_from(self, node: Node) -> tuple[tuple[str, str], ...]:
        """(key, value) pairs whose nodes have other hosts than this one."""
        return tuple((key, node.value_of(key)) for key in self.anti_affinity)


@dataclass(frozen=True, slots=True)
class Network:
    """An L2 segment. With `physnet` it is an existing bridge of each host, else nospoon makes one;
    with `provider`, in a physical network of a cloud, as its `vlan`, or untagged (`flat`).
    `segment`: of which type in a cloud, None for its choice, or a VLAN with `provider`;
    `segment_id`: of a tunnel, None for the cloud's choice.

    `cidr` None, and no `cidr6` either: a free network is chosen when the plan is made. With both
    its machines have addresses of both kinds. `mtu` in bytes.
    `nat`: its guests reach what the host reaches, from the host's address. `host_ports`: ports of
    the host that they reach besides what nospoon serves; None: all. `router`: which router of a
    cloud leads out of it, one that networks may share; "" for one of its own. `dhcp`: that cloud
    serves it there.
    `anti_spoofing`: each NIC sends from its own MAC and IPv4 address alone, and from `virtual_ips`,
    which its nodes pass on to each other and which no node is given.
    """

    name: str
    cidr: IPv4Network | None = None
    cidr6: IPv6Network | None = None
    netboot: Netboot = Netboot.NONE
    physnet: str = ""
    bridge: str = ""
    vlan: int | None = None
    mtu: int = 1500
    nat: bool = False
    host_ports: tuple[int, ...] | None = None
    anti_spoofing: bool = False
    switch: Switch = Switch.BRIDGE
    overlay: Overlay | None = None
    virtual_ips: tuple[str, ...] = ()
    provider: str = ""
    router: str = ""
    segment: SegmentType | None = None
    segment_id: int | None = None
    dhcp: bool = True

    @property
    def addressed(self) -> bool:
        """Whether hosts have an address on it: to serve it, or to lead out of it."""
        return self.netboot is Netboot.BUILTIN or self.nat

    @property
    def chosen(self) -> bool:
        """Whether a free IPv4 network is looked for."""
        return self.addressed and self.cidr is None and self.cidr6 is None

    @property
    def existing(self) -> bool:
        """Someone else's bridge, which nospoon plugs into and never makes or removes."""
        return bool(self.physnet or self.bridge)


USUAL_NETWORK = Network("provision", netboot=Netboot.BUILTIN)
"""Of a file that names none."""


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk of a node; `size` in bytes, at least that of the image. `image`: a path or URL.

    `rotational` None: the guest is not told. `cache`, `discard`: by libvirt's words. `volume`: one
    that exists, POOL/VOLUME, and what it holds, `format`; its `size` is found with it. `checksum`:
    sha256:DIGITS, sha512:DIGITS, or the URL of a list of them. `mount`: where a container has it,
    an absolute path; "" for its root.
    """

    size: int
    image: str = ""
    bus: str = "virtio"
    serial: str = ""
    rotational: bool | None = None
    cache: str = "writeback"
    discard: str = "unmap"
    volume: str = ""
    format: str = "qcow2"
    checksum: str = ""
    mount: str = ""

    @property
    def source(self) -> str:
        """What names the content of its image: path, URL, or URL, a blank and its checksum."""
        return f"{self.image} {self.checksum}" if self.checksum else self.image


DHCP = "dhcp"
"""Address of a NIC that asks for one, whatever its network is."""


@dataclass(frozen=True, slots=True)
class Nic:
    """A NIC of a node; `mac` "" is derived from the node's UUID. `portgroup` names a bond of it.

    `trunk`: ids of VLANs that reach it tagged (IEEE 802.1Q). `pxe`: whether Ironic
    boots from it; None: if its network has network boot or is that of the first NIC. `address`: of
    a VM or container, in CIDR form; "dhcp"; "": by DHCP where there may be some. `floating_ip`: the
    external network of a cloud from which an address leads to it, "" for none; `floating_address`:
    which one, "" for the cloud's choice.
    """

    network: str
    mac: str = ""
    model: str = "virtio"
    portgroup: str = ""
    trunk: tuple[int, ...] = ()
    pxe: bool | None = None
    address: str = ""
    floating_ip: str = ""
    floating_address: str = ""


@dataclass(frozen=True, slots=True)
class Portgroup:
    """NICs that Ironic takes for one bond; the operating system, when deployed, makes it.

    `mode` and `properties` by the names of Linux's bonding.rst. `address` "": no MAC of its own.
    `standalone_ports`: whether its NICs may be used alone (standalone_ports_supported).
    """

    name: str
    mode: str = "active-backup"
    address: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    standalone_ports: bool = True


@dataclass(frozen=True, slots=True)
class BootProfile:
    """What the network boots: kernel, initrds (paths or URLs) and a command line; or the iPXE
    script at a URL, `kernel` "".
    """

    name: str
    kernel: str
    initrd: tuple[str, ...] = ()
    cmdline: str = ""
    script: str = ""


@dataclass(frozen=True, slots=True)
class PduAddressing:
    """How many nodes a PDU feeds, and the SNMP ports of PDUs without an address of their own.

    `v2c`: they answer SNMP v1 and v2c as well as v3.
    """

    outlets: int = 24
    ports: tuple[int, int] = (16230, 17229)
    v2c: bool = True


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A certificate and its key in PEM: paths beside the cluster file."""

    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class BmcAddressing:
    """Where BMCs answer: `ports` on one `address` (inclusive), or an address each from `pool`.

    `certificate`: what Redfish is served with; None: certificates that sign themselves.
    `redfish_login` False: it answers without a login. `redfish_given`: the file names
    `redfish_port`; else it is where the search for a free one begins.
    """

    address: IPv4Address | IPv6Address = IPv4Address("127.0.0.1")
    ports: tuple[int, int] = (6230, 16229)
    redfish_port: int = 8000
    redfish_given: bool = False
    redfish_login: bool = True
    tls: bool = False
    certificate: CertificateFiles | None = None
    pool: IPv4Network | None = None
    pdu: PduAddressing = PduAddressing()


@dataclass(frozen=True, slots=True)
class Credentials:
    """Fixed credentials from the file. An empty name or password is generated, per node.

    `k_g`: the key K_G (IPMI 2.0 §13.31) in 40 hexadecimal digits, "" for none.
    `pdu_secret`: pass phrases of the PDU that feeds the node; "": made for it.
    """

    username: str = ""
    password: str = field(default="", repr=False)
    k_g: str = field(default="", repr=False)
    pdu_secret: str = field(default="", repr=False)


MOST_USER_DATA = 65536
"""Characters of it."""


@dataclass(frozen=True, slots=True)
class CloudInit:
    """What cloud-init is given in a VM or container besides its name and addresses. `user_data` ""
    for none; `ssh_authorized_keys`: of the image's default user, as sshd(8) has them.
    `vendor_data`: what its services need, "" for nothing; `roles`: digest of their roles, which a
    root has run once, "" for none.
    """

    user_data: str = field(default="", repr=False)
    ssh_authorized_keys: tuple[str, ...] = ()
    vendor_data: str = field(default="", repr=False)
    roles: str = ""


@dataclass(frozen=True, slots=True)
class Adopted:
    """A machine that someone else made and that is a node's: its UUID and its name on its host."""

    uuid: UUID
    name: str


@dataclass(frozen=True, slots=True)
class Node:
    """One desired server, with its flavor's values filled in. `memory` in bytes. `restore`: the
    power restore policy of its BMC; None: `Bmc.policy` says. `adopted`: the machine that it is,
    None for one that is made; its shape is as it is found. `ipmi_port`: of its BMC, 0 for any;
    `bmc_address`: its address, "" for the cluster's.
    `image_types`: the machine types that its loaded images are for; `root_format`: of the image
    with which a container begins, "" where that is not known.
    The first disk of a VM or container is its root, made from an image; `keeps_root`: where that
    changes, it stays for a rollback.
    """

    name: str
    flavor: str = "default"
    host: str = ""
    cpus: int = 1
    memory: int = 1 << 30
    arch: Arch = Arch.X86_64
    firmware: Firmware = Firmware.UEFI
    tpm: bool = False
    disks: tuple[Disk, ...] = ()
    nics: tuple[Nic, ...] = ()
    portgroups: tuple[Portgroup, ...] = ()
    boot_order: tuple[BootDevice, ...] = (BootDevice.DISK, BootDevice.NETWORK)
    boot: str = ""
    bmc: tuple[BmcProtocol, ...] = (BmcProtocol.IPMI, BmcProtocol.REDFISH)
    credentials: Credentials = Credentials()
    traits: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    placement: Placement = Placement()
    enrolment: Enrolment = Enrolment()
    restore: PowerPolicy | None = None
    adopted: Adopted | None = None
    image_types: tuple[HypervisorType, ...] = ()
    root_format: str = ""
    ipmi_port: int = 0
    bmc_address: str = ""
    kind: NodeKind = NodeKind.BAREMETAL
    cloud_init: CloudInit = CloudInit()
    keeps_root: bool = True

    def value_of(self, key: str) -> str:
        """Of "flavor" or of a label; "" where it has no such label."""
        return self.flavor if key == "flavor" else dict(self.labels).get(key, "")


@dataclass(frozen=True, slots=True)
class Adoption:
    """Machines of others that are to be nodes: `machine` is the name or UUID of one, `match` a
    pattern of names (fnmatch). `like`: what a node has besides, its host "" for any; its name "" is
    the machine's. `group`: its place in the file's list of nodes.
    """

    like: Node
    machine: str = ""
    match: str = ""
    group: int = 0

    def __str__(self) -> str:
        return self.machine or self.match


@dataclass(frozen=True, slots=True)
class Cluster:
    """What one file describes. `flavors`: the names of those that it defines. `adoptions` are among
    `nodes` once someone has looked at the hosts. `logins`: host -> openstacksdk's settings of
    its cloud, as JSON, until `control.planning.logins` took them. `services`: those that others are
    `after` first. `templates`: a node of each flavor of its labs, without name and host.
    """

    name: str
    hosts: tuple[Host, ...]
    networks: tuple[Network, ...]
    profiles: tuple[BootProfile, ...]
    nodes: tuple[Node, ...]
    addressing: BmcAddressing = BmcAddressing()
    id: UUID | None = None
    ironic: IronicPlace | None = None
    nova: tuple[WantedFlavor, ...] = ()
    flavors: tuple[str, ...] = ()
    adoptions: tuple[Adoption, ...] = ()
    logins: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    labs: tuple[Lab, ...] = ()
    services: tuple[Service, ...] = ()
    templates: tuple[Node, ...] = ()

    @property
    def baremetal(self) -> tuple[Node, ...]:
        """The nodes that are for deployers."""
        return tuple(node for node in self.nodes if node.kind is NodeKind.BAREMETAL)
