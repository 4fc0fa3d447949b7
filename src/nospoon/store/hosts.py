"""Hosts as the store has them: flat records, in which stores of earlier versions have them too."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec

from nospoon.model.cluster import Host, Overcommit
from nospoon.model.connections import (
    ConnectionKind,
    ConnectionSpec,
    Docker,
    Libvirt,
    Lxc,
    OpenStack,
    Simulated,
    Simulation,
)
from nospoon.store.decoded import Decoder


@dataclass(frozen=True, slots=True)
class _Record:
    """`uri`, `idmap`, `socket`, `new_privileges`, `simulation` and `openstack`: of the connection,
    by its `kind`.
    """

    name: str
    kind: ConnectionKind = ConnectionKind.LIBVIRT
    uri: str = ""
    ssh: str = ""
    physnets: tuple[tuple[str, str], ...] = ()
    drained: bool = False
    overcommit: Overcommit = field(default_factory=Overcommit)
    simulation: Simulation = field(default_factory=Simulation)
    address: str = ""
    openstack: OpenStack | None = None
    idmap: tuple[int, int] = (0, 0)
    socket: str = ""
    new_privileges: bool = False

    @property
    def connection(self) -> ConnectionSpec:
        match self.kind:
            case ConnectionKind.LIBVIRT:
                return Libvirt(self.uri)
            case ConnectionKind.LXC:
                return Lxc(self.idmap, self.new_privileges)
            case ConnectionKind.DOCKER:
                return Docker(self.socket, self.new_privileges)
            case ConnectionKind.SIMULATED:
                return Simulated(self.simulation)
            case ConnectionKind.OPENSTACK:
                if self.openstack is None:
                    raise ValueError(f"host {self.name} is kept without its cloud")
                return self.openstack


def record_of(host: Host) -> dict[str, object]:
    """What the store keeps of a host, as JSON has it."""
    of_connection: dict[str, object] = {
        "uri": host.where if isinstance(host.connection, Libvirt) else "",
        "simulation": host.connection.behaviour or Simulation(),
        "openstack": host.connection if isinstance(host.connection, OpenStack) else None,
    }
    if isinstance(host.connection, Lxc):
        of_connection["idmap"] = host.connection.idmap
    if isinstance(host.connection, Docker):
        of_connection["socket"] = host.connection.socket
    if isinstance(host.connection, Lxc | Docker) and host.connection.new_privileges:
        of_connection["new_privileges"] = True
    found: dict[str, object] = msgspec.to_builtins(
        {
            "name": host.name,
            "kind": host.connection.kind,
            "ssh": host.ssh,
            "physnets": host.physnets,
            "drained": host.drained,
            "overcommit": host.overcommit,
            "address": host.address,
        }
        | of_connection
    )
    return found


def record_of_node(host: Host) -> dict[str, object]:
    """The same for each node on it, without what grows with the number of nodes: `with_machines`
    puts it back.
    """
    return record_of(_with(host, ()))


def with_machines(host: Host, of_cluster: Host | None) -> Host:
    """A node's host with the names of machines that its cluster's host of this name has."""
    if not isinstance(host.connection, Simulated) or host.connection.simulation.machines:
        return host  # earlier versions kept them with each node
    if of_cluster is None or not isinstance(of_cluster.connection, Simulated):
        return host
    return _with(host, of_cluster.connection.simulation.machines)


def _with(host: Host, machines: tuple[str, ...]) -> Host:
    match host.connection:
        case Simulated(simulation) if simulation.machines != machines:
            return replace(host, connection=Simulated(replace(simulation, machines=machines)))
        case _:
            return host


def host_of(record: object) -> Host:
    """The host of a record. Raises `msgspec.ValidationError`."""
    return _host(msgspec.convert(record, _Record))


def read_host(text: str) -> Host:
    """The same of a record's text."""
    return _host(_RECORD(text))


_RECORD = Decoder(_Record)


def _host(kept: _Record) -> Host:
    return Host(
        name=kept.name,
        connection=kept.connection,
        ssh=kept.ssh,
        physnets=kept.physnets,
        drained=kept.drained,
        overcommit=kept.overcommit,
        address=kept.address,
    )
