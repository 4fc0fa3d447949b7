"""Resources: everything that nospoon makes somewhere, as desired or as observed.

A resource is a key and a shape. The same shape types describe what is wanted and what a driver
found, so that a difference is a comparison of fields. Which field may change how is not said
here: that is capability data of the connection (`nospoon.providers.base`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_interface
from uuid import UUID

from nospoon.model.boot import BootDevice
from nospoon.model.cluster import Arch, BmcProtocol, Firmware, Switch
from nospoon.model.ironic import (
    IronicConnector,
    IronicDiscovery,
    IronicNode,
    IronicPort,
    IronicPortgroup,
    IronicStanding,
    IronicTarget,
)
from nospoon.model.machine import PowerPolicy
from nospoon.model.node_kind import NodeKind
from nospoon.model.nova import NovaFlavor, NovaInventory


class Kind(StrEnum):
    """Kinds of resources, in the order in which a cluster is usually made."""

    POOL = "pool"
    IMAGE = "image"
    NETWORK = "network"
    VOLUME = "volume"
    BOOT_IMAGE = "boot-image"
    PORT = "port"
    TRUNK = "trunk"
    FLOATING_IP = "floating-ip"
    ROUTER = "router"
    RELAY = "relay"
    NETBOOT = "netboot"
    MACHINE = "machine"
    SNAPSHOT = "snapshot"
    BMC = "bmc"
    IRONIC_NODE = "ironic-node"
    IRONIC_PORTGROUP = "ironic-portgroup"
    IRONIC_PORT = "ironic-port"
    IRONIC_CONNECTOR = "ironic-volume-connector"
    IRONIC_TARGET = "ironic-volume-target"
    IRONIC_STANDING = "ironic-standing"
    IRONIC_DISCOVERY = "ironic-discovery"
    NOVA_FLAVOR = "nova-flavor"
    NOVA_INVENTORY = "nova-inventory"


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Names one resource within a cluster; `host` is where it lives."""

    kind: Kind
    host: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}@{self.host}"


@dataclass(frozen=True, slots=True)
class OwnerTag:
    """Written on everything made. `token` names the action that made it, for a safe retry.

    `name` and `uid`: the cluster's, and its owner's; "" and None on what earlier versions made.
    `note`: what `nospoon.plan.addresses.notes` says of a machine.
    """

    deployment: str
    cluster: UUID
    generation: int = 0
    token: str = ""
    name: str = ""
    uid: int | None = None
    note: str = ""

    def is_plausible(self, name: str) -> bool:
        """Whether nospoon can have written it, on a thing with this name. What others wrote may be
        what no store takes, and no answer of the API: one such tag would keep `orphans` and
        `recover` from all others.
        """
        numbers = 0 <= self.generation < MOST_GENERATION and 0 <= (self.uid or 0) < MOST_UID
        texts = (self.deployment, self.token, self.name, name)
        return numbers and all(len(each) <= MOST_TAGGED and each.isprintable() for each in texts)


MOST_GENERATION, MOST_UID = 1 << 31, 1 << 32
"""PostgreSQL's integers, and user ids (credentials(7))."""
MOST_TAGGED = 255
"""Characters of each text of a tag."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Where volumes of one cluster live on a host: a directory pool at `path`."""

    path: str


@dataclass(frozen=True, slots=True)
class Image:
    """A disk image copied to a host once. `sha256` of the file; sizes in bytes.

    `pool`: of the cluster that uses it. `format` is qemu-img's name (raw, qcow2), or `ROOT_FORMAT`;
    `virtual_size` is what a guest sees. `firmware`: of the machines that boot it, and
    `hypervisor_type`: of what runs it, "" for any, where the host wants to know that of the image.
    """

    pool: str
    sha256: str
    format: str
    virtual_size: int
    firmware: Firmware | None = None
    hypervisor_type: str = ""


ROOT_FORMAT = "tar"
"""Format of an image that is a root file system, packed by tar(1) and, it may be, compressed."""


@dataclass(frozen=True, slots=True)
class Volume:
    """A disk of a machine, or the root of a container; `size` in bytes. `image` names an Image
    resource, "" is blank.
    """

    pool: str
    size: int
    image: str = ""


@dataclass(frozen=True, slots=True)
class Tunnel:
    """One end of a VXLAN (RFC 7348): its network identifier of 24 bits, the address from which the
    host sends, and those of the other hosts.
    """

    vni: int
    local: str
    peers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """An L2 network: a bridge that nospoon makes. `address` is the host's on it.

    `address` and `address6` in CIDR form ("172.30.0.1/24"), "" when the host has none there. `nat`:
    the host leads out of it by network address translation (RFC 3022); else it is isolated.
    `tunnel` leads to the same network on other hosts. `host_ports`: ports at the host's addresses
    that guests reach besides DHCP, TFTP and ICMP, and nothing else of the host; None: all of it.
    `provider`: the physical network of a cloud in which it is the VLAN `vlan`; "" and None for one
    that the cloud places. `spared`: a network (CIDR) of which the cloud gives no address.
    `relayed`: a relay serves DHCP there, and the cloud none; `nameservers`: that it asks.
    """

    bridge: str
    address: str = ""
    mtu: int = 1500
    nat: bool = False
    tunnel: Tunnel | None = None
    address6: str = ""
    host_ports: tuple[int, ...] | None = None
    provider: str = ""
    vlan: int | None = None
    spared: str = ""
    relayed: bool = False
    nameservers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BootImage:
    """A medium that machines of one firmware boot at each power-on and ask at `url`, such as
    "http://198.51.100.1:8069", what to do.
    """

    firmware: Firmware
    url: str


def boot_image(host: str, firmware: Firmware) -> Key:
    """Names the boot image that machines of this firmware have on a host."""
    return Key(Kind.BOOT_IMAGE, host, f"boot-{firmware}")


@dataclass(frozen=True, slots=True)
class Port:
    """What a NIC of a machine plugs into where a cloud switches frames. `network`: by the name that
    we gave it, or the name or id of an existing one. `guarded`: the cloud filters what is sent and
    received there (Neutron's port security), and gives the NIC an address. `virtual_ips`: addresses
    that it lets through besides (Neutron's allowed address pairs), of a guarded port alone.
    `range`: of a network that we made and that has a router, where the cloud chooses its address;
    "" for none there. `address`: which one it is, "" for the cloud's choice. `vlan`: the tag with
    which its frames are on the trunk of the port with the same MAC; None of a NIC's own port.
    """

    network: str
    mac: str
    guarded: bool = False
    virtual_ips: tuple[str, ...] = ()
    range: str = ""
    address: str = ""
    vlan: int | None = None


@dataclass(frozen=True, slots=True, order=True)
class Carried:
    """Frames with the tag `vlan` are those of `network`, by the name that its port has it."""

    vlan: int
    network: str


@dataclass(frozen=True, slots=True)
class Trunk:
    """Networks that reach a NIC tagged where a cloud switches frames, beside that of its port
    without a tag: `network` and `mac` are that port's. `carries`: sorted.
    """

    network: str
    mac: str
    carries: tuple[Carried, ...]


@dataclass(frozen=True, slots=True)
class FloatingIp:
    """An address of an external network of a cloud that leads to a port. `network`: by name or id;
    `mac`: of the port, "" where it leads nowhere. `address`: as it is; `chosen`: as the file has
    it, "" for the cloud's choice. `router`: the cluster's by which it leads there, as the cloud has
    it, "" for another's.
    """

    network: str
    mac: str
    address: str = field(default="", compare=False)
    chosen: str = ""
    router: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Led:
    """A network that a router leads out of: as its link's bridge is called, and the range of its
    addresses ("10.77.0.0/24"), "" where the router has none of them.
    """

    network: str
    range: str


@dataclass(frozen=True, slots=True)
class Router:
    """What leads from networks that we made to one another, and to an external one of a cloud with
    the addresses of that. `name`: as the cloud has it; `networks`: sorted; `external`: by name or
    id.
    """

    name: str
    networks: tuple[Led, ...]
    external: str


RELAY = "relay"
"""Name of a relay, its port and its floating IP on their host. Those of nodes end in a number."""


@dataclass(frozen=True, slots=True)
class Relay:
    """A machine of a cloud by which guests reach this daemon's boot server. `image`, `flavor`: by
    name or id. `mac`: of its port; `address`: of that; `listens`: the TCP port there that leads to
    the boot server. `ssh`: the port of its sshd. `key`: changes with the keys by which it and the
    daemon know each other. `bmcs`: the network (CIDR) whose addresses BMCs have there, too, "" for
    none, and the port of their Redfish, 0 for none. `netboot`: it serves DHCP and TFTP there.
    """

    image: str
    flavor: str
    mac: str
    address: str
    listens: int
    ssh: int = 22
    key: str = field(default="", repr=False)
    zone: str = ""
    bmcs: str = ""
    redfish: int = 0
    netboot: bool = False


def relay_of(host: str) -> Key:
    """Names the relay of a host."""
    return Key(Kind.RELAY, host, RELAY)


@dataclass(frozen=True, slots=True)
class KeptRoot:
    """The root disk of a node as a snapshot keeps it, where that is an image of a cloud.
    `snapshot`: its name; `volume`: of which root, as the machine's shape calls it.
    """

    node: str
    snapshot: str
    volume: str


class Loader(StrEnum):
    """What firmware is given to start from the network."""

    IPXE = "ipxe"
    SHIM = "shim"
    """Signed shim and GRUB, for firmware that starts nothing else."""
    GRUB = "grub"
    """Signed GRUB alone: Debian has no iPXE for aarch64."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """One NIC's fixed addresses in a netboot service, and what its machine starts. `address` or
    `address6` may be "". `also`: MACs that the NIC has as well, until its machine is powered off.
    """

    mac: str
    address: str
    hostname: str
    uuid: UUID
    loader: Loader = Loader.IPXE
    address6: str = ""
    also: tuple[str, ...] = ()

    @property
    def macs(self) -> tuple[str, ...]:
        """All that are given these addresses."""
        return self.mac, *self.also


@dataclass(frozen=True, slots=True)
class NetbootService:
    """DHCP, TFTP and HTTP on one link. `range` is first and last address for strangers; two empty
    ones: they get none.

    `routed`: `address` is also the default route and the name server of those on it. `address6`,
    `range6`: the same in IPv6. Either address, and its range, may be "". `router`: the default
    route where that is a cloud's; then the relay of its host serves, and `address` is the relay's.
    """

    bridge: str
    address: str
    range: tuple[str, str]
    reservations: tuple[Reservation, ...]
    routed: bool = False
    address6: str = ""
    range6: tuple[str, str] = ("", "")
    router: str = ""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it serves, IPv4 first."""
        return tuple(str(ip_interface(each).ip) for each in (self.address, self.address6) if each)

    @property
    def host(self) -> str:
        """Where it serves, as it stands in a URL (RFC 3986 §3.2.2)."""
        (first, *_) = self.addresses
        return f"[{first}]" if ":" in first else first


OWN_FORMAT = "qcow2"
"""What volumes hold that we make."""


@dataclass(frozen=True, slots=True)
class ExistingVolume:
    """A volume of somebody else's in a storage pool of a host; `size` in bytes, `format` as libvirt
    sees it. `users`: UUID and name of the machines that have it as a disk. `managed`: it lies in a
    pool of nospoon's, and is some cluster's own.
    """

    size: int
    format: str
    users: tuple[tuple[UUID, str], ...] = ()
    managed: bool = False


@dataclass(frozen=True, slots=True)
class MachineDisk:
    """A disk as the machine sees it; `volume` names a Volume resource, or an `existing` one.

    `cache` and `discard` by libvirt's words. `rotation_rate` is SBC-3's MEDIUM ROTATION RATE:
    revolutions per minute; 1: nothing rotates; 0: the guest is not told. `size` in bytes, of one
    that comes and goes with its machine and is no volume; else 0. `mount`: where a container has
    it, "" for its root and for disks.
    """

    volume: str
    bus: str
    serial: str
    cache: str = "writeback"
    discard: str = "unmap"
    rotation_rate: int = 0
    format: str = OWN_FORMAT
    size: int = 0
    mount: str = ""

    @property
    def existing(self) -> bool:
        """Whether `volume` is POOL/VOLUME of somebody else's: no resource, and never ours."""
        return "/" in self.volume.strip("/")


@dataclass(frozen=True, slots=True)
class MachineNic:
    """A NIC as the machine sees it. `bridge` "" is user-mode networking (session hosts).

    `port`: name of its port on the bridge, the same at each start; "": the host's choice.
    `vlan`: id of the VLAN that it is in, untagged; `trunk`: of those that reach it tagged.
    `sends_from`: None: whatever it likes; else its own MAC and this IPv4 address alone, "": the
    first one that it uses. `virtual_ips`: besides that address, where one is given.
    """

    mac: str
    bridge: str
    model: str
    port: str = ""
    switch: Switch = Switch.BRIDGE
    vlan: int | None = None
    trunk: tuple[int, ...] = ()
    sends_from: str | None = None
    virtual_ips: tuple[str, ...] = ()

    @property
    def senders(self) -> tuple[str, ...]:
        """The addresses that a filter lets through, () for the first one that it sees."""
        return tuple(filter(None, (self.sends_from, *self.virtual_ips)))


@dataclass(frozen=True, slots=True)
class Ends:
    """What follows when a guest ends, in libvirt's words (formatdomain.html, "Events
    configuration"): a guest that reboots goes on, every other end is an end.
    """

    poweroff: str = "destroy"
    reboot: str = "restart"
    crash: str = "destroy"

    def __str__(self) -> str:
        return f"power-off: {self.poweroff}, reboot: {self.reboot}, crash: {self.crash}"


@dataclass(frozen=True, slots=True)
class Machine:
    """A virtual server's shape. `memory` in bytes; `pool` holds its disks.

    `boot_iso`: this machine boots our ISO, which asks the daemon what to do. `ipv6`: UEFI looks for
    network boot by IPv6, too. `ends`: what its connection does when the guest powers off, reboots
    and crashes, in libvirt's words. `autostart`: it starts with its host, which is its BMC's to
    decide. `unlinked`: MACs of NICs whose link somebody took down, now or from the next start on.
    `adopted`: the name that it has on its host, of one that somebody else made; else "".
    `flavor`: what its cloud calls its size, `zone`: where that runs it; "" elsewhere.
    `shelved`: its cloud shelves it when it is powered off.
    `seed`: digest of what cloud-init reads in it (`model.seed`), "" for nothing.
    """

    uuid: UUID
    cpus: int
    memory: int
    arch: Arch
    firmware: Firmware
    tpm: bool
    pool: str
    disks: tuple[MachineDisk, ...]
    nics: tuple[MachineNic, ...]
    boot_order: tuple[BootDevice, ...]
    boot_iso: bool = False
    ipv6: bool = False
    ends: Ends = Ends()
    autostart: bool = False
    unlinked: tuple[str, ...] = ()
    adopted: str = ""
    flavor: str = ""
    zone: str = ""
    kind: NodeKind = NodeKind.BAREMETAL
    seed: str = field(default="", repr=False)
    shelved: bool = False

    @property
    def parts(self) -> int:
        """How many a cloud may have written here, whose tags are anyone's."""
        of_nics = sum(len(each.trunk) + len(each.virtual_ips) for each in self.nics)
        own = (self.disks, self.nics, self.boot_order, self.unlinked)
        return sum(map(len, own)) + of_nics

    @property
    def serial_number(self) -> str:
        """SMBIOS serial number: derived, so that nobody can disagree about it; "" of a machine of
        others or of a cloud, which has what that gave it.
        """
        if self.adopted or self.flavor:
            return ""
        return f"NS{self.uuid.hex[:12].upper()}"


@dataclass(frozen=True, slots=True)
class Outlet:
    """The outlet that feeds a node: its number on a PDU, which answers SNMP at address and port.

    `v2c`: SNMP v1 and v2c as well as v3.
    """

    pdu: UUID
    name: str
    address: str
    port: int
    number: int
    v2c: bool = True


@dataclass(frozen=True, slots=True)
class Bmc:
    """A node's BMC. `uuid` is its machine's. `ipmi_port` 0: IPMI is not served, likewise Redfish.

    `pool`: the network (CIDR) from which it has an address of its own, "" when it shares one.
    `disk_sizes`: what its inventory tells of the machine's disks, in bytes, in their order.
    `tls`: Redfish is spoken over TLS. `certificate`: SHA-256 of that which the cluster file gives,
    "" for one of its own. `restore`: the power restore policy of the cluster file, None where that
    has none. `redfish_login` False: Redfish answers without a login.

    Credentials are not part of the shape: they live encrypted in the store, and
    `credentials_key` changes when they do (a digest, never the password).
    """

    uuid: UUID
    protocols: tuple[BmcProtocol, ...]
    address: str
    ipmi_port: int
    redfish_port: int
    username: str
    credentials_key: str = field(default="", repr=False)
    pool: str = ""
    outlet: Outlet | None = None
    disk_sizes: tuple[int, ...] = ()
    tls: bool = False
    certificate: str = ""
    restore: PowerPolicy | None = None
    redfish_login: bool = True

    @property
    def policy(self) -> PowerPolicy:
        """The power restore policy that it starts with. What a PDU's outlet feeds goes on with it,
        as drivers that switch machines by their PDUs expect.
        """
        fed = PowerPolicy.ALWAYS_ON if self.outlet is not None else PowerPolicy.PREVIOUS
        return self.restore or fed

    @property
    def ipmi(self) -> str:
        """Where IPMI answers, as host:port; "" when it is not served."""
        return _place(self.address, self.ipmi_port)

    @property
    def redfish(self) -> str:
        """Where Redfish answers, as host:port; "" when it is not served."""
        return _place(self.address, self.redfish_port)


@dataclass(frozen=True, slots=True)
class Secrets:
    """What a client needs to log in to a node's BMC and its PDU. `k_g` in hexadecimal digits; ""
    for what there is none of.
    """

    password: str = field(repr=False)
    k_g: str = field(default="", repr=False)
    pdu_secret: str = field(default="", repr=False)


def _place(address: str, port: int) -> str:
    """IPv6 addresses go in brackets (RFC 3986 §3.2.2)."""
    host = f"[{address}]" if ":" in address else address
    return f"{host}:{port}" if port else ""


InIronic = IronicNode | IronicPortgroup | IronicPort | IronicConnector | IronicTarget
"""Records of Ironic's, each with a UUID and settings."""
Enrolled = InIronic | IronicStanding | IronicDiscovery
InNova = NovaFlavor | NovaInventory
InCloud = BootImage | Port | Trunk | FloatingIp | Router | Relay | KeptRoot
OnHost = Pool | Image | Volume | Link | InCloud | NetbootService | Machine
Shape = OnHost | Bmc | Enrolled | InNova


def is_adopted(shape: Shape) -> bool:
    """Whether it is a machine that somebody else made."""
    return isinstance(shape, Machine) and bool(shape.adopted)


@dataclass(frozen=True, slots=True)
class Resource:
    """A desired resource and what must exist before it. `note` is written into its tag."""

    key: Key
    shape: Shape
    needs: tuple[Key, ...] = ()
    node: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """A resource as found. `running`: a change would disturb a guest.

    `fault` tells why the thing, though there, does not work (a failed machine, a dead process).
    `live`: what a running machine still has, where that is not yet `shape`; else None.
    """

    key: Key
    shape: Shape
    tag: OwnerTag
    running: bool = False
    fault: str = ""
    live: Shape | None = None
