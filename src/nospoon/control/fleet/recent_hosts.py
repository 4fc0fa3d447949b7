"""Under how many names a member asked for hosts of late.

Each name of a host has connections, threads and descriptors of its own, which stay for a while, and
libvirtd takes a limited number of clients for all users together (`max_clients`, libvirtd.conf).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from nospoon.control.fleet.hosts import IDLE
from nospoon.errors import Conflict
from nospoon.model.cluster import Host
from nospoon.model.principal import OwnerId
from nospoon.runtime import clock

MOST_NAMES, MOST_SIMULATED = 8, 1000
"""Names of one real host; simulated hosts, of which each name is another one."""

Place = tuple[str, ...]


class RecentHosts:
    """Names of hosts, by user; they count while idle connections stay open."""

    def __init__(self, *, now: clock.Clock = clock.monotonic) -> None:
        self._now = now
        self._asked: dict[int, dict[tuple[str, Place, int], float]] = {}

    def ask(self, owner: OwnerId, hosts: Sequence[Host]) -> None:
        """A user asks for these. Raises `Conflict` where that would be too many names."""
        now = self._now()
        recent = {
            each: then for each, then in self._asked.get(owner, {}).items() if now - then < IDLE
        }
        for host in hosts:
            most = MOST_NAMES if host.declares.is_real else MOST_SIMULATED
            recent[_name(host), _place(host), most] = now
        names = Counter((place, most) for _, place, most in recent)
        for host in hosts:
            most = MOST_NAMES if host.declares.is_real else MOST_SIMULATED
            if names[_place(host), most] > most:
                what = host.where if host.declares.is_real else "simulated hosts"
                raise Conflict(
                    f"host {host.name}: you named {what} in more than {most} ways within "
                    f"{IDLE / 60:g} minutes",
                    hint="Take one of those names, or wait.",
                )
        self._asked[owner] = recent


def _name(host: Host) -> str:
    """A cloud has one for each login."""
    return host.connection.login or host.name


def _place(host: Host) -> Place:
    """All clouds of a user are one: each login there has threads of its own."""
    return (host.connection.kind,) if host.connection.login else host.place
