"""Sections about a machine's hardware: what a flavor says of it, and a node may say differently."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from nospoon.clusterfile.bmcs import NodeBmcSection
from nospoon.clusterfile.fields import (
    MOUNT_PATTERN,
    SERIAL_PATTERN,
    Checksum,
    Mac,
    Memory,
    Name,
    NicAddress,
    Size,
    SshKey,
    UserData,
    VolumeName,
)
from nospoon.clusterfile.ironic import EnrolmentSection
from nospoon.clusterfile.section import (
    Flag,
    OneOrMore,
    Section,
    Text,
    Whole,
    few,
    listed,
    no_items,
)
from nospoon.model.boot import BootDevice
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.machine import PowerPolicy

MOST_NICS = 16


class DiskSection(Section):
    """A disk; a bare size such as `40GiB` is short for `{size: 40GiB}`."""

    size: Size | None = Field(None, description="Size with unit; default: the image's.")
    image: Text = Field(
        "",
        description="Image to start from: a path beside the file, a URL, or `store:NAME`, one that "
        "`nospoon image load` loaded. The root of a VM in a cloud may start from a snapshot: "
        "`snapshot:CLUSTER/NAME`; that of a VM or container in a cloud from an image that is "
        "there: `glance:NAME` or `glance:ID`.",
    )
    checksum: Checksum = Field(
        "",
        description="Of an image by URL: `sha256:…` or `sha512:…` in hexadecimal digits, or the "
        "URL of a list of them, such as SHA256SUMS. Verified when the image is fetched.",
    )
    volume: VolumeName = Field(
        "",
        description="In place of both, an existing volume, as `POOL/VOLUME` of libvirt's: never "
        "made, changed or deleted by nospoon. Only for the administrator of its daemon.",
    )
    format: Literal["raw", "qcow2"] = Field(
        "raw", description="What an existing `volume` holds; default raw."
    )
    bus: Literal["virtio", "sata", "scsi"] = Field("virtio", description="Bus it is attached to.")
    serial: Annotated[Text, Field(max_length=20, pattern=SERIAL_PATTERN)] = Field(
        "", description="Serial number that the guest sees; default: derived from the node."
    )
    rotational: Flag | None = Field(
        None,
        description="Report a spinning disk (7200 rpm) or one without moving parts to guest and "
        "BMC; for `bus: scsi` and `sata`. Default: nothing is reported.",
    )
    cache: Literal["none", "writeback", "writethrough", "directsync", "unsafe"] | None = Field(
        None,
        description="Cache of the host, by QEMU's names. `unsafe` ignores flushes: fastest, and "
        "lost when the host crashes. Default `writeback`; with `throwaway`, `unsafe`.",
    )
    discard: Literal["unmap", "ignore"] = Field(
        "unmap", description="What the guest discards is given back to the host, or not."
    )
    mount: Annotated[Text, Field(max_length=200, pattern=MOUNT_PATTERN)] = Field(
        "",
        description="Of a container: the directory at which it has this volume. An upgrade keeps "
        "what is in it; an empty one begins with what the image has there.",
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"size": value} if isinstance(value, str | int | float) else value

    @model_validator(mode="after")
    def _something(self) -> DiskSection:
        if self.volume and (self.size is not None or self.image):
            raise ValueError("an existing volume has its own size and content: drop size and image")
        if self.size is None and not self.image and not self.volume:
            raise ValueError("expected a size, an image or both, got neither")
        if self.checksum and not self.image.startswith(("http://", "https://")):
            raise ValueError("only an image by URL has a checksum: drop it")
        if self.format != "raw" and not self.volume:
            raise ValueError("only an existing volume has a format: drop it")
        return self

    @model_validator(mode="after")
    def _able_to_tell(self) -> DiskSection:
        """virtio-blk has no word for it (Virtual I/O Device 1.2, §5.2.4)."""
        if self.rotational is not None and self.bus == "virtio":
            raise ValueError(
                "a virtio disk cannot report whether it is rotational: Linux treats all of them "
                "as rotational. Write `bus: scsi` or `bus: sata`, or drop `rotational`"
            )
        return self


class NicSection(Section):
    """A NIC; a bare network name is short for `{network: NAME}`."""

    network: Name = Field(description="Network that it plugs into.")
    mac: Mac | None = Field(None, description="MAC address; default: derived from the node's UUID.")
    model: Literal["virtio", "e1000e", "e1000"] = Field(
        "virtio", description="What the guest sees."
    )
    trunk: list[Annotated[Whole, Field(ge=1, le=4094)]] = Field(
        default_factory=no_items,
        max_length=4094,
        description="VLANs that reach it tagged (needs `switch: ovs`; in a cloud, networks with "
        "these `vlan`).",
    )
    pxe: Flag | None = Field(
        None,
        description="Whether Ironic boots from it; default: if its network has network boot or "
        "is that of the first NIC.",
    )
    portgroup: Name | None = Field(None, description="Portgroup that it is a member of.")
    address: NicAddress | None = Field(
        None,
        description="Of a VM or container: `dhcp`, or an address of its own; default "
        "`dhcp`, and none on a network of nospoon's without `netboot`.",
    )
    floating_ip: Annotated[Text, Field(max_length=255)] = Field(
        "",
        description="In a cloud: an external network, by name or id; an address of it, a floating "
        "IP, leads to the NIC. Default: none.",
    )
    floating_address: IPv4Address | None = Field(
        None,
        description="Which address of `floating_ip`: one that the project has and that leads "
        "nowhere, or, with the right to choose, a free one. Default: the cloud's choice.",
    )

    @model_validator(mode="after")
    def _of_a_network(self) -> NicSection:
        if self.floating_address is not None and not self.floating_ip:
            raise ValueError("`floating_address` is of a network: name it as `floating_ip`")
        return self

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"network": value} if isinstance(value, str) else value


Option = Annotated[Text, Field(max_length=255)]


class PortgroupSection(Section):
    """NICs that make one bond, as Ironic's portgroups; `{}` takes every default.

    It describes to deployers what may be bonded. The NICs stay what they are, so any change of it
    is live.
    """

    mode: Literal[
        "balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb",
        "balance-alb",
    ] = Field("active-backup", description="Mode of the bond; default active-backup.")  # fmt: skip
    address: Mac | None = Field(
        None, description="MAC address of the bond; default: none of its own."
    )
    properties: Annotated[dict[str, Option | Whole], few(64)] = Field(
        default_factory=dict, description="Options of the bond, such as `miimon: 100`."
    )
    standalone_ports_supported: Flag = Field(
        default=True, description="Whether its NICs may be used without the bond; default yes."
    )


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
    tpm: Flag | None = Field(None, description="Give it a TPM 2.0; default no.")
    disks: list[DiskSection] | None = Field(
        None, max_length=24, description="Disks in order; default one of 10GiB."
    )
    nics: Annotated[list[NicSection], BeforeValidator(listed), OneOrMore()] | None = Field(
        None, max_length=MOST_NICS, description="NICs in order; default one on the first network."
    )
    portgroups: Annotated[dict[Name, PortgroupSection], few(MOST_NICS)] | None = Field(
        None, description="Bonds of NICs, by the name that the NICs' `portgroup` gives."
    )
    boot: Name | None = Field(None, description="Boot profile served when it boots from network.")
    boot_order: list[BootDevice] | None = Field(
        None,
        min_length=1,
        max_length=len(BootDevice),
        description="Persistent boot order of `disk`, `network`, `cdrom`; default disk, network.",
    )
    restore: PowerPolicy | None = Field(
        None,
        description="What the machine does when its host has rebooted, or its PDU outlet is on "
        "again: the power restore policy of its BMC, until a client sets another; default "
        "previous, with a PDU on.",
    )
    bmc: NodeBmcSection | None = Field(
        None,
        description="Protocols and credentials of its BMC; VMs and containers have none else.",
    )
    image: Text | None = Field(
        None,
        min_length=1,
        description="Of a VM or container: the image of its root, a path beside the file, a URL or "
        "`store:NAME`; "
        "short for `disks: [{image: …}]`.",
    )
    user_data: UserData | None = Field(
        None,
        description="Of a VM or container: user data of cloud-init, as text or `{file: PATH}`. "
        "`{{boot}}` is the URL of nospoon's boot server as the node reaches it.",
    )
    rollback: Flag | None = Field(
        None,
        description="Of a VM or container: where its image changes, its root is kept, so that the "
        "former image in the file brings it back, but for containers in a cloud; default yes.",
    )
    ssh_keys: Annotated[list[SshKey], BeforeValidator(listed), OneOrMore()] | None = Field(
        None,
        max_length=64,
        description="Of a VM or container: public keys of the image's default user.",
    )
    ironic: EnrolmentSection | None = Field(
        None, description="What is different for Ironic than the file's `ironic` says."
    )

    @property
    def all_disks(self) -> list[DiskSection] | None:
        """What it says of disks, of which `image` is short for the only one."""
        if self.disks is None and self.image:
            return [DiskSection(image=self.image)]
        return self.disks
