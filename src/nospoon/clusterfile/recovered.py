"""A cluster file of what was found, for a cluster whose own file is not at hand.

It says what machines are, as far as that can be seen: images, boot profiles, traits and
credentials cannot. It stands in until the next `up` brings the real file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from ipaddress import ip_interface
from typing import Any
from uuid import UUID

from nospoon.clusterfile.document import Document
from nospoon.clusterfile.hardware import DiskSection
from nospoon.clusterfile.written import name_of, write
from nospoon.model.affinity import Strictness
from nospoon.model.cluster import Host
from nospoon.model.connections import Docker, Libvirt, Lxc, OpenStack, RelaySpec, Simulated, WhenOff
from nospoon.model.resources.groups import ServerGroup
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine, MachineDisk
from nospoon.model.resources.networks import FloatingIp, Link, Port, Router, Trunk
from nospoon.model.resources.relays import RELAY
from nospoon.model.resources.resource import Observed, is_adopted
from nospoon.model.resources.storage import Volume
from nospoon.plan.server_groups import rule_of

FILE = "(recovered)"
"""What it is called."""
HEADING = ("Made by `nospoon recover` of what was found on the hosts.",)
NETWORK = "provision"
USUAL_MTU = 1500


def cluster_file(
    name: str,
    id_: UUID,
    hosts: Sequence[Host],
    found: Sequence[Observed],
    settings: Callable[[str], Mapping[str, object]],
) -> str:
    """Its text. `settings`: what openstacksdk needs for a login that a host names."""
    links = {o.key.name: o.shape for o in found if isinstance(o.shape, Link)}
    nodes = {o.key.name: o for o in found if isinstance(o.shape, Machine)}
    machines = {name: seen for name, seen in nodes.items() if not is_adopted(seen.shape)}
    volumes = {o.key.name: o.shape for o in found if isinstance(o.shape, Volume)}
    floating = {o.shape.mac: o.shape for o in found if isinstance(o.shape, FloatingIp)}
    by_bridge = {link.name: network for network, link in links.items()}
    trunks = {o.shape.mac: o.shape for o in found if isinstance(o.shape, Trunk)}
    routers = {
        led.network: o.key.name
        for o in found
        if isinstance(o.shape, Router)
        for led in o.shape.networks
    }
    networks: dict[str, Any] = {
        network: _network(network, link, routers.get(link.name, ""))
        for network, link in links.items()
    }
    for bridge in sorted(set(_bridges(machines.values())) - set(by_bridge)):
        by_bridge[bridge] = name_of(bridge) if bridge else NETWORK
        networks.setdefault(by_bridge[bridge], {"bridge": bridge} if bridge else {})
    for bridge in _filtered(found) & set(by_bridge):
        networks[by_bridge[bridge]]["anti_spoofing"] = True
    for bridge, addresses in _virtual_ips(found).items():
        if bridge in by_bridge:
            networks[by_bridge[bridge]]["virtual_ips"] = sorted(addresses)
    for each in (each for trunk in trunks.values() for each in trunk.carries):
        network = by_bridge.setdefault(each.network, name_of(each.network))
        networks.setdefault(network, {"bridge": each.network})["vlan"] = each.vlan
    groups = {o.key: o.shape for o in found if isinstance(o.shape, ServerGroup)}
    flavors = [_placed(seen, groups).get("flavor") for seen in nodes.values()]
    sections: dict[str, object] = {
        "cluster": name,
        "id": str(id_),
        "hosts": _hosts(hosts, settings, _relayed(found, by_bridge)),
        "networks": networks,
        **({"flavors": {str(each): {} for each in flavors if each}} if any(flavors) else {}),
        "nodes": [
            {
                "name": node,
                "host": seen.key.place,
                **_machine(seen.shape, volumes, by_bridge, floating, trunks),
                **_placed(seen, groups),
            }
            for node, seen in sorted(nodes.items())
            if isinstance(seen.shape, Machine)
        ],
    }
    return write(sections, heading=HEADING)


def with_more(text: str, more: str) -> str:
    """A recovered file, with the hosts, networks and nodes that another one of it has besides."""
    known, other = _sections(text), _sections(more)
    nodes = {node["name"]: node for each in (other, known) for node in each.get("nodes", ())}
    sections = {
        **known,
        "hosts": {**other.get("hosts", {}), **known.get("hosts", {})},
        "networks": {**other.get("networks", {}), **known.get("networks", {})},
        "nodes": [nodes[name] for name in sorted(nodes)],
    }
    if flavors := {**other.get("flavors", {}), **known.get("flavors", {})}:
        sections["flavors"] = flavors
    return write(sections, heading=HEADING)


def _sections(text: str) -> dict[str, Any]:
    value = Document(text, FILE).value
    assert isinstance(value, dict), "it is written here"
    return value


def _bridges(machines: Iterable[Observed]) -> Iterator[str]:
    for each in machines:
        if isinstance(each.shape, Machine):
            yield from (nic.network for nic in each.shape.nics)


def _filtered(found: Sequence[Observed]) -> set[str]:
    """Bridges on which a machine may send from its own address alone; networks that nospoon made
    in a cloud and whose ports it filters.
    """
    made = {each.shape.name for each in found if isinstance(each.shape, Link)}
    bridges = {
        nic.network
        for each in found
        if isinstance(each.shape, Machine) and not each.shape.adopted
        for nic in each.shape.nics
        if nic.sends_from is not None and nic.network
    }
    ports = (each.shape for each in found if isinstance(each.shape, Port))
    return bridges | {port.network for port in ports if port.guarded and port.network in made}


def _virtual_ips(found: Sequence[Observed]) -> dict[str, set[str]]:
    """By the bridge, or the network of a cloud."""
    by_bridge: dict[str, set[str]] = {}
    for each in found:
        match each.shape:
            case Machine(nics=nics):
                given = [(nic.network, nic.virtual_ips) for nic in nics]
            case Port(network=network, virtual_ips=addresses) if each.key.name != RELAY:
                given = [(network, addresses)]
            case _:
                continue
        for bridge, addresses in given:
            if addresses:
                by_bridge.setdefault(bridge, set()).update(addresses)
    return by_bridge


def _relayed(found: Sequence[Observed], by_bridge: Mapping[str, str]) -> dict[str, str]:
    """The networks on which relays are, by their hosts, as this file calls them."""
    return {
        each.key.place: by_bridge[each.shape.network]
        for each in found
        if isinstance(each.shape, Port) and each.key.name == RELAY
        if each.shape.network in by_bridge
    }


def _hosts(
    hosts: Sequence[Host],
    settings: Callable[[str], Mapping[str, object]],
    relayed: Mapping[str, str],
) -> dict[str, dict[str, object]]:
    """By what the file calls them: places of one host are together."""
    found: dict[str, dict[str, object]] = {}
    for host in hosts:
        said = _host(host, settings, relayed.get(host.name, ""))
        found.setdefault(host.section, {}).update(said)
    return found


def _host(
    host: Host, settings: Callable[[str], Mapping[str, object]], relayed: str
) -> dict[str, object]:
    match host.connection:
        case Simulated(simulation):
            machines = list(simulation.machines)
            return {"simulated": {"machines": machines} if machines else True}
        case OpenStack() as cloud:
            return {"openstack": _openstack(cloud, settings(cloud.login), relayed)}
        case Lxc((first, count), new_privileges):
            said: dict[str, object] = {"idmap": f"{first}:{count}"} if count else {}
            return {"lxc": said | _privileges(new=new_privileges) or True}
        case Docker(socket, new_privileges):
            said = {"socket": socket} if socket else {}
            return {"docker": said | _privileges(new=new_privileges) or True}
        case Libvirt(uri):
            return {"libvirt": uri, **({"ssh": host.ssh} if host.ssh else {})}


def _privileges(*, new: bool) -> dict[str, object]:
    return {"new_privileges": True} if new else {}


def _openstack(cloud: OpenStack, settings: Mapping[str, object], relayed: str) -> dict[str, object]:
    """With its login, as the nospoon command writes it out of clouds.yaml. `relayed`: the network
    of its relay, "" for none that was found.
    """
    login = {"name": cloud.cloud, **settings}
    said: dict[str, object] = {"cloud": login}
    if cloud.boot_address:
        said["boot_address"] = cloud.boot_address
    if cloud.relay is not None and relayed:
        said["relay"] = {**_relay(cloud.relay), "network": relayed}
    if cloud.external:
        said["external_network"] = cloud.external
    if cloud.has_volumes:
        said["volumes"] = cloud.volume_type or True
    if cloud.off is not WhenOff.STOP:
        said["off"] = str(cloud.off)
    if cloud.key_pair:
        said["key_pair"] = cloud.key_pair
    if cloud.groups.strictness is not Strictness.STRICT:
        said["server_groups"] = str(cloud.groups.strictness)
    if cloud.groups.per_host > 1:
        said["per_compute_host"] = cloud.groups.per_host
    if cloud.flavors:
        said["flavors"] = list(cloud.flavors)
    return said | ({"availability_zone": list(cloud.zones)} if cloud.zones else {})


def _relay(spec: RelaySpec) -> dict[str, object]:
    said = {each.name: getattr(spec, each.name) for each in fields(spec)}
    said["nameservers"] = list(spec.nameservers)
    return {name: value for name, value in said.items() if value}


def _network(name: str, link: Link, router: str) -> dict[str, object]:
    """`router`: that of a cloud which leads out of it, "" for none."""
    said: dict[str, object] = {"mtu": link.mtu} if link.mtu != USUAL_MTU else {}
    if link.provider:
        said |= {"provider": link.provider, **({} if link.segment else {"vlan": link.vlan})}
    if link.segment:
        said |= {"segment": link.segment}
    if link.segment_id is not None:
        said |= {"segment_id": link.segment_id}
    given = [str(ip_interface(each).network) for each in (link.address, link.address6) if each]
    if given:
        said["cidr"] = given[0] if len(given) == 1 else given
        said |= {"nat": True} if router else {}
        said |= {"router": router} if router not in {"", name} else {}
        said |= {"netboot": "builtin"} if link.relayed or not router else {}
        said |= {"dhcp": False} if link.silent else {}
    return said


def _machine(
    machine: Machine,
    volumes: dict[str, Volume],
    by_bridge: dict[str, str],
    floating: dict[str, FloatingIp],
    trunks: dict[str, Trunk],
) -> dict[str, object]:
    """One that someone else made has the shape that its owner gives it."""
    if machine.adopted:
        return {"adopt": str(machine.uuid)}
    return _hardware(machine, volumes, by_bridge, floating, trunks)


def _hardware(
    machine: Machine,
    volumes: dict[str, Volume],
    by_bridge: dict[str, str],
    floating: dict[str, FloatingIp],
    trunks: dict[str, Trunk],
) -> dict[str, object]:
    return {
        "cpus": machine.cpus,
        "memory": f"{machine.memory >> 20}MiB",
        "arch": str(machine.arch),
        "firmware": str(machine.firmware),
        "tpm": machine.tpm,
        "disks": [
            _disk(disk, volumes[disk.volume].size if disk.volume in volumes else disk.size)
            for disk in machine.disks
            if disk.existing or disk.volume in volumes or disk.size
        ],
        "nics": [
            {
                "network": by_bridge[nic.network],
                "mac": nic.mac,
                "model": nic.model,
                **(_floating(floating[nic.mac]) if nic.mac in floating else {}),
                **(_tagged(trunks[nic.mac]) if nic.mac in trunks else {}),
            }
            for nic in machine.nics
        ],
        "boot_order": [str(device) for device in machine.boot_order],
    }


def _placed(seen: Observed, groups: Mapping[Key, ServerGroup]) -> Mapping[str, object]:
    """By which rule of affinity it is in its server group."""
    name = seen.shape.group if isinstance(seen.shape, Machine) else ""
    group = groups.get(Key(Kind.SERVER_GROUP, seen.key.place, name))
    return (rule_of(name, group) if group is not None else None) or {}


def _tagged(shape: Trunk) -> dict[str, object]:
    return {"trunk": [each.vlan for each in shape.carries]}


def _floating(shape: FloatingIp) -> dict[str, object]:
    chosen = {"floating_address": shape.chosen} if shape.chosen else {}
    return {"floating_ip": shape.network, **chosen}


def _disk(disk: MachineDisk, size: int) -> str | dict[str, object]:
    """What it is: its size alone, where the rest is the usual."""
    written = f"{size}B" if size % 1024 else f"{size >> 10}KiB"
    what = {"volume": disk.volume, "format": disk.format} if disk.existing else {"size": written}
    if disk.mount:  # of a container, which a node is only with its image
        return written
    rotational = {"rotational": disk.rotation_rate > 1} if disk.rotation_rate else {}
    usual = DiskSection(image="any")
    unusual = {
        name: getattr(disk, name)
        for name in ("bus", "discard")
        if getattr(disk, name) != getattr(usual, name)
    }
    if disk.cache != "writeback":
        unusual["cache"] = disk.cache
    more = {**unusual, **rotational}
    return {**what, **more} if more or disk.existing else written
