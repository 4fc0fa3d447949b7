"""Simulated hosts of a daemon: their worlds live in memory and are kept over a good end."""

from __future__ import annotations

from pathlib import Path

from nospoon.model.cluster import Host
from nospoon.providers.simulated.connection import SimulatedConnection
from nospoon.providers.simulated.world import World
from nospoon.runtime import clock


class Simulations:
    """Worlds by host name, in one directory."""

    def __init__(self, directory: Path, deployment: str) -> None:
        self._directory, self._deployment = directory, deployment
        self._connections: dict[str, SimulatedConnection] = {}

    def connect(self, host: Host, records: Path) -> SimulatedConnection:
        """The host's world, as it was left."""
        kept = self._directory / f"{host.name}.json"
        world = World.load(kept.read_bytes()) if kept.exists() else World()
        made = SimulatedConnection(
            host.name,
            self._deployment,
            clock.unix,
            world=world,
            records=records,
            simulation=host.simulation,
        )
        self._connections[host.name] = made
        return made

    def save(self) -> None:
        """Keep what there is; a world with nothing in it leaves no file."""
        for name, connection in self._connections.items():
            kept = self._directory / f"{name}.json"
            if not connection.world.made:
                kept.unlink(missing_ok=True)
                continue
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            kept.write_bytes(connection.world.dump())
