"""Services: what runs in VMs and containers, in which order it starts, and when it is healthy."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Health:
    """How it is seen that a service answers: a TCP port of its node, where `path` is not "" one of
    HTTP that answers a GET of it with status 2xx or 3xx. `timeout`: seconds that `up` waits for it.
    """

    port: int
    path: str = ""
    timeout: float = 120.0


@dataclass(frozen=True, slots=True)
class Service:
    """`nodes`: names of those that it runs on, in the order of the file. `unit`: of systemd there.
    `after`: services that are healthy before its nodes start. `environment`: (variable, value), of
    the unit. `health` None: it counts as healthy when its node runs.
    """

    name: str
    nodes: tuple[str, ...]
    unit: str
    after: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    health: Health | None = None
