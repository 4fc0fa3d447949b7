"""A cloud as a whole: brought up, found again, repaired, and taken down.

All that it has lies in one directory and in its namespaces; its Python environment and its empty
databases lie in the cache. It outlives the command that started it.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from ipaddress import IPv4Network
from pathlib import Path

from nospoon.dev import environment
from nospoon.dev.cloud import interfaces, namespaces, preparation, programs, schema, start
from nospoon.dev.cloud.namespaces import Namespaces
from nospoon.dev.cloud.wanted import Api, Wanted
from nospoon.errors import Conflict, MissingTool, UsageError
from nospoon.runtime.owned import Process

LOCK_FILE = Path(__file__).with_name("cloud.txt")
NAME = "cloud"
RECORD, FILLED = "cloud.json", "filled"


@dataclass(frozen=True, slots=True)
class Cloud:
    """A cloud that was started. `made`: its Python environment."""

    wanted: Wanted
    where: Namespaces
    made: Path

    @property
    def state(self) -> Path:
        return self.where.state

    @property
    def clouds_file(self) -> Path:
        """What clients are given."""
        return self.state / "clouds.yaml"

    @property
    def is_filled(self) -> bool:
        """Whether it came up once."""
        return (self.state / FILLED).exists()


async def up(wanted: Wanted, *, state: Path, cache: Path) -> Cloud:
    """The cloud in `state`, running as wanted: started, repaired, or found.

    Raises `ProviderError` with the end of a service's log when that does not come up.
    """
    _need_root()
    _need_programs()
    made = await environment.ensure(cache, NAME, LOCK_FILE)
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _alone(state):
        found = recorded(state)
        if found is None or (found.wanted, found.made) != (wanted, made) or not found.is_filled:
            await _remove(state, found)
            found = None
        if found is None or not found.where.alive:
            found = await _begin(wanted, state=state, made=made)
        kept = await schema.kept(cache, LOCK_FILE)
        try:
            await start.complete(wanted, found.where, made, kept=kept)
        except BaseException:
            if not found.is_filled:  # the next `up` begins again; logs stay until then
                await found.where.end()
            raise
        (state / FILLED).touch()
    return found


async def down(*, state: Path, cache: Path, purge: bool) -> bool:
    """End it and remove all that it had; `purge`: what is in the cache, too. False: none was."""
    there = state.exists()
    if there:
        with _alone(state):
            await _remove(state, recorded(state))
            state.rmdir()
    if purge:
        environment.remove(cache, NAME)
        schema.remove(cache)
    return there


def recorded(state: Path) -> Cloud | None:
    """The one that was started here last; it may have ended since."""
    try:
        told = json.loads((state / RECORD).read_text())
    except FileNotFoundError:
        return None
    kept = told["wanted"]
    wanted = Wanted(**{**kept, "public": IPv4Network(kept["public"])})
    return Cloud(wanted, Namespaces(Process(**told["process"]), state), Path(told["made"]))


async def _begin(wanted: Wanted, *, state: Path, made: Path) -> Cloud:
    await interfaces.refuse_overlap(wanted)
    preparation.prepare(wanted, state=state, made=made)
    ports = [wanted.port(api) for api in Api]
    begun = Cloud(wanted, await namespaces.begin(state, ports), made)
    told = {
        "wanted": {**asdict(wanted), "public": str(wanted.public)},
        "process": asdict(begun.where.process),
        "made": str(made),
    }
    preparation.write(state / RECORD, json.dumps(told))
    return begun


async def _remove(state: Path, found: Cloud | None) -> None:
    """End it, and empty its directory. Its record goes last."""
    if found is not None:
        await found.where.end()
    for each in sorted(state.iterdir(), key=lambda path: path.name == RECORD):
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()


@contextmanager
def _alone(state: Path) -> Iterator[None]:
    """One caller at a time; the directory itself is the lock, so that nothing is left of it."""
    handle = os.open(state, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not state.exists():
            raise Conflict("another command took it down meanwhile", hint="Run this again.")
        yield
    finally:
        os.close(handle)


def _need_root() -> None:
    if os.geteuid() != 0:
        raise UsageError(
            "a cloud needs root: it makes namespaces and runs libvirt", hint="Run it with sudo."
        )


def _need_programs() -> None:
    """All of Debian's packages at once."""
    path = os.pathsep.join([*os.get_exec_path(), "/usr/sbin", "/sbin"])
    packages = {
        package for tool, package in programs.DEBIAN.items() if not shutil.which(tool, path=path)
    }
    if packages:
        names = " ".join(sorted(packages))
        raise MissingTool(f"the cloud needs {names}", hint=f"apt-get install -y {names}")
