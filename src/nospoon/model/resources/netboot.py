"""The shape of network boot: DHCP, TFTP and HTTP on one link."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_interface
from uuid import UUID


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
