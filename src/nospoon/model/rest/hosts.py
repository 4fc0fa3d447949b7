"""Hosts, and what they have of what is needed there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class HostSummary:
    """A host as the file of a cluster has it. `cpus`, `memory` (bytes): of its nodes there; `away`:
    why it does not answer, "" when it does.
    """

    host: str
    cluster: str
    where: str
    nodes: int
    cpus: int
    memory: int
    drained: bool
    away: str


class Verdict(StrEnum):
    """Of a finding: there, missing, or not there and only what names it wants it."""

    OK = "ok"
    MISSING = "missing"
    WITHOUT = "without"


@dataclass(frozen=True, slots=True)
class HostFinding:
    """One line about one host."""

    host: str
    what: str
    verdict: Verdict
    detail: str
