"""The cluster file's sections as pydantic models: the one source of checks, schema and reference.

Field descriptions are the reference documentation (docs/reference/file.md is made from them).
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    Tag,
    model_validator,
)
from pydantic_core import CoreSchema

from nospoon.model.boot import BootDevice
from nospoon.model.cluster import Arch, BmcProtocol, Firmware, Netboot, Overlay, Strategy, Switch
from nospoon.spec.fields import (
    Mac,
    Memory,
    Name,
    Networks,
    Ports,
    Size,
    parse_address,
    parse_url,
)
from nospoon.spec.ironic import EnrolmentSection, IronicSection
from nospoon.spec.nova import NovaSection
from nospoon.spec.section import Section, Text, Whole, parse_text
from nospoon.spec.simulated import OrSwitch, SimulatedSection, switched


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class _OneOrMore:
    """JSON Schema of a list for which its only item may stand alone."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        listed = handler(core)
        return {"anyOf": [listed["items"], listed]}


def _account_name(value: Any) -> Any:
    """IPMI 2.0 §22.28: 16 bytes; RFC 7617 §2: no colon."""
    if not isinstance(value, str) or not 1 <= len(value.encode()) <= 16 or ":" in value:
        raise ValueError(f"expected a user name of 1 to 16 bytes without colons, got {value!r}")
    return value


def _password(value: Any) -> Any:
    """IPMI 2.0 §22.30: 20 bytes. The message does not repeat it."""
    if not isinstance(value, str) or not 1 <= len(value.encode()) <= 20:
        raise ValueError("expected a password of 1 to 20 bytes, as text. Put it in quotes")
    return value


def _key(value: Any) -> Any:
    """IPMI 2.0 §13.31: 20 bytes, here in hexadecimal digits. The message does not repeat it."""
    digits = value.lower() if isinstance(value, str) else ""
    if not 1 <= len(digits) <= 40 or len(digits) % 2 or not set(digits) <= set("0123456789abcdef"):
        raise ValueError(
            "expected a key of 1 to 20 bytes, two hexadecimal digits each. Put it in quotes"
        )
    return digits.ljust(40, "0")


def _pass_phrase(value: Any) -> Any:
    """RFC 3414 §11.2: at least 8 bytes. The message does not repeat it."""
    if not isinstance(value, str) or not 8 <= len(value.encode()) <= 64:
        raise ValueError("expected a secret of 8 to 64 bytes, as text. Put it in quotes")
    return value


_ENDS_A_COMMAND = frozenset({"||", "&&", ";", "#"})


def _command_line(value: Any) -> Any:
    """Words that no kernel takes, and that iPXE would take for its own (ipxe.org/scripting)."""
    found = sorted(_ENDS_A_COMMAND & set(parse_text(value).split()))
    if found:
        raise ValueError(f"expected a kernel command line, got the word {found[0]!r}")
    return value


CommandLine = Annotated[str, BeforeValidator(_command_line)]
AccountName = Annotated[str, BeforeValidator(_account_name)]
Password = Annotated[str, BeforeValidator(_password)]
Key = Annotated[str, BeforeValidator(_key)]
PassPhrase = Annotated[str, BeforeValidator(_pass_phrase)]


Ratio = Annotated[float, Field(gt=0, le=1000)]


class OvercommitSection(Section):
    """How often what a host has may be given away: machines that are off use nothing of it."""

    cpus: Ratio = Field(32.0, description="Virtual CPUs a CPU of the host; default 32.")
    memory: Ratio = Field(1.5, description="Times the host's memory; default 1.5.")
    disk: Ratio = Field(10.0, description="Times the free space for pools; default 10.")


class HostSection(Section):
    """A place where machines are made."""

    libvirt: Text | None = Field(
        None,
        description="libvirt connection URI: `qemu:///system`, `qemu:///session`, "
        "`qemu+ssh://HOST/system`.",
    )
    simulated: Annotated[SimulatedSection | None, BeforeValidator(switched), OrSwitch()] = Field(
        None, description="Machines without processes, inside the daemon, and how they behave."
    )
    ssh: Text = Field(
        "", description="How commands are run there, as ssh(1) takes it; empty: here."
    )
    physnets: dict[Name, Text] = Field(
        default_factory=dict,
        description="Physical network name -> bridge of this host, or an interface that is in one.",
    )
    address: Annotated[IPv4Address | IPv6Address, BeforeValidator(parse_address)] | None = Field(
        None,
        description="Address by which the other hosts reach this one, for networks with `overlay`; "
        "default: that in `ssh`.",
    )
    drained: bool = Field(
        default=False, description="Place nothing new here; what is here stays. Default no."
    )
    overcommit: OvercommitSection = Field(
        default_factory=OvercommitSection, description="How often its resources are given away."
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
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
        description="`builtin`: nospoon answers DHCP, TFTP and HTTP; `none` (default): somebody "
        "else does.",
    )
    physnet: Text = Field("", description="Plug into the bridge that each host maps to this name.")
    bridge: Text = Field("", description="Plug into this existing bridge on every host.")
    vlan: Annotated[Whole, Field(ge=1, le=4094)] | None = Field(
        None,
        description="VLAN id on the physical network (needs `switch: ovs`); default none.",
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
    nat: bool = Field(
        default=False,
        description="Lead out: guests reach what the host reaches, from its address; default no.",
    )

    @property
    def ipv4(self) -> IPv4Network | None:
        return next((each for each in self.cidr if isinstance(each, IPv4Network)), None)

    @property
    def ipv6(self) -> IPv6Network | None:
        return next((each for each in self.cidr if isinstance(each, IPv6Network)), None)


class DiskSection(Section):
    """A disk; a bare size such as `40GiB` is short for `{size: 40GiB}`."""

    size: Size | None = Field(None, description="Size with unit; default: the image's.")
    image: Text = Field("", description="Image to start from: a path beside the file, or a URL.")
    bus: Literal["virtio", "sata", "scsi"] = Field("virtio", description="Bus it is attached to.")
    serial: Annotated[Text, Field(max_length=20)] = Field(
        "", description="Serial number that the guest sees; default: derived from the node."
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"size": value} if isinstance(value, str | int | float) else value

    @model_validator(mode="after")
    def _something(self) -> DiskSection:
        if self.size is None and not self.image:
            raise ValueError("expected a size, an image or both, got neither")
        return self


class NicSection(Section):
    """A NIC; a bare network name is short for `{network: NAME}`."""

    network: Name = Field(description="Network that it plugs into.")
    mac: Mac | None = Field(None, description="MAC address; default: derived from the node's UUID.")
    model: Literal["virtio", "e1000e", "e1000"] = Field(
        "virtio", description="What the guest sees."
    )
    trunk: list[Annotated[Whole, Field(ge=1, le=4094)]] = Field(
        default_factory=list, description="VLANs that reach it tagged (needs `switch: ovs`)."
    )
    pxe: bool | None = Field(
        None,
        description="Whether Ironic boots from it; default: if its network has network boot or "
        "is that of the first NIC.",
    )
    portgroup: Name | None = Field(None, description="Portgroup that it is a member of.")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"network": value} if isinstance(value, str) else value


class PortgroupSection(Section):
    """NICs that make one bond, as Ironic's portgroups; `{}` takes every default.

    It tells deployers what may be bonded. The NICs stay what they are, so any change of it is live.
    """

    mode: Literal[
        "balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb",
        "balance-alb",
    ] = Field("active-backup", description="Mode of the bond; default active-backup.")  # fmt: skip
    address: Mac | None = Field(
        None, description="MAC address of the bond; default: none of its own."
    )
    properties: dict[str, Text | Whole] = Field(
        default_factory=dict, description="Options of the bond, such as `miimon: 100`."
    )
    standalone_ports_supported: bool = Field(
        default=True, description="Whether its NICs may be used without the bond; default yes."
    )


class NodeBmcSection(Section):
    """A node's BMC; a bare list of protocols is short for `{protocols: [...]}`."""

    protocols: Annotated[list[BmcProtocol], BeforeValidator(_listed), _OneOrMore()] | None = Field(
        None,
        description="What it speaks: `ipmi`, `redfish`; `pdu`: an outlet feeds it; "
        "default: the first two.",
    )
    username: AccountName | None = Field(
        None, description="Fixed user name; default: the cluster's."
    )
    password: Password | None = Field(
        None, description="Fixed password; default: random, per node."
    )
    k_g: Key | None = Field(
        None,
        description="Key of the BMC for IPMI (K_G), in hexadecimal digits; default: the cluster's.",
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"protocols": value} if isinstance(value, list | str) else value


class HardwareSection(Section):
    """What a flavor says of a machine, and a node may say differently."""

    cpus: Annotated[Whole, Field(ge=1, le=512)] | None = Field(
        None, description="Number of CPUs; default 1."
    )
    memory: Memory | None = Field(
        None, description="Memory with unit, whole mebibytes; default 1GiB."
    )
    arch: Arch | None = Field(None, description="Processor architecture; default x86_64.")
    firmware: Firmware | None = Field(
        None, description="`bios`, `uefi` or `uefi-secure`; default uefi."
    )
    tpm: bool | None = Field(None, description="Give it a TPM 2.0; default no.")
    disks: list[DiskSection] | None = Field(
        None, max_length=24, description="Disks in order; default one of 10GiB."
    )
    nics: Annotated[list[NicSection], BeforeValidator(_listed), _OneOrMore()] | None = Field(
        None, max_length=16, description="NICs in order; default one on the first network."
    )
    portgroups: dict[Name, PortgroupSection] | None = Field(
        None, description="Bonds of NICs, by the name that the NICs' `portgroup` gives."
    )
    boot: Name | None = Field(None, description="Boot profile served when it boots from network.")
    boot_order: list[BootDevice] | None = Field(
        None,
        min_length=1,
        description="Persistent boot order of `disk`, `network`, `cdrom`; default disk, network.",
    )
    bmc: NodeBmcSection | None = Field(None, description="Protocols and credentials of its BMC.")
    ironic: EnrolmentSection | None = Field(
        None, description="What is different for Ironic than the file's `ironic` says."
    )


class FlavorSection(HardwareSection):
    """A kind of node."""

    kind: Literal["baremetal"] = Field("baremetal", description="Kind of node.")


class NodeSection(HardwareSection):
    """What may be said of one node by name, under `overrides`."""

    host: Name | None = Field(None, description="Host that it is made on; default: one that fits.")
    traits: list[Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")]] | None = Field(
        None, description="Traits such as CUSTOM_GOLD."
    )
    labels: dict[str, Text] | None = Field(None, description="Free key-value labels.")


class PlacementSection(Section):
    """How nodes find their hosts; a bare strategy is short for `{strategy: NAME}`."""

    strategy: Strategy = Field(
        Strategy.SPREAD,
        description="`spread` (fewest nodes; default), `balance` (least used) or `pack` (most "
        "used that has room).",
    )
    affinity: Annotated[list[Name], BeforeValidator(_listed), _OneOrMore()] = Field(
        default_factory=list,
        description="Keys, `flavor` or a label's: nodes of equal value share a host.",
    )
    anti_affinity: Annotated[list[Name], BeforeValidator(_listed), _OneOrMore()] = Field(
        default_factory=list,
        description="Keys, `flavor` or a label's: no two nodes of equal value share a host.",
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"strategy": value} if isinstance(value, str) else value


class NodeGroupSection(NodeSection):
    """Nodes that are alike."""

    flavor: Name | None = Field(None, description="Flavor; may be left out where only one fits.")
    count: Annotated[Whole, Field(ge=0, le=100_000)] = Field(1, description="How many.")
    name: Text = Field("node-{n}", description="Name; `{n}` counts from `start`, `{n:03}` pads.")
    start: Annotated[Whole, Field(ge=0)] = Field(0, description="First number in names.")
    placement: PlacementSection = Field(
        default_factory=PlacementSection, description="How its nodes find their hosts."
    )
    overrides: dict[Name, NodeSection] = Field(
        default_factory=dict, description="Node name -> what is different for that node."
    )


class BootProfileSection(Section):
    """What the network boots."""

    kernel: Text | None = Field(None, description="Kernel: a path beside the file, or an http URL.")
    script: Annotated[Text, BeforeValidator(parse_url)] | None = Field(
        None, description="In place of a kernel: URL of an iPXE script, such as Ironic's boot.ipxe."
    )
    initrd: Annotated[list[Text], BeforeValidator(_listed), _OneOrMore()] = Field(
        default_factory=list, description="Initial ramdisk, or a list of them: paths or URLs."
    )
    cmdline: CommandLine = Field(
        "",
        description="Kernel command line. iPXE fills in `${uuid}` and its other settings.",
    )


class PduSection(Section):
    """PDUs that feed the nodes whose `bmc` has `pdu`."""

    vendor: Literal["apc"] = Field("apc", description="Whose SNMP objects they have.")
    outlets: Annotated[Whole, Field(ge=1, le=255)] = Field(
        24, description="Outlets of a PDU, one a node."
    )
    ports: Ports = Field(
        (16230, 17229),
        description="SNMP ports, one a PDU; with `pool`, port 161 of its first addresses instead.",
    )
    secret: PassPhrase | None = Field(
        None,
        description="Community of SNMP v1 and v2c, both pass phrases of v3; default: one a PDU.",
    )


class TlsSection(Section):
    """A certificate of yours for Redfish, in place of those that sign themselves."""

    certificate: Text = Field(
        description="Certificate in PEM, or a chain with its own first: a path beside the file."
    )
    key: Text = Field(description="Its key in PEM, without a pass phrase: a path beside the file.")


def _tls_form(value: Any) -> str:
    return "given" if isinstance(value, dict | TlsSection) else "own"


Tls = Annotated[
    Annotated[bool, Tag("own")] | Annotated[TlsSection, Tag("given")], Discriminator(_tls_form)
]
"""Whether, with certificates of its own, or by one that is given; yes and no are short for it."""


class BmcSection(Section):
    """Where BMCs answer, and who may log in."""

    address: Annotated[IPv4Address | IPv6Address, BeforeValidator(parse_address)] = Field(
        IPv4Address("127.0.0.1"),
        description="Address on which all BMCs answer, a port each; IPv4 or IPv6.",
    )
    ports: Ports = Field((6230, 16229), description="IPMI ports, one a node (`6230-6330`).")
    redfish_port: Annotated[Whole, Field(ge=1, le=65535)] = Field(
        8000, description="TCP port of the Redfish service for all nodes."
    )
    tls: Tls = Field(
        default=False,
        description="Redfish over TLS: true, with a certificate of its own for each address, or a "
        "certificate and its key; default no.",
    )
    pool: Annotated[IPv4Network, BeforeValidator(parse_text)] | None = Field(
        None, description="An address a node from this network, IPMI on port 623 of each."
    )
    username: AccountName = Field(
        "admin", description="User name for all nodes (IPMI: at most 16 characters)."
    )
    password: Password | None = Field(
        None, description="Password for all nodes; default: random, one a node."
    )
    k_g: Key | None = Field(
        None, description="Key of all BMCs for IPMI (K_G), in hexadecimal digits; default: none."
    )
    pdu: PduSection = Field(
        default_factory=PduSection, description="PDUs of nodes whose `bmc` has `pdu`."
    )


class ClusterFile(Section):
    """A cluster file. `cluster` and `nodes` are enough."""

    cluster: Name = Field(description="Name of the cluster.")
    id: Text | None = Field(
        None, description="Pin the cluster's UUID; default: random, remembered."
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
        None, description="Enrol the nodes in an Ironic; default: they are not."
    )
    nova: NovaSection | None = Field(
        None, description="Flavors in the Nova of that Ironic's cloud; default: none."
    )
    nodes: list[NodeGroupSection] = Field(description="Groups of nodes.")
