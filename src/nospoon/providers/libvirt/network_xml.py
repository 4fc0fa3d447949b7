"""Links as libvirt networks: an isolated bridge, without DHCP and without DNS.

https://libvirt.org/formatnetwork.html. Without `<forward>` libvirt rejects traffic from and to
other networks by its firewall rules; the host itself is reached on its address. With
`<forward mode='nat'/>` those rules translate addresses: libvirt makes them with the network, in
chains of its own, again when the firewall is loaded again, and takes them away. libvirt's own
dnsmasq is not started: a network without `<dhcp>` and with `<dns enable='no'/>` has none.
"""

from __future__ import annotations

from ipaddress import ip_interface
from xml.etree import ElementTree as ET

from nospoon.model.resources.networks import Link, Tunnel
from nospoon.providers.libvirt.elements import attribute_of, element, leaf, text_of, written
from nospoon.providers.libvirt.owner import NAMESPACE, OWNER, Owner, owner_element

DEFAULT_MTU = 1500


def render_network(link: Link, owner: Owner, *, uuid: str = "") -> str:
    """The XML of a network, which is named as its bridge. `uuid`: of one that runs on."""
    return written(
        element(
            "network",
            leaf("name", link.name),
            leaf("uuid", uuid) if uuid else None,
            element("metadata", _tagged(owner, link)),
            _forward(link),
            element("bridge", name=link.name, stp="off", delay="0"),
            element("mtu", size=str(link.mtu)) if link.mtu != DEFAULT_MTU else None,
            element("dns", enable="no"),
            *(_address(each) for each in (link.address, link.address6) if each),
        )
    )


def _forward(link: Link) -> ET.Element | None:
    """formatnetwork.html, "Connectivity": without a word of it, NAT is of IPv4 only."""
    if not link.nat:
        return None
    return element("forward", element("nat", ipv6="yes") if link.address6 else None, mode="nat")


GUARD = f"{{{NAMESPACE}}}guard"
TUNNEL = f"{{{NAMESPACE}}}tunnel"


def _tagged(owner: Owner, link: Link) -> ET.Element:
    """libvirt knows no tunnels and no such rules, and keeps one element of a namespace: ours holds
    them.
    """
    tag, tunnel = owner_element(owner), link.tunnel
    if link.host_ports is not None:
        ET.SubElement(tag, GUARD, ports=" ".join(map(str, link.host_ports)))
    if tunnel is not None:
        peers = " ".join(tunnel.peers)
        ET.SubElement(tag, TUNNEL, vni=str(tunnel.vni), local=tunnel.local, peers=peers)
    return tag


def _parsed_tunnel(root: ET.Element) -> Tunnel | None:
    found = root.find(f"./metadata/{OWNER}/{TUNNEL}")
    if found is None:
        return None
    peers = tuple(found.get("peers", "").split())
    return Tunnel(int(found.get("vni", "0")), found.get("local", ""), peers)


def _parsed_guard(root: ET.Element) -> tuple[int, ...] | None:
    found = root.find(f"./metadata/{OWNER}/{GUARD}")
    return tuple(map(int, found.get("ports", "").split())) if found is not None else None


def _address(address: str) -> ET.Element:
    parsed = ip_interface(address)
    family = "ipv6" if parsed.version == 6 else "ipv4"
    return element(
        "ip", family=family, address=str(parsed.ip), prefix=str(parsed.network.prefixlen)
    )


def parse_network(root: ET.Element) -> Link:
    """The shape of a network as it is. What we never write shows as a bridge named otherwise."""
    bridge = attribute_of(root, "bridge", "name") or text_of(root, "name")
    return Link(
        name=bridge if _plain(root) else f"{bridge} (edited)",
        address=_parsed_address(_ip_of(root, "ipv4")),
        address6=_parsed_address(_ip_of(root, "ipv6")),
        mtu=int(attribute_of(root, "mtu", "size", str(DEFAULT_MTU))),
        nat=attribute_of(root, "forward", "mode") == "nat",
        tunnel=_parsed_tunnel(root),
        host_ports=_parsed_guard(root),
    )


def _plain(root: ET.Element) -> bool:
    """Whether no one added forwarding or a DHCP service that would answer in our stead."""
    forward = root.find("forward")
    ours = forward is None or (forward.get("mode") == "nat" and forward.get("dev") is None)
    return ours and root.find("ip/dhcp") is None


def _ip_of(root: ET.Element, family: str) -> ET.Element | None:
    """The first of a family; those without a word of it are of IPv4."""
    return next((ip for ip in root.iterfind("ip") if ip.get("family", "ipv4") == family), None)


def _parsed_address(ip: ET.Element | None) -> str:
    if ip is None:
        return ""
    address, mask = ip.get("address", ""), ip.get("prefix") or ip.get("netmask")
    return str(ip_interface(f"{address}/{mask}")) if mask else address
