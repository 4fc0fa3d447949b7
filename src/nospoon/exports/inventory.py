"""What is exported: the nodes of a cluster that are there, and where each is reached."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nospoon.model.cluster import Cluster, Host, Network, Node
from nospoon.model.ironic import IronicNode, IronicPort, IronicPortgroup
from nospoon.model.resources.bmcs import Bmc, Secrets
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Resource
from nospoon.plan.enrollment.enrol import enrolled, login, nested, values


@dataclass(frozen=True, slots=True)
class Place:
    """A node and where it is. `addresses` of its NICs in their order, "" where no one knows it;
    `login`: that by which users log in from its host, "" for the first.
    """

    node: Node
    host: Host
    machine: Machine
    bmc: Bmc
    secrets: Secrets
    addresses: tuple[str, ...] = ()
    login: str = ""

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def address(self) -> str:
        """The first that is known, "" for none."""
        return next((each for each in self.addresses if each), "")

    @property
    def ssh_address(self) -> str:
        """Where ssh(1) finds it from its host, "" where no address is known."""
        return self.login or self.address


@dataclass(frozen=True, slots=True)
class Inventory:
    """A cluster and its nodes, in the order of its file."""

    cluster: Cluster
    places: tuple[Place, ...]
    _registered: dict[str, Registered] = field(default_factory=dict, compare=False, repr=False)

    @property
    def networks(self) -> Mapping[str, Network]:
        return {each.name: each for each in self.cluster.networks}

    def registered(self, place: Place) -> Registered:
        """What an enrolment of this node would make, whether it is enrolled or not."""
        if place.name not in self._registered:
            self._registered[place.name] = _registered(self.cluster, place)
        return self._registered[place.name]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What a format has no place for: a part of a node, "" for all of it; `why` as written."""

    what: str
    node: str
    why: str = ""

    def __str__(self) -> str:
        return self.of(self.node, f"node {self.node}")

    def of(self, name: str, whole: str) -> str:
        """Of nodes that are called so; `whole`: where nothing of them is in it."""
        return f"{f'{self.what} of {name}' if self.what else whole}{self.why}"


@dataclass(frozen=True, slots=True)
class Made:
    """What a format made: `value` as its syntax writes it, and what it had no place for."""

    value: Any
    left_out: tuple[LeftOut, ...] = ()


NAMED = 3
"""Nodes that a summary names, before it counts them."""


def summed(left_out: Iterable[LeftOut]) -> Iterator[str]:
    """A line for each; one for all nodes of which the same is left out."""
    alike = defaultdict[tuple[str, str], list[LeftOut]](list)
    for each in left_out:
        alike[each.what, each.why].append(each)
    for group in alike.values():
        if len(group) <= NAMED:
            yield from map(str, group)
            continue
        names = ", ".join(each.node for each in group[:NAMED])
        nodes = f"{len(group)} nodes ({names}, …)"
        yield group[0].of(nodes, nodes)


@dataclass(frozen=True, slots=True)
class Registered:
    """A node as Ironic's API has it, with all that its driver needs; its ports and portgroups."""

    driver: str
    body: dict[str, Any]
    ports: Sequence[Mapping[str, object]] = field(default=())
    portgroups: Sequence[Mapping[str, object]] = field(default=())

    @property
    def name(self) -> str:
        return str(self.body["name"])

    @property
    def info(self) -> dict[str, object]:
        """`driver_info`, with passwords."""
        return dict(self.body["driver_info"])

    @property
    def properties(self) -> dict[str, Any]:
        return dict(self.body["properties"])

    @property
    def interfaces(self) -> dict[str, str]:
        return {name: value for name, value in self.body.items() if name.endswith("_interface")}

    @property
    def boot_mac(self) -> str:
        """Of the first port that Ironic boots from, "" for none."""
        return next((str(p["address"]) for p in self.ports if p.get("pxe_enabled", True)), "")


def _registered(cluster: Cluster, place: Place) -> Registered:
    bmc = Resource(Key(Kind.BMC, place.host.name, place.name), place.bmc)
    made = [each.shape for each in enrolled(cluster, place.node, place.machine, bmc)]
    node, *rest = made
    assert isinstance(node, IronicNode), "the node comes first"
    told = values(node.settings)
    body = nested({"uuid": str(node.uuid), "driver_info": {}, **told})
    body["driver_info"] |= login(told, place.secrets)
    return Registered(
        body["driver"],
        body,
        ports=tuple(_port(each) for each in rest if isinstance(each, IronicPort)),
        portgroups=tuple(
            {"uuid": str(each.uuid), **values(each.settings)}
            for each in rest
            if isinstance(each, IronicPortgroup)
        ),
    )


EVERYWHERE = frozenset({"uuid", "name", "driver"})
"""What every format says of a node."""
TEMPLATES = ("{{", "{%", "{#")
"""What begins an expression, a statement and a comment in Ansible's templates (Jinja)."""
INTERFACES, DRIVER_INFO, PROPERTIES, PORTS = "interfaces", "driver_info", "properties", "ports"
USUAL = {"resource_class": "baremetal", "ports.pxe_enabled": True}
_OWN_IDS = frozenset({"uuid", "portgroup_uuid"})


def unsaid(place: Place, found: Registered, said: Collection[str]) -> list[LeftOut]:
    """What a format has no place for that says these of a node besides: fields, `INTERFACES` for
    them all, a section or what it says of it (`driver_info.deploy_kernel`, `ports.address`).
    """
    known = EVERYWHERE | set(said)
    told = {
        name: value
        for name, value in _fields(place, found, ports=any(each in known for each in _PORTS))
        if value not in (None, "", (), [], {})
        and not known & {name, name.partition(".")[0]}
        and not (name.endswith("_interface") and INTERFACES in known)
        and value != USUAL.get(name)
    }
    return [LeftOut(name, place.name) for name in told]


_PORTS = (PORTS, f"{PORTS}.address")


def _fields(place: Place, found: Registered, *, ports: bool) -> Iterator[tuple[str, object]]:
    """All that is known of a node. `ports`: each field of them by itself."""
    sections = (DRIVER_INFO, PROPERTIES)
    yield from ((name, value) for name, value in found.body.items() if name not in sections)
    yield "traits", place.node.traits
    yield "portgroups", found.portgroups
    yield "volumes", place.node.enrolment.connectors + place.node.enrolment.targets
    for section in sections:
        yield from ((f"{section}.{name}", value) for name, value in found.body[section].items())
    if not ports:
        yield PORTS, found.ports
        return
    for port in found.ports:
        yield from ((f"{PORTS}.{n}", value) for n, value in port.items() if n not in _OWN_IDS)


def _port(port: IronicPort) -> dict[str, object]:
    group = {"portgroup_uuid": str(port.portgroup)} if port.portgroup else {}
    return {"uuid": str(port.uuid), **values(port.settings), **group}
