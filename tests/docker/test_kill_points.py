"""Killed before every command that changes an engine, and while it is given its input: the next
daemon ends as if nothing had been, and nothing is left.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.docker.conftest import PLACE, both_engines, know_facts
from tests.lxc.test_kill_points import (
    AT_ONCE,
    Ground,
    Mortal,
    expect_lives,
    open_seed,
    own_directory,
    take_down,
)

from nospoon.model.cluster import Host
from nospoon.model.connections import Docker
from nospoon.providers.base import Connection, OpenImage
from nospoon.providers.docker import DockerConnection
from nospoon.providers.docker.program.wire import Wire
from nospoon.testing.racks import Bench

pytestmark = pytest.mark.docker


@dataclass(frozen=True, kw_only=True)
class EngineGround(Ground):
    """Directories and clusters of their own; the engine is the same."""

    engine: Path

    def connected(self, runner: Mortal, open_image: OpenImage) -> Connection:
        made = DockerConnection(
            Host(PLACE, Docker(str(self.engine))), "kit", runner, open_image,
            root=str(self.directory / "pools"), records=str(self.directory / "records"),
            open_seed=open_seed,
        )  # fmt: skip
        know_facts(made, self.engine)
        return made

    def left(self) -> list[str]:
        """It is asked again and again: by the API, which costs a hundredth of a command."""
        name, wire = f"kit-{self.cluster.hex[:8]}", Wire(str(self.engine))
        listed = [
            said
            for kind, names in (("containers", "Names"), ("images", "RepoTags"))
            for each in wire.get(f"/{kind}/json", all="1")
            for said in each[names] or ()
        ]
        return [*super().left(), *(each for each in listed if name in each)]


@pytest.fixture
async def ground(
    bench: Bench, place: Path, images: dict[str, Path], engine: Path
) -> AsyncIterator[Callable[[], EngineGround]]:
    made: list[EngineGround] = []

    def another() -> EngineGround:
        made.append(EngineGround(bench, own_directory(place), images, engine=engine))
        return made[-1]

    yield another
    await take_down(made)


@both_engines
async def test_killed_at_any_command_the_next_daemon_ends_as_an_undisturbed_one(
    ground: Callable[[], EngineGround], engine: Path
) -> None:
    """An engine takes seconds for what liblxc does at once: removals are part of these lives. One
    at a time: Podman 4.3 loses layers of an image that one request reads and another removes. The
    daemon's commands are the same for both engines: of Docker's lives, a few.
    """
    at_once, every = (1, 1) if engine.name == "podman.sock" else (AT_ONCE, 7)
    await expect_lives(ground, with_removals=True, at_once=at_once, every=every)
