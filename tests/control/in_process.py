"""A daemon in this process whose use cases are called without its API; machines are simulated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.control.asking import HOST, OTHER, OWNER, Asking, file_of
from tests.security.asked import a_daemon

from nospoon.daemon.wiring import Daemon

__all__ = ["HOST", "OTHER", "OWNER", "AskingDaemon", "a_control_plane", "file_of"]


@dataclass(kw_only=True, slots=True)
class AskingDaemon(Asking):
    """What a user asks of the use cases of a daemon."""

    daemon: Daemon


@asynccontextmanager
async def a_control_plane(directory: Path, **environment: str) -> AsyncIterator[AskingDaemon]:
    async with a_daemon(directory, **environment) as asked:
        parts, control = asked.daemon.parts, asked.daemon.control
        yield AskingDaemon(
            daemon=asked.daemon,
            admins=parts.admins,
            database=parts.database,
            planner=parts.planner,
            memory=control.memory,
            operations=control.operations,
            controller=control.controller,
            connection=lambda name: parts.simulations._connections[name],
        )
