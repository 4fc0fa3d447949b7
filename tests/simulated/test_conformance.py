"""The simulated connection keeps the promises of the driver contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from nospoon.model.cluster import Host
from nospoon.model.connections import Simulated, Simulation
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Image
from nospoon.providers.simulated import SimulatedConnection
from nospoon.providers.simulated.world import Made
from nospoon.testing.cloud_like import NETWORK, CloudLike, CloudLikeConnection
from nospoon.testing.conformance import DriverPromises
from nospoon.testing.racks import Bench, Stranger


def bench_of(connection: SimulatedConnection, place: Host, tmp_path: Path) -> Bench:
    """Strangers' things are written down as ours are, without a tag."""

    async def make_stranger(resource: Resource) -> Stranger:
        made = Made(resource.key, resource.shape, tag=None)
        connection.world.put(made)

        async def untouched() -> bool:
            return connection.world.find(resource) == made

        async def remove() -> None:
            connection.world.take_away(made)

        return Stranger(untouched, remove)

    async def remove_machine(resource: Resource) -> None:
        assert isinstance(resource.shape, Machine)
        connection.machine_driver.lose(resource.shape.uuid)

    return Bench(
        connection=connection,
        place=place,
        deployment="kit",
        pool_root=str(tmp_path),
        image=Image("", "ab" * 32, "raw", 1 << 20),
        make_stranger=make_stranger,
        remove_machine=remove_machine,
        patience=20.0,
        foreign="theirs",
    )


SPEAKING = Simulation(boot=0.1, console="login: ", machines=("theirs",))


class TestSimulated(DriverPromises):
    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncIterator[Bench]:
        connection = SimulatedConnection("sim", "kit", lambda: 1000.0, simulation=SPEAKING)
        yield bench_of(connection, Host("sim", Simulated()), tmp_path)
        await connection.close()


class TestCloudLike(DriverPromises):
    """The same machines, with all else declared."""

    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncIterator[Bench]:
        connection = CloudLikeConnection(SPEAKING)
        place = Host("cloudlike", CloudLike())
        bench = bench_of(connection, place, tmp_path)
        yield replace(bench, flavor="tiny", network=NETWORK)
        await connection.close()
