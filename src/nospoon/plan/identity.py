"""Names and identities, all derived, so that a second look finds the same ones.

A node's UUID is UUIDv5(cluster id, node name) (RFC 9562 §5.5). MACs are `02:` (locally
administered, unicast; IEEE 802 §8.4) and 40 bits of the node's UUID and the NIC's number.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from uuid import NAMESPACE_URL, UUID, uuid5

from nospoon.model.cluster import Node

COMMUNITY_BYTES = 15
BRIDGE_NAME_LENGTH = 15
"""IFNAMSIZ less the closing zero (Linux if.h)."""

UPKEEP = uuid5(NAMESPACE_URL, "nospoon:upkeep")
"""Stands for a cluster in operations on what belongs to none, so that they exclude each other."""
RESERVED = frozenset({UPKEEP, UUID(int=0), UUID(int=(1 << 128) - 1)})
"""Ids that no cluster may have: nospoon's own, and the nil and max UUIDs (RFC 9562 §5.9, §5.10)."""


def node_uuid(cluster: UUID, node: str) -> UUID:
    """The UUID of a node: also its domain's, SMBIOS's and Redfish's."""
    digest = hashlib.sha1(cluster.bytes + node.encode(), usedforsecurity=False).digest()
    return UUID(int=_MARKED | int.from_bytes(digest[:16]) & _FREE)  # in half the time of `uuid5`


_MARKED, _FREE = 0x5000_8000_0000_0000_0000, ~(0xF000_C000_0000_0000_0000)
"""Version 5 and the variant (RFC 9562 §4.1, §4.2), and all bits but theirs."""


def uuid_of(cluster: UUID, node: Node) -> UUID:
    """The UUID of a node of the file: an adopted one has that of its machine."""
    return node.adopted.uuid if node.adopted is not None else node_uuid(cluster, node.name)


def pdu_uuid(cluster: UUID, pdu: int) -> UUID:
    """The UUID of PDU number `pdu`; no node has a name with a slash."""
    return uuid5(cluster, f"pdu/{pdu}")


def snmp_community(secret: str) -> str:
    """The community of a PDU, of its secret: 100 bits that tell nothing of the pass phrases, for it
    goes over the wire in the clear (RFC 3584 §5.2). "" of none.
    """
    made = hmac.digest(secret.encode(), b"nospoon SNMP community", "sha256")[:COMMUNITY_BYTES]
    return base64.b32encode(made).decode().lower().rstrip("=") if secret else ""


def mac_address(node: UUID, nic: int) -> str:
    """The MAC of a node's NIC number `nic`, counted from 0."""
    digest = hashlib.sha256(node.bytes + nic.to_bytes(2)).digest()[:5]
    return (b"\x02" + digest).hex(":")


def port_name(node: UUID, nic: int) -> str:
    """Name of the port into which a node's NIC number `nic` plugs: at most 15 characters.

    libvirt keeps names that do not begin as its own do (vnet, macvtap …), so it is the same at
    each start (formatdomain.html, "Overriding the target element").
    """
    return f"ns{node.hex[:10]}-{nic}"


def switch_id(host: str, bridge: str) -> str:
    """The id of a host's bridge as a switch, in the form of a MAC: derived from their names, so
    that it is known before the bridge is there.
    """
    digest = hashlib.sha256(f"switch/{host}/{bridge}".encode()).digest()[:5]
    return (b"\x02" + digest).hex(":")


def bridge_name(cluster: UUID, network: str) -> str:
    """Name of the bridge of a network: short enough for Linux, the same each time."""
    digest = hashlib.sha256(cluster.bytes + network.encode()).hexdigest()[:6]
    return f"ns{digest}-{network}"[:BRIDGE_NAME_LENGTH].rstrip("-")


def made_for_a_cluster(bridge: str) -> bool:
    """Whether a bridge has a name of `bridge_name`, of whichever cluster and deployment."""
    return _OWN_BRIDGE.match(bridge) is not None


_OWN_BRIDGE = re.compile(r"ns[0-9a-f]{6}-")


def network_identifier(cluster: UUID, network: str) -> int:
    """The VXLAN network identifier of a network: 24 bits, never 0 (RFC 7348 §5)."""
    digest = hashlib.sha256(cluster.bytes + b"vxlan" + network.encode()).digest()
    return int.from_bytes(digest[:3]) or 1


def physnet_bridge(interface: str) -> str:
    """Name of the bridge that `host setup` makes for an interface of a physical network."""
    return f"nsbr-{interface}"[:BRIDGE_NAME_LENGTH]


def pool_name(cluster: UUID, name: str) -> str:
    """Name of a cluster's pool: no one else's, also when two users' clusters share a name."""
    return f"nospoon-{name}-{cluster.hex[:8]}"


def pool_end(socket: str) -> str:
    """What the directory of a pool ends in, by the socket that its host names: a libvirtd with one
    of its own may be beside another, and have the same file system.
    """
    return f"-{hashlib.sha256(socket.encode()).hexdigest()[:8]}" if socket else ""


def cluster_of_pool(pool: str) -> str:
    """The cluster's name in that of its pool; "" when it is no such name."""
    name = pool.removeprefix("nospoon-").rpartition("-")[0]
    return name if pool.startswith("nospoon-") else ""


def domain_name(cluster: UUID, name: str, node: str) -> str:
    """Name under which a hypervisor lists the machine."""
    return f"{name}-{cluster.hex[:8]}-{node}"


def disk_serial(node: UUID, disk: int) -> str:
    """Serial number of a disk; 20 characters at most, as virtio-blk carries no more."""
    return f"NS{node.hex[:12]}-{disk}"


def part_uuid(node: UUID, part: str) -> UUID:
    """Of a port (`port-0`) or portgroup of a node in Ironic."""
    return uuid5(node, part)
