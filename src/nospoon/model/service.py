"""Services: what runs in VMs and containers, in which order it starts, and when it is healthy."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

MOST_ROLE = 65536
"""Characters of a role."""
ROLE_UNIT = "nospoon-role-{}"
"""Unit of systemd that runs the role of a service, by the service's name."""


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
    the unit. `health` None: it counts as healthy when its node runs. `role`: the script that sets
    it up on the root of its node, "" for none. Users write passwords into it.
    """

    name: str
    nodes: tuple[str, ...]
    unit: str
    after: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    health: Health | None = None
    role: str = field(default="", repr=False)

    @property
    def role_digest(self) -> str:
        """Of its role, short: two of one digest are the same."""
        return hashlib.sha256(self.role.encode()).hexdigest()[:12]

    @property
    def role_line(self) -> str:
        """What the console of its node shows before its role begins, and, with the exit status
        behind it, when that ended.
        """
        return f"nospoon: role of service {self.name} ({self.role_digest}): "
