"""Simulated hosts of a daemon: their worlds live in memory, and are kept in files as they change.

After a sudden end at most the last moments are lost, as if someone had been at the host. Machines
that were on when this machine rebooted are off, as others are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from uuid import UUID

from nospoon.model.cluster import Host
from nospoon.model.connections import Simulated
from nospoon.providers.recorder import RecordSpace
from nospoon.providers.simulated.connection import SimulatedConnection
from nospoon.providers.simulated.guests import Guests
from nospoon.providers.simulated.surroundings import nothing_probes
from nospoon.providers.simulated.world import Snapshot, World
from nospoon.runtime import boots, clock

KEEP_SECONDS = 1.0
FEW = 1000
"""Hosts that are remembered, whatever is on them."""
KEPT_SECONDS = 3600.0
"""For which a host is remembered on which is nothing."""
THINGS_A_SECOND = 10_000
"""What may be written down each second on average, so that it is not felt."""


class Simulations:
    """Worlds by host name, in one directory; written while `in_control` says so. `guests` runs
    what their machines boot; `is_probed`: whether the network gives a machine the probe;
    `record_space`: for console records of all of them.
    """

    def __init__(
        self,
        directory: Path,
        deployment: str,
        in_control: Callable[[], bool] = lambda: True,
        *,
        guests: Guests | None = None,
        is_probed: Callable[[UUID], bool] = nothing_probes,
        record_space: RecordSpace | None = None,
    ) -> None:
        self._directory, self._deployment, self._in_control = directory, deployment, in_control
        self._guests, self._is_probed = guests, is_probed
        self._record_space = record_space if record_space is not None else RecordSpace()
        self._connections: dict[str, SimulatedConnection] = {}
        self._kept: dict[str, int] = {}
        """Version of each world that its file has."""
        self._writing = Lock()
        self._enough = FEW
        """Hosts from which on some may be forgotten."""

    def connect(self, host: Host, simulated: Simulated, records: Path) -> SimulatedConnection:
        """The host's world, as it was left: its file may be older than what an earlier connection
        has of it.
        """
        known = self._connections.get(host.name)
        world = known.world if known is not None else self._loaded(host.name)
        made = SimulatedConnection(
            host.name,
            self._deployment,
            clock.unix,
            world=world,
            records=records,
            record_space=self._record_space,
            simulation=simulated.simulation,
            guests=self._guests,
            is_probed=self._is_probed,
            resumes=known is None,
        )
        self._connections[host.name] = made
        self._forget_some()
        return made

    def _forget_some(self) -> None:
        """Those that were closed long ago, and on which is nothing, as their files have it: members
        may name hosts without an end.
        """
        if len(self._connections) < self._enough:
            return
        before = clock.monotonic() - KEPT_SECONDS
        for name, each in list(self._connections.items()):
            is_empty = not each.world.size and self._kept.get(name) == each.world.version
            if is_empty and each.closed_at is not None and each.closed_at <= before:
                del self._connections[name], self._kept[name]
        self._enough = max(FEW, 2 * len(self._connections))

    def _loaded(self, name: str) -> World:
        kept = self._directory / f"{name}.json"
        world = World.load(kept.read_bytes()) if kept.exists() else World()
        if world.begin(boots.here()) and self._in_control():
            self._write(name, world.version, Snapshot.of(world))
        return world

    async def keep(self) -> None:
        """Keep what has changed, for ever; large worlds less often."""
        while True:
            sizes = (each.world.size for each in self._connections.values())
            await asyncio.sleep(max(KEEP_SECONDS, max(sizes, default=0) / THINGS_A_SECOND))
            for changed in self._changed():
                await asyncio.to_thread(self._write, *changed)

    def save(self) -> None:
        """Keep what has changed, now."""
        for changed in self._changed():
            self._write(*changed)

    def _changed(self) -> Iterator[tuple[str, int, Snapshot]]:
        """Worlds that their files do not have, each as it is when it is asked for."""
        for name, connection in [*self._connections.items()]:
            version = connection.world.version
            if self._kept.get(name) != version and self._in_control():
                yield name, version, Snapshot.of(connection.world)

    def _write(self, name: str, version: int, snapshot: Snapshot) -> None:
        """A world with nothing in it leaves no file. What is kept already may be newer: a thread
        goes on with an older one whatever becomes of its task.
        """
        kept = self._directory / f"{name}.json"
        with self._writing:
            if self._kept.get(name, -1) >= version:
                return
            if snapshot.made:
                self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                part = kept.with_suffix(".part")
                part.write_bytes(snapshot.encoded())
                part.replace(kept)
            else:
                kept.unlink(missing_ok=True)
            self._kept[name] = version
