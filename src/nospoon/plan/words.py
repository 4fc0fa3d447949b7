"""Shapes and their fields in words, for plans and drift."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nospoon.errors import MOST_REASONS
from nospoon.model.images import is_former_root
from nospoon.model.ironic import (
    IronicConnector,
    IronicDiscovery,
    IronicNode,
    IronicPort,
    IronicPortgroup,
    IronicStanding,
    IronicTarget,
    Settings,
)
from nospoon.model.node_kind import NodeKind
from nospoon.model.nova import NovaFlavor, NovaInventory
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.groups import ServerGroup
from nospoon.model.resources.key_pairs import THEIRS, KeyPair
from nospoon.model.resources.machines import Machine, MachineDisk, MachineNic
from nospoon.model.resources.netboot import NetbootService, Reservation
from nospoon.model.resources.networks import Carried, FloatingIp, Link, Port, Router, Trunk, Tunnel
from nospoon.model.resources.relays import Relay
from nospoon.model.resources.resource import Enrolled, InCloud, Shape
from nospoon.model.resources.storage import OWN_FORMAT, BootImage, Image, KeptRoot, Pool, Volume
from nospoon.model.sizes import size

HIDDEN = "…"
"""Stands for a value that is no one's business."""
_ACCOUNT = re.compile(r"(?<=://)[^/@\s]*@")

LONGEST_TEXT = 1000
"""Characters of a value that a plan shows."""
BYTES = frozenset({"size", "memory", "virtual_size", "disk_sizes"})
"""Fields that count bytes."""


LISTED = MachineDisk | MachineNic | Reservation | Carried
"""What comes in long lists."""


def hidden(text: str) -> str:
    """A text in which URLs have no accounts any more (RFC 3986 §3.2.1)."""
    return _ACCOUNT.sub(f"{HIDDEN}@", text)


def brief(text: str) -> str:
    """The beginning of a long one: what an Ironic has may be 256 MiB."""
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}… ({len(text)} characters)"


def both_texts(name: str, before: object, after: object) -> tuple[str, str]:
    """A field that differs, as it was and as it is to be; of long lists only what differs."""
    if isinstance(before, tuple) and isinstance(after, tuple):
        left = tuple(each for each in before if each not in after)
        new = tuple(each for each in after if each not in before)
        if (left or new) and all(isinstance(each, LISTED) for each in (*before, *after)):
            before, after = left, new
    return brief(field_text(name, before)), brief(field_text(name, after))


def field_text(name: str, value: object) -> str:
    """A field's value, short."""
    match value:
        case 0 if name.endswith("_port"):
            return "none"
        case int() if name in BYTES:
            return size(value)
        case () | "" | None:
            return "none"
        case dict():
            inner = ", ".join(f"{key}: {each}" for key, each in value.items())
            return f"{{{inner}}}" if value else "none"
        case tuple():
            return "[" + ", ".join(field_text(name, item) for item in value) + "]"
        case MachineDisk() | MachineNic() | Tunnel() | Reservation():
            return _part_text(value)
        case Carried():
            return carried(value)
        case bool():
            return "yes" if value else "no"
        case _:
            return str(value)


def _part_text(part: MachineDisk | MachineNic | Tunnel | Reservation) -> str:
    match part:
        case MachineDisk():
            what = "" if part.format == OWN_FORMAT else f" ({part.format})"
            access = f"cache {part.cache}, discard {part.discard}{_rotation(part.rotation_rate)}"
            if part.mount:
                return f"{part.volume} at {part.mount}"
            return f"{part.volume}{what} on {part.bus}, serial {part.serial}, {access}"
        case MachineNic():
            port = f" port {part.port}" if part.port else ""
            vlan = f" VLAN {part.vlan}" if part.vlan is not None else ""
            trunk = f" trunk {field_text('trunk', part.trunk)}" if part.trunk else ""
            place = f"{part.network or 'user-mode network'}{port}{vlan}{trunk}"
            return f"{part.mac} on {place}, {part.model}{_sender(part)}"
        case Tunnel():
            return f"VNI {part.vni} from {part.local} to {', '.join(part.peers) or 'nobody'}"
        case Reservation():
            where = " ".join(filter(None, (part.address, part.address6)))
            macs = " and ".join(part.macs)
            return f"{part.hostname} {macs} {where} by {part.loader}"


def _sender(nic: MachineNic) -> str:
    if nic.sends_from is None:
        return ""
    return f", sends only from {' and '.join(nic.senders) or 'its first address'}"


def _rotation(rate: int) -> str:
    return {0: "", 1: ", not rotational"}.get(rate, f", {rate} rpm")


def describe(shape: Shape) -> str:
    """A shape in a few words."""
    match shape:
        case NovaFlavor():
            return counted(len(shape.settings), "extra spec")
        case NovaInventory():
            return f"{counted(len(shape.nodes), 'node')} in Placement, as {shape.resource_class}"
        case Pool(path=path):
            return path
        case Image():
            return f"{shape.format}, {size(shape.virtual_size)}"
        case Volume():
            return size(shape.size) + (f" from {shape.image}" if shape.image else "")
        case Link():
            return " ".join(
                filter(
                    None,
                    (
                        f"bridge {shape.name}",
                        _segment(shape),
                        shape.address,
                        shape.address6,
                        _nat(shape),
                    ),
                )
            )
        case NetbootService():
            by = " by the relay" if shape.router else ""
            return f"DHCP, TFTP and HTTP{by} for {counted(len(shape.reservations), 'NIC')}"
        case Machine():
            is_container = shape.kind is NodeKind.CONTAINER  # with its host's kernel
            return (
                ("" if shape.kind is NodeKind.BAREMETAL else f"{shape.kind}, ")
                + f"{counted(shape.cpus, 'CPU')}, {size(shape.memory)}, "
                + ("" if is_container else f"{shape.firmware}, {shape.arch}, ")
                + f"{counted(len(shape.disks), 'disk')}, {counted(len(shape.nics), 'NIC')}"
                + (f", flavor {shape.flavor}" if shape.flavor else "")
                + (f", group {shape.group}" if shape.group else "")
                + (f", key pair {shape.key_pair.removeprefix(THEIRS)}" if shape.key_pair else "")
            )
        case Bmc():
            ipmi = f"ipmi {shape.ipmi}" if shape.ipmi else ""
            redfish = f"redfish {shape.redfish}" if shape.redfish else ""
            place = shape.outlet
            pdu = f"outlet {place.number} of {place.name}" if place is not None else ""
            return ", ".join(filter(None, (ipmi, redfish, pdu))) or "by the API only"
        case _:
            return _in_cloud(shape)


def _in_cloud(shape: InCloud | Enrolled) -> str:
    match shape:
        case Router():
            return f"from {listed([each.network for each in shape.networks])} to {shape.external}"
        case Relay():
            answers = f"answers at {shape.address}, TCP port {shape.listens}"
            return f"flavor {shape.flavor} from {shape.image}, {answers}"
        case FloatingIp():
            return f"{shape.address or 'an address'} of {shape.network} to {shape.mac}"
        case ServerGroup(policy=policy, most=most):
            return f"{policy}, {most} on a compute host" if most else str(policy)
        case KeyPair(public_key=public_key):
            return f"{public_key.partition(' ')[0]} …{public_key[-8:]}"
        case KeptRoot():
            where = "" if is_former_root(shape.snapshot) else "in snapshot "
            return f"root of {shape.node}, {where}{shape.snapshot}"
        case BootImage():
            return f"for {shape.firmware}, asks at {shape.url}"
        case Port():
            also = f" with {' and '.join(shape.virtual_ips)}" if shape.virtual_ips else ""
            guarded = f", guarded{also}" if shape.guarded else ""
            vlan = f" as VLAN {shape.vlan}" if shape.vlan is not None else ""
            return f"{shape.mac} on {shape.network}{vlan}{guarded}"
        case Trunk():
            return f"{listed([carried(each) for each in shape.carries])} to {shape.mac}"
        case _:
            return _enrolled(shape)


def _enrolled(shape: Enrolled) -> str:
    match shape:
        case IronicNode():
            return f"driver {_setting(shape.settings, 'driver')}"
        case IronicPort() | IronicPortgroup():
            return _setting(shape.settings, "address")
        case IronicConnector():
            return _setting(shape.settings, "connector_id")
        case IronicTarget():
            return _setting(shape.settings, "volume_id")
        case IronicStanding():
            image = _setting(shape.settings, "image_source")
            return f"{shape.state} with {image}" if image else shape.state
        case IronicDiscovery():
            return "started from the network, for Ironic to find it"


def _setting(settings: Settings, name: str) -> str:
    return next((each.value.strip('"') for each in settings if each.name == name), "")


def carried(part: Carried) -> str:
    return f"VLAN {part.vlan} of {part.network}"


def _segment(link: Link) -> str:
    if link.segment:
        id_ = f" {link.segment_id}" if link.segment_id is not None else ""
        return f"{link.segment}{id_}{f' of {link.provider}' if link.provider else ''}"
    return f"VLAN {link.vlan} of {link.provider}" if link.provider else ""


def _nat(link: Link) -> str:
    nat = f"with NAT{', without DHCP' if link.silent else ''}" if link.nat else ""
    tunnel = link.tunnel
    if tunnel is None:
        return nat
    led = f"VXLAN {tunnel.vni} to {counted(len(tunnel.peers), 'host')}"
    return " ".join(filter(None, (nat, led)))


MENTIONED = 4
"""Names that are told one by one; more would not be read."""


def listed(names: Sequence[str]) -> str:
    """'a, b, c, d and 3 more'."""
    shown = ", ".join(names[:MENTIONED])
    return shown if len(names) <= MENTIONED else f"{shown} and {len(names) - MENTIONED} more"


class Lines:
    """The first of many texts, and how many more there were: each of 20,000 machines may be a
    reason of each of as many lines of a file.
    """

    def __init__(self) -> None:
        self._first: list[str] = []
        self._more = 0

    def add(self, text: str) -> None:
        if len(self._first) < MOST_REASONS:
            self._first.append(text)
        else:
            self._more += 1

    def shown(self) -> tuple[str, ...]:
        return (*self._first, *((f"and {self._more} more",) if self._more else ()))


def unreachable(host: str, why: str) -> str:
    """'host a is unreachable: no answer', where the reason may name the host itself."""
    return f"host {host} is unreachable: {why.removeprefix(f'host {host}: ').rstrip('.')}"


def counted(number: int, what: str) -> str:
    """'1 disk', '2 disks'."""
    return f"{number} {what}{'' if number == 1 else 'es' if what.endswith('s') else 's'}"


def with_verb(number: int, what: str) -> str:
    """'1 disk is', '2 disks are'."""
    return f"{counted(number, what)} {'is' if number == 1 else 'are'}"
