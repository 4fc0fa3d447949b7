"""Nodes and their BMCs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """A node as it is now. `boot`: what its BMC's clients set; `media`: in its CD drive. Where its
    BMC answers, "" where it does not: `ipmi` as host:port, `redfish` as its System's URL, `pdu` as
    address, port and outlet.
    """

    node: str
    cluster: str
    host: str
    power: str
    fault: str
    boot: str
    media: str
    ipmi: str
    redfish: str
    pdu: str
    uuid: str


@dataclass(frozen=True, slots=True)
class NodePort:
    """A NIC as Ironic's ports have it; `local_link_connection` is empty on a user-mode network."""

    address: str
    local_link_connection: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NodeDetails(NodeSummary):
    """Everything of one node, without its password. `firmware`: "" for a container.
    `power_commands`: those that its BMC accepted and that are not over, in their order.
    """

    kind: str
    cpus: int
    memory: str
    arch: str
    firmware: str
    tpm: bool
    disks: Sequence[str]
    nics: Sequence[str]
    ports: Sequence[NodePort]
    boot_order: Sequence[str]
    serial_number: str
    power_commands: Sequence[str]


@dataclass(frozen=True, slots=True)
class BmcAccess(NodeSummary):
    """A node, and who may log in to its BMC."""

    username: str
    password: str
    k_g: str
    pdu_secret: str
    pdu_community: str


@dataclass(frozen=True, slots=True)
class PowerResult:
    """`result`: done, accepted, or why nothing changed."""

    node: str
    result: str


@dataclass(frozen=True, slots=True)
class BootSetting:
    """`boot`: what the node boots next, as lists of nodes show it."""

    node: str
    boot: str


@dataclass(frozen=True, slots=True)
class MediaSetting:
    """`media`: what is in the CD drive, "" for nothing."""

    node: str
    media: str


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """`fault`: its kind and parameters, as `node fault` shows it; `about`: what it does."""

    kind: str
    fault: str
    about: str


@dataclass(frozen=True, slots=True)
class NodeLogin:
    """Where ssh finds a node: `address`, "" for unknown, and `jump`, the host over ssh that it is
    reached through, "" for none.
    """

    node: str
    kind: str
    address: str
    jump: str
