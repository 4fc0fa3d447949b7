"""What is on hosts and not in the store: orphans, and clusters of a store that was lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Orphan:
    """`running`: "yes", or ""."""

    host: str
    kind: str
    name: str
    cluster: str
    owner: str
    running: str
    cluster_id: str


@dataclass(frozen=True, slots=True)
class OrphanReport:
    """`others`: host -> other deployment -> how many things; `away`: host -> why."""

    orphans: Sequence[Orphan]
    others: Mapping[str, Mapping[str, int]]
    away: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RecoveredCluster:
    """`nodes`, `bmcs`, `snapshots`: how many; `said`: what was done."""

    cluster: str
    owner: str
    nodes: int
    hosts: str
    ironic: str
    bmcs: int
    snapshots: int
    said: str
    cluster_id: str


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """`running`: other deployments with a daemon on this machine."""

    clusters: Sequence[RecoveredCluster]
    away: Mapping[str, str]
    others: Mapping[str, Mapping[str, int]]
    running: Sequence[str]
