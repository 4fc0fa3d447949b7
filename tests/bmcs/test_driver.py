"""BMCs as resources: the promises of a driver."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid4

import pytest

from nospoon.errors import Gone, ProviderError
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.driver import BmcDriver
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.services.bmcs.service import BmcService
from nospoon.testing.bench import CLUSTER, MemoryMachines, MemoryStore, config, free_port

TAG = OwnerTag("kit", CLUSTER)


@dataclass
class MemoryRecords:
    """Records of BMCs, and the configurations of those whose nodes are known."""

    configs: dict[UUID, BmcConfig]
    kept: dict[UUID, tuple[Key, Bmc, OwnerTag]] = field(default_factory=dict)
    full: bool = False

    async def all(self, cluster: UUID | None) -> Sequence[tuple[Key, Bmc, OwnerTag]]:
        return [row for row in self.kept.values() if row[2].cluster == cluster]

    async def put(self, key: Key, bmc: Bmc, tag: OwnerTag) -> None:
        if self.full:
            raise ProviderError("disk full")
        self.kept[bmc.uuid] = key, bmc, tag

    async def remove(self, bmc: UUID) -> None:
        self.kept.pop(bmc, None)

    async def config(self, resource: Resource) -> BmcConfig:
        assert isinstance(resource.shape, Bmc)
        if resource.shape.uuid not in self.configs:
            raise Gone("no such node")
        return replace(self.configs[resource.shape.uuid], bmc=resource.shape)


@dataclass
class Rig:
    """A driver, its service and its records, and one BMC to make."""

    driver: BmcDriver
    service: BmcService
    records: MemoryRecords
    resource: Resource
    shape: Bmc


@asynccontextmanager
async def rig() -> AsyncIterator[Rig]:
    made = config(1, redfish_port=free_port(socket.SOCK_STREAM))
    records = MemoryRecords({made.bmc.uuid: made})
    resource = Resource(Key(Kind.BMC, "here", made.node), made.bmc, node=made.node)
    async with Tasks("test") as tasks:
        service = BmcService(MemoryMachines(), MemoryStore(), tasks)
        try:
            driver = BmcDriver(service, records)
            yield Rig(driver, service, records, resource, made.bmc)
        finally:
            await service.close()


async def test_what_was_made_is_served_and_observed() -> None:
    async with rig() as r:
        await r.driver.create(r.resource, TAG)
        [found] = await r.driver.observe(CLUSTER)
        assert (found.key, found.shape, found.tag) == (r.resource.key, r.shape, TAG)
        assert found.fault == ""
        assert await r.driver.observe(uuid4()) == []


async def test_making_twice_is_no_error() -> None:
    async with rig() as r:
        await r.driver.create(r.resource, TAG)
        await r.driver.create(r.resource, TAG)
        assert len(await r.driver.observe(CLUSTER)) == 1


async def test_removing_twice_is_no_error() -> None:
    async with rig() as r:
        await r.driver.create(r.resource, TAG)
        [found] = await r.driver.observe(CLUSTER)
        await r.driver.delete(found)
        await r.driver.delete(found)
        assert await r.driver.observe(CLUSTER) == []
        assert r.service.status(r.shape.uuid) is None


async def test_a_bmc_that_is_on_record_and_not_served_has_a_fault() -> None:
    async with rig() as r:
        await r.driver.create(r.resource, TAG)
        await r.service.remove(r.shape.uuid)
        [found] = await r.driver.observe(CLUSTER)
        assert found.fault


async def test_the_fault_of_one_that_could_not_be_served_at_start_up_says_why() -> None:
    async with rig() as r:
        await r.driver.create(r.resource, TAG)
        await r.service.remove(r.shape.uuid)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind((r.shape.address, r.shape.ipmi_port))
            failed = await r.driver.restore([(r.resource, TAG)])
            [found] = await r.driver.observe(CLUSTER)
            assert found.fault == f"not served: {failed[r.resource.key.name]}"
            assert str(r.shape.ipmi_port) in found.fault
        await r.driver.change(found, r.resource, TAG)
        assert [each.fault for each in await r.driver.observe(CLUSTER)] == [""]


async def test_a_change_of_port_is_served_there_and_no_more_here() -> None:
    async with rig() as r:
        await r.driver.create(r.resource, TAG)
        [found] = await r.driver.observe(CLUSTER)
        moved = replace(r.shape, ipmi_port=free_port(socket.SOCK_DGRAM))
        await r.driver.change(found, replace(r.resource, shape=moved), TAG)
        [after] = await r.driver.observe(CLUSTER)
        assert (after.shape, after.fault) == (moved, "")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as old:
            old.bind((r.shape.address, r.shape.ipmi_port))


async def test_what_could_not_be_recorded_is_not_served() -> None:
    async with rig() as r:
        r.records.full = True
        with pytest.raises(ProviderError, match="disk full"):
            await r.driver.create(r.resource, TAG)
        assert r.service.status(r.shape.uuid) is None


async def test_a_bmc_of_an_unknown_node_is_refused() -> None:
    async with rig() as r:
        r.records.configs.clear()
        with pytest.raises(Gone):
            await r.driver.create(r.resource, TAG)


async def test_a_restart_serves_what_it_can_and_tells_the_rest() -> None:
    async with rig() as r:
        stranger = replace(r.resource, key=replace(r.resource.key, name="stranger"))
        lost = replace(stranger, shape=replace(r.shape, uuid=uuid4()))
        failed = await r.driver.restore([(r.resource, TAG), (lost, TAG)])
        assert failed == {"stranger": "no such node"}
        assert r.service.status(r.shape.uuid) is not None
