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
    """The same for each node on it, without settings, of which a file may have many megabytes:
    `with_settings` puts them back.
    """
    connection = host.connection
    match connection:
        case Simulated():
            connection = Simulated()
        case OpenStack():
            connection = replace(connection, flavors=())
    return record_of(replace(host, connection=connection, physnets=()))


def with_settings(host: Host, of_cluster: Host | None) -> Host:
    """A node's host as its cluster's host of this name is set, if it leads to the same place."""
    if of_cluster is None or of_cluster.place != host.place:
        return host
    return replace(host, connection=of_cluster.connection, physnets=of_cluster.physnets)


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
