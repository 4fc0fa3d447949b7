"""The lxc connection keeps the promises of the driver contract, with containers of busybox."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Pool
from nospoon.testing.conformance import DriverPromises
from nospoon.testing.racks import Bench, Stranger

pytestmark = pytest.mark.lxc


class TestLxc(DriverPromises):
    @pytest.fixture
    def bench(self, bench: Bench) -> Bench:
        return replace(
            bench,
            make_stranger=lambda resource: make_stranger(bench, resource),
            remove_machine=lambda resource: remove_machine(bench, resource),
            read_seed=lambda machine, name: read_seed(bench, machine, name),
        )


def path_of(bench: Bench, resource: Resource) -> Path:
    match resource.shape:
        case Pool(path):
            return Path(path)
        case Machine():
            name = f"{bench.pool.removeprefix('nospoon-')}-{resource.key.name}"
            return Path(bench.pool_root, bench.pool, name)
        case _:
            raise AssertionError(resource)


async def read_seed(bench: Bench, machine: Machine, name: str) -> str:
    """As the container's own processes see it."""
    seen = await bench.connection.machine_driver.host.look()  # type: ignore[attr-defined]
    init = seen.running[seen.machines[machine.uuid]].init
    return Path(f"/proc/{init}/root/var/lib/cloud/seed/nocloud/{name}").read_text()


async def make_stranger(bench: Bench, resource: Resource) -> Stranger | None:
    """A directory that has something of another's."""
    path = path_of(bench, resource)
    path.mkdir(parents=True)
    (path / "theirs").write_text("theirs")

    async def untouched() -> bool:
        return [each.name for each in path.iterdir()] == ["theirs"]

    async def remove() -> None:
        shutil.rmtree(path)

    return Stranger(untouched, remove)


async def remove_machine(bench: Bench, resource: Resource) -> None:
    shutil.rmtree(path_of(bench, resource))
