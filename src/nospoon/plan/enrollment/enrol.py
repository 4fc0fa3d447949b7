"""A node of the file -> what stands for it in Ironic: node, portgroups, ports, and its standing.

Settings of drivers: https://docs.openstack.org/ironic/latest/admin/drivers/{ipmitool,redfish,snmp}.html
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from nospoon.model.cluster import BmcProtocol, Cluster, Firmware, Netboot, Network, Nic, Node
from nospoon.model.ironic import (
    IronicConnector,
    IronicDiscovery,
    IronicNode,
    IronicPort,
    IronicPortgroup,
    IronicStanding,
    IronicTarget,
    Setting,
    Settings,
    Standing,
    Way,
)
from nospoon.model.resources.bmcs import Bmc, Secrets
from nospoon.model.resources.keys import IRONIC, Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Resource
from nospoon.plan import identity
from nospoon.plan.enrollment.root_device import GIB, known_disks, root_disk

HINTS = {"root_device", "skip_block_devices"}
"""What says on which disk to deploy, as properties of a node or for an instance."""
PDU_USER = "nospoon"
"""The user of a PDU's SNMPv3."""
MANUAL = "manual-management"
"""The hardware type of what no one can switch."""
DRIVERS = (
    (BmcProtocol.IPMI, "ipmi"),
    (BmcProtocol.REDFISH, "redfish"),
    (BmcProtocol.PDU, "snmp"),
)
"""Hardware types by what a BMC speaks, the first choice first."""


_encoded = json.JSONEncoder(sort_keys=True).encode
"""`json.dumps` makes an encoder for each value, and ten thousand nodes have 150,000 of them."""


def settings(values: Mapping[str, object]) -> Settings:
    """Values by name as settings; None and "" are left out, for they say nothing."""
    told = {name: value for name, value in values.items() if value not in (None, "", {})}
    return tuple(Setting(name, _encoded(told[name])) for name in sorted(told))


def values(some: Settings) -> dict[str, Any]:
    """The values that `settings` was given."""
    return {each.name: _decoded(each.value) for each in some}


def _decoded(text: str) -> object:
    """In a tenth of json's time, but for infinity and halves of a surrogate pair."""
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return json.loads(text)


_decode = msgspec.json.Decoder().decode


def in_ironic(
    cluster: Cluster, node: Node, machine: Machine, bmc: Resource, *, boots: Iterable[Key]
) -> Iterator[Resource]:
    """What there is to be for Ironic of a node: all of it, or a start for Ironic to find it.

    `boots`: the network boot services of ours that a start needs.
    """
    if node.enrolment.way is Way.ENROL:
        yield from enrolled(cluster, node, machine, bmc)
        return
    key = Key(Kind.IRONIC_DISCOVERY, IRONIC, node.name)
    yield Resource(key, IronicDiscovery(machine.uuid), (bmc.key, *boots), node.name)


def enrolled(cluster: Cluster, node: Node, machine: Machine, bmc: Resource) -> Iterator[Resource]:
    """All that is made in Ironic for a node, in the order in which one would."""
    assert isinstance(bmc.shape, Bmc), "BMC keys have BMC shapes"
    key = Key(Kind.IRONIC_NODE, IRONIC, node.name)
    shape = IronicNode(
        uuid=machine.uuid,
        settings=settings(_node(cluster, node, machine, bmc.shape)),
        traits=tuple(sorted(set(node.traits))),
        credentials_key=bmc.shape.credentials_key,
    )
    yield Resource(key, shape, (bmc.key,), node.name)
    groups = list(_portgroups(node, machine.uuid, key))
    ports = list(_ports(cluster, node, machine, host=bmc.key.place))
    volumes = list(_volumes(cluster, node, machine.uuid, key))
    yield from groups
    yield from ports
    yield from volumes
    needs = (key, *(each.key for each in (*groups, *ports, *volumes)))
    said = node.enrolment
    instance = said.instance if said.state is Standing.ACTIVE else ()
    roots = _roots(node, machine, bmc.shape.disk_sizes)
    standing = IronicStanding(machine.uuid, str(said.state), instance, roots)
    yield Resource(Key(Kind.IRONIC_STANDING, IRONIC, node.name), standing, needs, node.name)


def _roots(node: Node, machine: Machine, sizes: Sequence[int]) -> tuple[str, ...]:
    """The volumes on one of which it is deployed: none where it boots from another place; any with
    hints, or else the smallest of 4 GiB or more (ironic-python-agent, `get_os_install_device`).
    """
    said, volumes = node.enrolment, [disk.volume for disk in machine.disks]
    boots = {values(each).get("boot_index") for each in said.targets}
    if 0 in boots and values(said.interfaces).get("storage", "noop") != "noop":
        return ()
    if HINTS & {*values(said.properties), *values(said.instance)}:
        return tuple(volumes)
    chosen = root_disk({}, known_disks(machine, sizes))
    return (chosen.volume,) if chosen is not None else tuple(volumes)


def driver_of(node: Node) -> str:
    """The hardware type: what the file says, else by what its BMC speaks."""
    spoken = (driver for protocol, driver in DRIVERS if protocol in node.bmc)
    return node.enrolment.driver or next(spoken, MANUAL)


def _node(cluster: Cluster, node: Node, machine: Machine, bmc: Bmc) -> dict[str, object]:
    said = node.enrolment
    told: dict[str, object] = {
        "driver": driver_of(node),
        "name": _named(said.name, cluster, node),
        "resource_class": said.resource_class,
        "conductor_group": said.conductor_group,
        "shard": said.shard,
        "owner": said.owner,
        "lessee": said.lessee,
        "description": said.description,
        "automated_clean": said.automated_clean,
    }
    told |= {f"{name}_interface": value for name, value in values(said.interfaces).items()}
    info = {**_access(node, bmc), **values(said.driver_info)}
    properties = {**_properties(node, machine, bmc), **values(said.properties)}
    told |= {f"driver_info/{name}": value for name, value in info.items()}
    told |= {f"properties/{name}": value for name, value in properties.items()}
    return told | {f"extra/{name}": value for name, value in values(said.extra).items()}


def _named(text: str, cluster: Cluster, node: Node) -> str:
    return text.replace("{cluster}", cluster.name).replace("{node}", node.name)


def _access(node: Node, bmc: Bmc) -> dict[str, object]:
    """How the driver reaches the BMC, without its password."""
    match driver_of(node):
        case "ipmi":
            return {
                "ipmi_address": bmc.address,
                "ipmi_port": bmc.ipmi_port,
                "ipmi_username": bmc.username,
            }
        case "redfish":
            return {
                "redfish_address": f"{'https' if bmc.tls else 'http'}://{bmc.redfish}",
                "redfish_system_id": f"/redfish/v1/Systems/{bmc.uuid}",
                "redfish_username": bmc.username,
                # its certificate is its own; who trusts it names it in driver_info
                "redfish_verify_ca": False if bmc.tls else None,
            }
        case "snmp" if bmc.outlet is not None:
            return {
                "snmp_driver": "apc_rackpdu",
                "snmp_address": bmc.outlet.address,
                "snmp_port": bmc.outlet.port,
                "snmp_outlet": bmc.outlet.number,
                **_snmp(
                    str(
                        values(node.enrolment.driver_info).get(
                            "snmp_version", "2c" if bmc.outlet.v2c else "3"
                        )
                    )
                ),
            }
        case _:
            return {}


def _snmp(version: str) -> dict[str, str]:
    if version != "3":
        return {"snmp_version": version}
    protocols = {"snmp_auth_protocol": "sha", "snmp_priv_protocol": "aes"}
    return {"snmp_version": version, "snmp_user": PDU_USER, **protocols}


def login(settings: Mapping[str, object], secrets: Secrets) -> dict[str, str]:
    """The secret part of `driver_info`; `settings`: a node's settings by their paths."""
    match settings["driver"]:
        case "snmp" if str(settings.get("driver_info/snmp_version")) == "3":
            info = {"snmp_auth_key": secrets.pdu_secret, "snmp_priv_key": secrets.pdu_secret}
        case "snmp":
            info = {"snmp_community": identity.snmp_community(secrets.pdu_secret)}
        case "ipmi":
            info = {"ipmi_password": secrets.password, "ipmi_hex_kg_key": secrets.k_g}
        case "redfish":
            info = {"redfish_password": secrets.password}
        case _:
            info = {}
    return {name: value for name, value in info.items() if value}


def nested(told: Mapping[str, Any]) -> dict[str, Any]:
    """Values by their paths (`driver_info/ipmi_port`) as Ironic's API has them."""
    made: dict[str, Any] = {}
    for path, value in told.items():
        field, _, key = path.partition("/")
        if key:
            made.setdefault(field, {})[key] = value
        else:
            made[field] = value
    return made


def _properties(node: Node, machine: Machine, bmc: Bmc) -> dict[str, object]:
    """What its hardware is. An inspection finds this out by itself."""
    uefi = node.firmware is not Firmware.BIOS
    capabilities = {
        "boot_mode": "uefi" if uefi else "bios",
        "secure_boot": "true" if node.firmware is Firmware.UEFI_SECURE else None,
        **values(node.enrolment.capabilities),
    }
    listed = ",".join(f"{name}:{value}" for name, value in capabilities.items() if value)
    told: dict[str, object] = {"capabilities": listed, "cpu_arch": str(machine.arch)}
    if node.enrolment.state is Standing.INSPECTED:
        return told
    disks = known_disks(machine, bmc.disk_sizes)
    hints = values(node.enrolment.properties).get("root_device") or {}
    chosen = root_disk(hints, disks) or next(iter(disks), None)
    return told | {
        "cpus": machine.cpus,
        "memory_mb": machine.memory >> 20,
        "local_gb": chosen.size // GIB or None if chosen is not None else None,
    }


def _portgroups(node: Node, uuid: UUID, needs: Key) -> Iterator[Resource]:
    for each in node.portgroups:
        told = {
            "name": f"{node.name}-{each.name}",
            "address": each.address,
            "mode": each.mode,
            "properties": dict(each.properties),
            "standalone_ports_supported": each.standalone_ports,
        }
        shape = IronicPortgroup(_group_uuid(uuid, each.name), uuid, settings(told))
        key = Key(Kind.IRONIC_PORTGROUP, IRONIC, f"{node.name}-{each.name}")
        yield Resource(key, shape, (needs,), node.name)


def _volumes(cluster: Cluster, node: Node, uuid: UUID, needs: Key) -> Iterator[Resource]:
    said = node.enrolment
    for index, each in enumerate(said.connectors):
        made = identity.part_uuid(uuid, f"connector-{index}")
        shape = IronicConnector(made, uuid, _said_of(each, cluster, node))
        key = Key(Kind.IRONIC_CONNECTOR, IRONIC, f"{node.name}-{index}")
        yield Resource(key, shape, (needs,), node.name)
    for index, each in enumerate(said.targets):
        made = identity.part_uuid(uuid, f"target-{index}")
        target = IronicTarget(made, uuid, _said_of(each, cluster, node))
        key = Key(Kind.IRONIC_TARGET, IRONIC, f"{node.name}-{index}")
        yield Resource(key, target, (needs,), node.name)


def _said_of(some: Settings, cluster: Cluster, node: Node) -> Settings:
    told = values(some).items()
    return settings(
        {n: _named(value, cluster, node) if isinstance(value, str) else value for n, value in told}
    )


def _pxe(node: Node, nic: Nic, *, boots: bool) -> bool | None:
    """An inspection finds out by itself what the file does not say."""
    if nic.pxe is None and node.enrolment.state is Standing.INSPECTED:
        return None
    return boots if nic.pxe is None else nic.pxe


def _group_uuid(node: UUID, name: str) -> UUID:
    return identity.part_uuid(node, f"portgroup-{name}")


def _ports(cluster: Cluster, node: Node, machine: Machine, *, host: str) -> Iterator[Resource]:
    networks = {each.name: each for each in cluster.networks}
    owner = Key(Kind.IRONIC_NODE, IRONIC, node.name)
    # of a machine of others the file says nothing: each NIC is on what its owner chose
    nics = node.nics or tuple(Nic(nic.network) for nic in machine.nics)
    for index, (nic, made) in enumerate(zip(nics, machine.nics, strict=True)):
        network = networks.get(nic.network) or Network(nic.network)
        boots = nic.network == nics[0].network or network.netboot is Netboot.BUILTIN
        told = {
            "address": made.mac,
            "pxe_enabled": _pxe(node, nic, boots=boots),
            "physical_network": network.physnet or network.name,
            "local_link_connection": {
                "switch_id": identity.switch_id(host, made.network),
                "port_id": made.port,
                "switch_info": made.network,
            }
            if made.port
            else {},
        }
        group = _group_uuid(machine.uuid, nic.portgroup) if nic.portgroup else None
        group_key = Key(Kind.IRONIC_PORTGROUP, IRONIC, f"{node.name}-{nic.portgroup}")
        shape = IronicPort(
            identity.part_uuid(machine.uuid, f"port-{index}"), machine.uuid, settings(told), group
        )
        yield Resource(
            Key(Kind.IRONIC_PORT, IRONIC, f"{node.name}-{index}"),
            shape,
            (owner, group_key) if group else (owner,),
            node.name,
        )
