"""Clusters, and how they compare with their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """`on`: nodes that are; `operation`: kind and id of the one under way, "" for none."""

    name: str
    nodes: int
    on: int
    id: str
    file: str
    operation: str


@dataclass(frozen=True, slots=True)
class PortgroupStatus:
    """By Ironic's names. `ports`: MACs."""

    name: str
    address: str | None
    mode: str
    properties: Mapping[str, str]
    standalone_ports_supported: bool
    ports: Sequence[str]


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """`drift`: what differs from the file. Portgroups and floating IPs are null where the
    cluster could not be looked at.
    """

    node: str
    host: str
    state: str
    power: str
    boot: str
    bmc: str
    drift: str
    portgroups: Sequence[PortgroupStatus] | None = None
    floating_ips: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """`drift`: of what belongs to no node."""

    cluster: str
    id: str
    nodes: Sequence[NodeStatus]
    drift: Sequence[str]


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """`created`: Unix seconds; `on`: nodes that were."""

    name: str
    state: str
    created: float
    nodes: int
    on: int


@dataclass(frozen=True, slots=True)
class Exported:
    """A text for another tool, and what of the cluster is not in it."""

    text: str
    left_out: Sequence[str]
