"""Shapes of networks: links of hosts, and ports, trunks, floating IPs and routers of clouds."""

from __future__ import annotations

from dataclasses import dataclass, field


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
    """An L2 network that nospoon makes. `name`: as its host or cloud has it; on Linux, that of its
    bridge. `address` is the host's on it.

    `address` and `address6` in CIDR form ("172.30.0.1/24"), "" when the host has none there. `nat`:
    the host leads out of it by network address translation (RFC 3022); else it is isolated.
    `tunnel` leads to the same network on other hosts. `host_ports`: ports at the host's addresses
    that guests reach besides DHCP, TFTP and ICMP, and nothing else of the host; None: all of it.
    `provider`: the physical network of a cloud in which it is the VLAN `vlan`; "" and None for one
    that the cloud places. `segment`: of which other type it is there, "" for the cloud's choice,
    `segment_id`: of a tunnel, None for the cloud's choice. `spared`: a network (CIDR) of which the
    cloud gives no address.
    `relayed`: a relay serves DHCP there, and the cloud none; `silent`: neither serves it;
    `nameservers`: that are asked there.
    """

    name: str
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
    segment: str = ""
    segment_id: int | None = None
    silent: bool = False


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
    """A network that a router leads out of: by its link's name, and the range of its
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
