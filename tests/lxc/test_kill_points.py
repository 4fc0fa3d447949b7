"""Killed before every command that changes a host, and while it is given its input: the next daemon
ends as if nothing had been, and nothing is left.

The daemon's death is an exception that is no `Exception`, from one command on; what lives on is the
host. A command whose daemon is killed goes on: what it was not given yet, it never gets. That is
so of a connection by ssh that is cut, too.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid4

import pytest
from tests.lxc.conftest import PLACE
from tests.lxc.test_machines import eventually

from nospoon.model.cluster import Host
from nospoon.model.connections import Lxc
from nospoon.model.machine import PowerCommand
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Resource, Shape
from nospoon.model.resources.storage import Volume
from nospoon.model.seed import Seed
from nospoon.providers.base import Connection, OpenImage
from nospoon.providers.docker.host import text_of
from nospoon.providers.lxc import LxcConnection, scripts
from nospoon.runtime.process import Finished
from nospoon.runtime.runner import LocalRunner
from nospoon.testing.racks import MEBI, PLAN, Bench, observe_all, rack_for, remove_all
from nospoon.testing.trees import control_groups

pytestmark = pytest.mark.lxc

T = TypeVar("T")
READS = (scripts.LOOK, scripts.FACTS, text_of("observation"), "facts", "test", "-json")
"""Words of commands that change nothing: a death before one is a death before the next."""
AT_ONCE = 6


class Killed(BaseException):
    """The daemon is no more."""


@dataclass(eq=False)
class Mortal:
    """Commands of a daemon that dies at the one of this number, counted from 0: before it, or when
    it has written `half` of its input. As it is no `LocalRunner`, images are copied in pieces.
    """

    at: int = -1
    half: bool = False
    calls: int = 0
    given: list[int] = field(default_factory=list)
    dead: bool = False

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        if self.dead:
            raise Killed
        if any(word in READS for word in argv):
            return await LocalRunner().run(argv, stdin=stdin, check=check)
        mine, self.calls = self.calls, self.calls + 1
        if stdin:
            self.given.append(mine)
        if mine != self.at:
            return await LocalRunner().run(argv, stdin=stdin, check=check)
        self.dead = True
        if self.half and stdin:
            await LocalRunner().run(argv, stdin=stdin[: len(stdin) // 2], check=False)
        raise Killed


@dataclass(frozen=True)
class Daemon:
    """One of several on a host that outlives them."""

    bench: Bench
    runner: Mortal

    async def up(self, *, grown: bool = False) -> None:
        """What a plan has: that which is not there, or not as in the file. Then it is on, and has
        what it had to be off for.
        """
        there = await observe_all(self.bench)
        wanted = desired(self.bench, grown=grown)
        for each in wanted:
            has = there.get(each.key)
            if has is None or has.fault or has.shape != each.shape:
                await self.bench.connection.drivers[each.key.kind].create(each, self.bench.tag)
        (machine,) = await self.bench.connection.drivers[Kind.MACHINE].observe(self.bench.cluster)
        command = PowerCommand.CYCLE if machine.live is not None else PowerCommand.ON
        assert isinstance(machine.shape, Machine)
        await self.bench.connection.machine_driver.power(machine.shape.uuid, command, PLAN)

    async def change(self) -> None:
        await self.up(grown=True)

    async def down(self) -> None:
        await remove_all(self.bench)


def desired(bench: Bench, *, grown: bool) -> list[Resource]:
    rack = rack_for(bench)
    machine, root = rack.machine.shape, rack.blank.shape
    assert isinstance(machine, Machine)
    assert isinstance(root, Volume)
    machine = replace(machine, seed="#cloud-config", memory=(96 if grown else 64) * MEBI)
    root = replace(root, size=(12 if grown else 8) * MEBI)
    return [
        rack.pool,
        rack.image,
        replace(rack.blank, shape=root),
        replace(rack.machine, shape=machine),
    ]


async def open_seed(digest: str) -> Seed:
    return Seed("m0", "m0", (), digest, "")


@dataclass(frozen=True)
class Ground:
    """A host of its own for each death: its directory of pools, and its cluster."""

    bench: Bench
    directory: Path
    images: dict[str, Path]
    cluster: UUID = field(default_factory=uuid4)

    def daemon(self, at: int = -1, *, half: bool = False) -> Daemon:
        async def open_image(sha256: str) -> str:
            return str(self.images[sha256])

        runner = Mortal(at, half)
        connection, root = self.connected(runner, open_image), str(self.directory / "pools")
        bench = replace(self.bench, connection=connection, pool_root=root, cluster=self.cluster)
        return Daemon(bench, runner)

    def connected(self, runner: Mortal, open_image: OpenImage) -> Connection:
        return LxcConnection(
            Host(PLACE, Lxc()), "kit", runner, open_image,
            root=str(self.directory / "pools"), records=str(self.directory / "records"),
            open_seed=open_seed,
        )  # fmt: skip

    def desired(self, *, grown: bool) -> dict[Key, tuple[Shape, bool, bool]]:
        """What `state` is then."""
        wanted = desired(self.daemon().bench, grown=grown)
        return {each.key: (each.shape, each.key.kind is Kind.MACHINE, True) for each in wanted}

    async def state(self) -> dict[Key, tuple[Shape, bool, bool]]:
        """Shape, whether it runs, and whether with that shape."""
        seen = await observe_all(self.daemon().bench)
        return {
            key: (each.shape, each.running, each.live is None and not each.fault)
            for key, each in seen.items()
        }

    def left(self) -> list[str]:
        name = f"kit-{self.cluster.hex[:8]}"
        done = subprocess.run(["losetup", "-a"], text=True, capture_output=True, check=True)
        files = (self.directory / "pools").rglob("*")
        loops = (line for line in done.stdout.splitlines() if str(self.directory) in line)
        return [*map(str, (*control_groups(name), *files)), *loops]

    async def nothing_left(self) -> None:
        """The kernel gives loop devices back a moment after the last mount has ended."""
        await eventually(lambda: self.left() == [])


Act = Callable[[Daemon], Awaitable[None]]
ACTS: tuple[Act, ...] = (Daemon.up, Daemon.change, Daemon.down)
Point = tuple[int, bool]
"""Number of a command, and whether it is given half of its input."""


@pytest.fixture
async def ground(
    bench: Bench, place: Path, images: dict[str, Path]
) -> AsyncIterator[Callable[[], Ground]]:
    """Containers of a life that failed end with the test."""
    made: list[Ground] = []

    def another() -> Ground:
        made.append(Ground(bench, own_directory(place), images))
        return made[-1]

    yield another
    await take_down(made)


def own_directory(place: Path) -> Path:
    directory = place / uuid4().hex
    (directory / "records").mkdir(parents=True)
    directory.chmod(0o711)
    return directory


async def take_down(grounds: Sequence[Ground]) -> None:
    for each in grounds:
        if any((each.directory / "pools").glob("*")):
            await each.daemon().down()


async def points(ground: Ground) -> list[list[Point]]:
    """Of each act: each command, and each that is given something."""
    found: list[list[Point]] = []
    for act in ACTS:
        daemon = ground.daemon()
        await act(daemon)
        calls, given = range(daemon.runner.calls), daemon.runner.given
        found.append([*((at, False) for at in calls), *((at, True) for at in given)])
    await ground.nothing_left()
    return found


async def die(ground: Ground, act: Act, point: Point) -> None:
    at, half = point
    with pytest.raises(Killed):
        await act(ground.daemon(at, half=half))


async def each_of(
    some: Sequence[T], check: Callable[[T], Awaitable[None]], *, at_once: int = AT_ONCE
) -> None:
    """A few at a time."""
    left = iter(some)

    async def work() -> None:
        for each in left:
            try:
                await check(each)
            except Exception as error:
                error.add_note(f"killed at {each}")
                raise

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())


async def test_killed_at_any_command_the_next_daemon_ends_as_an_undisturbed_one(
    ground: Callable[[], Ground],
) -> None:
    await expect_lives(ground)


async def expect_lives(
    ground: Callable[[], Ground],
    *,
    with_removals: bool = False,
    at_once: int = AT_ONCE,
    every: int = 1,
) -> None:
    """A life of a cluster has a death in each of its acts. `with_removals`: what every other `up`
    left when it died is removed before the next one; `every`: one of so many lives is lived.
    """
    all_points = await points(ground())
    assert min(map(len, all_points)) > 5

    async def check(deaths: tuple[Point | None, ...]) -> None:
        mine = ground()
        for act, death in zip(ACTS, deaths, strict=True):
            if death is not None:
                await die(mine, act, death)
                if with_removals and act is Daemon.up and death[0] % 2:
                    await mine.daemon().down()
                    await mine.nothing_left()
            elif act is Daemon.change:
                continue
            await act(mine.daemon())
            if act is not Daemon.down:
                assert await mine.state() == mine.desired(grown=act is Daemon.change)
        await mine.nothing_left()

    await each_of(list(zip_longest(*all_points))[::every], check, at_once=at_once)


async def test_what_was_interrupted_at_any_command_can_be_removed(
    ground: Callable[[], Ground],
) -> None:
    async def check(death: Point) -> None:
        mine = ground()
        await die(mine, Daemon.up, death)
        await mine.daemon().down()
        await mine.nothing_left()

    await each_of((await points(ground()))[0], check)
