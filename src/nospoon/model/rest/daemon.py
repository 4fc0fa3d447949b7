"""The daemon itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """`uptime`: seconds; `clusters`, `nodes`: of all users; `deployment`: id of its state; `found`:
    what its start found, for administrators.
    """

    version: str
    pid: int
    uptime: float
    clusters: int
    nodes: int
    deployment: str
    found: str


@dataclass(frozen=True, slots=True)
class DaemonStopping:
    """It ends after its replies."""

    stopping: bool = True
