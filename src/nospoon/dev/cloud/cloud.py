"""A cloud as a whole: brought up, found again, repaired, and taken down.

All that it has lies in one directory and in its namespaces; its Python environment and its empty
databases lie in the cache. It outlives the command that started it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from ipaddress import IPv4Network
from pathlib import Path

from nospoon.dev import environment
from nospoon.dev.alone import alone
from nospoon.dev.cloud import (
    baremetal,
    computes,
    interfaces,
    joining,
    namespaces,
    preparation,
    programs,
    schema,
    start,
    volumes,
)
from nospoon.dev.cloud.client import is_answering
from nospoon.dev.cloud.computes import Virt
from nospoon.dev.cloud.namespaces import Namespaces
from nospoon.dev.cloud.wanted import Api, Wanted
from nospoon.errors import MissingTool, ProviderError, UsageError
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
    def interface(self) -> str:
        """The host's, to the provider network; "" for none."""
        return "" if self.wanted.container else interfaces.link(self.wanted)

    @property
    def apis(self) -> list[Api]:
        """What clients reach. Ironic and Cinder may not be in it."""
        has_ironic = any(each.virt is Virt.IRONIC for each in computes.recorded(self.state))
        joined = {Api.IRONIC: has_ironic, Api.CINDER: volumes.are_in(self.state)}
        return [each for each in Api if joined.get(each, True)]

    @property
    def is_filled(self) -> bool:
        """Whether it came up once."""
        return (self.state / FILLED).exists()


async def up(wanted: Wanted, *, state: Path, cache: Path, cinder: bool = False) -> Cloud:
    """The cloud in `state`, running as wanted: started, repaired, or found. `cinder`: it has
    volumes from now on; those of one that has them stay.

    Raises `ProviderError` with the end of a service's log when that does not come up.
    """
    _need_root()
    need_programs(programs.DEBIAN)
    made = environment.place(cache, NAME, LOCK_FILE)
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    with alone(state):
        found = recorded(state)
        if found is None or (found.wanted, found.made) != (wanted, made) or not found.is_filled:
            await _remove(state, found)
            found = None
        if found is None or not found.where.alive:
            with namespaces.listening([wanted.port(api) for api in Api]) as listeners:
                await interfaces.disconnect(wanted)  # of one that ended: who runs has the ports
                await interfaces.refuse_overlap(wanted)
                await environment.ensure(cache, NAME, LOCK_FILE)
                preparation.prepare(wanted, state=state, made=made)
                await joining.clear(state)
                where = await namespaces.begin(state, listeners)
            found = Cloud(wanted, where, made)
            _record(found)
        if cinder or volumes.are_in(state):
            await volumes.ensure(made)
            volumes.prepare(wanted, preparation.passwords(state), state=state, made=made)
        kept = await schema.kept(cache, LOCK_FILE)
        try:
            added = computes.recorded(state)
            if any(each.virt is Virt.IRONIC for each in added):
                await baremetal.ensure(made)
            await start.complete(wanted, found.where, made, kept=kept, added=added)
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
        with alone(state):
            await _remove(state, recorded(state))
            state.rmdir()
    if purge:
        environment.remove(cache, NAME)
        environment.remove(cache, volumes.NAME)
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


async def problems(found: Cloud) -> list[str]:
    """What does not work of a cloud that runs: services that ended, and APIs that do not answer."""
    try:
        services = await found.where.services()
    except (OSError, ProviderError):
        return ["its first process does not answer"]
    ended = [
        f"{name} ended with status {code}" for name, code in services.items() if code is not None
    ]
    silent = [
        f"{api} does not answer"
        for api in found.apis
        if api is not Api.SERIAL and not await asyncio.to_thread(is_answering, found.wanted, api)
    ]
    missing = [] if found.is_filled else ["it did not come up completely"]
    return missing + ended + silent


def _record(begun: Cloud) -> None:
    told = {
        "wanted": {**asdict(begun.wanted), "public": str(begun.wanted.public)},
        "process": asdict(begun.where.process),
        "made": str(begun.made),
    }
    preparation.write(begun.state / RECORD, json.dumps(told))


async def _remove(state: Path, found: Cloud | None) -> None:
    """End it, and empty its directory. Its record goes last."""
    if found is not None:
        await found.where.end()
        await interfaces.disconnect(found.wanted)
    await joining.clear(state)
    for each in sorted(state.iterdir(), key=lambda path: path.name == RECORD):
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()


def _need_root() -> None:
    if os.geteuid() != 0:
        raise UsageError(
            "a cloud needs root: it makes namespaces and runs libvirt", hint="Run it with sudo."
        )


def need_programs(wanted: Mapping[str, str]) -> None:
    """All packages that are missing at once. `wanted`: Debian's package of each program."""
    path = os.pathsep.join([*os.get_exec_path(), "/usr/sbin", "/sbin"])
    packages = {package for tool, package in wanted.items() if not shutil.which(tool, path=path)}
    if packages:
        names = " ".join(sorted(packages))
        raise MissingTool(f"the cloud needs {names}", hint=f"apt-get install -y {names}")
