"""Services of VMs and containers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """On one of its nodes. `health`: healthy, unhealthy, "" where nothing is looked at; `timeout`:
    seconds that it has to become healthy, 0 where nothing is looked at. `service` "": the cluster's
    file cannot be read, and `why`.
    """

    service: str
    cluster: str
    node: str
    kind: str
    power: str
    health: str
    why: str
    unit: str
    address: str
    after: Sequence[str]
    timeout: float = 0.0
