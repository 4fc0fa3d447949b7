"""One kit of tests for every connection: the promises of `nospoon.providers.base`.

A test module derives a class from `DriverPromises` and gives a fixture `bench`; pytest then finds
the inherited tests. The kit makes things of a cluster with a random id, and removes them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from nospoon.errors import Gone, NotOurs, ProviderError
from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.declared import Console, Networking, Sizes, Uuids
from nospoon.model.machine import MachineChange, Outcome, PowerCommand, PowerState
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.networks import Carried, Link, Port, Trunk
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Volume
from nospoon.model.seed import Seed
from nospoon.plan import identity
from nospoon.providers.base import Medium
from nospoon.testing.planned import carried_out, cluster_of, planned, refused
from nospoon.testing.racks import (
    MEBI,
    PLAN,
    SEEDS,
    AnyRack,
    Bench,
    Rack,
    adoptable,
    any_rack,
    events_of,
    found,
    make,
    observe_all,
    observe_everything,
    remove_all,
    until,
)


class DriverPromises:
    """Derive, give a fixture `bench`, and every promise is tested."""

    @pytest.fixture
    async def rack(self, bench: Bench) -> AsyncIterator[AnyRack]:
        yield any_rack(bench)
        await remove_all(bench)

    async def test_the_connection_is_usable_and_says_what_it_can(self, bench: Bench) -> None:
        await bench.connection.check()
        capabilities = await bench.connection.capabilities()
        assert capabilities.kinds == frozenset(bench.connection.drivers)
        declares = bench.declares
        assert (Kind.NETWORK in capabilities.kinds) is declares.makes_networks
        assert (Kind.POOL in capabilities.kinds) is declares.has_pools
        assert (Kind.PORT in capabilities.kinds) is declares.has_ports
        assert (Kind.BOOT_IMAGE in capabilities.kinds) is declares.has_boot_image
        machines = bench.connection.machine_driver
        assert declares.boot is not BootMethod.NATIVE or machines.boot_order is not None
        assert declares.boot is not BootMethod.NONE or machines.boot_order is None

    async def test_the_sizes_and_networks_that_are_declared_are_there(self, bench: Bench) -> None:
        facts = await bench.connection.survey(bench.pool_root, ())
        assert bool(facts.sizes) is (bench.declares.sizes is Sizes.FLAVORS)
        assert bench.flavor in {each.name for each in facts.sizes} | {""}
        assert bench.network in (facts.networks or ()) or not bench.network

    async def test_a_plan_for_it_is_carried_out_and_the_next_one_is_empty(
        self, bench: Bench
    ) -> None:
        """What the plan decides follows from what the connection declares, and finds."""
        cluster = cluster_of(bench)
        try:
            plan = await planned(bench, cluster)
            outcome = await carried_out(bench, plan)
            assert outcome.complete, outcome.failures
            assert {each.key.kind for each in plan.steps} <= frozenset(bench.connection.drivers)
            again = await planned(bench, cluster)
            assert again.empty, again.steps
            (machine,) = (each for each in (await observe_all(bench)).values()
                          if isinstance(each.shape, Machine))  # fmt: skip
            assert isinstance(machine.shape, Machine)
            asks = bench.kind is NodeKind.BAREMETAL
            assert machine.shape.boot is bench.declares.boot_of(asks=asks)
            assert bool(machine.shape.flavor) is (bench.declares.sizes is Sizes.FLAVORS)
        finally:
            await remove_all(bench)

    async def test_a_network_that_it_does_not_make_is_refused(self, bench: Bench) -> None:
        if bench.declares.networking is not Networking.EXISTING:
            return
        (why,) = await refused(bench, cluster_of(bench, "netboot: none"))
        assert "makes no networks" in why
        (why,) = await refused(bench, cluster_of(bench, "bridge: elsewhere"))
        assert "has no network elsewhere" in why
        (why,) = await refused(bench, cluster_of(bench, "physnet: outside"))
        assert "maps no network to physical network outside" in why
        named = replace(bench.place, physnets=(("outside", bench.network),))
        there = replace(bench, place=named)
        plan = await planned(there, cluster_of(there, "physnet: outside"))
        (nic,) = (nic for step in plan.steps if step.desired is not None
                  and isinstance(step.desired.shape, Machine)
                  for nic in step.desired.shape.nics)  # fmt: skip
        assert nic.network == bench.network

    async def test_a_machine_is_known_by_the_uuid_that_its_guest_sees(
        self, bench: Bench, rack: AnyRack
    ) -> None:
        await make(bench, *rack.all)
        driver = bench.connection.machine_driver
        await driver.power(rack.uuid, PowerCommand.ON, PLAN)
        (event,) = (each for each in await driver.machines() if each.uuid == rack.uuid)
        if bench.declares.uuids is Uuids.CHOSEN:
            assert event.smbios is None
        else:
            assert event.smbios not in {None, rack.uuid}

    async def test_of_a_fresh_cluster_nothing_is_observed(self, bench: Bench) -> None:
        assert await observe_all(bench) == {}

    async def test_what_was_created_is_observed_with_its_shape_and_tag(
        self, bench: Bench, rack: AnyRack
    ) -> None:
        await make(bench, *rack.all)
        observed = await observe_all(bench)
        assert {key: each.shape for key, each in observed.items()} == {
            each.key: each.shape for each in rack.all
        }
        assert {(each.tag.deployment, each.tag.cluster) for each in observed.values()} == {
            (bench.deployment, bench.cluster)
        }
        assert not any(each.running or each.fault for each in observed.values())

    async def test_creating_again_changes_nothing(self, bench: Bench, rack: AnyRack) -> None:
        await make(bench, *rack.all)
        before = {key: each.shape for key, each in (await observe_all(bench)).items()}
        await make(bench, *rack.all)
        assert {key: each.shape for key, each in (await observe_all(bench)).items()} == before

    async def test_other_clusters_see_nothing_of_it(self, bench: Bench, rack: AnyRack) -> None:
        await make(bench, *rack.all)
        assert await observe_all(bench, uuid4()) == {}

    async def test_everything_of_the_deployment_is_seen_with_whose_it_is(
        self, bench: Bench, rack: AnyRack
    ) -> None:
        other = replace(bench, cluster=uuid4())
        pool = any_rack(other).all[0]
        await make(bench, *rack.all)
        await make(other, pool)
        try:
            seen = await observe_everything(bench)
            ours = {each.key for each in seen if each.tag.cluster == bench.cluster}
            assert ours == {each.key for each in rack.all}
            assert [e.key for e in seen if e.tag.cluster == other.cluster] == [pool.key]
            told = {(each.tag.name, each.tag.uid) for each in seen if each.key == pool.key}
            assert told == {("the kit's", 1234)}
            assert (await bench.connection.deployments())[bench.deployment] > 0
        finally:
            await remove_all(other)

    async def test_deleting_twice_leaves_nothing_and_is_no_error(
        self, bench: Bench, rack: AnyRack
    ) -> None:
        await make(bench, *rack.all)
        observed = await observe_all(bench)
        for resource in reversed(rack.all):
            driver = bench.connection.drivers[resource.key.kind]
            await driver.delete(observed[resource.key])
            await driver.delete(observed[resource.key])
        assert await observe_all(bench) == {}

    @pytest.mark.parametrize("kind", [Kind.POOL, Kind.NETWORK, Kind.MACHINE])
    async def test_what_is_somebody_elses_is_refused_and_left_alone(
        self, bench: Bench, rack: AnyRack, kind: Kind
    ) -> None:
        resource = next((each for each in rack.all if each.key.kind is kind), None)
        if resource is None:
            return
        if kind is Kind.MACHINE:
            await make(bench, *rack.all[:-1])
        stranger = await bench.make_stranger(resource)
        if stranger is None:
            return
        try:
            with pytest.raises(NotOurs) as refusal:
                await make(bench, resource)
            assert bench.host in str(refusal.value)
            assert await stranger.untouched()
            assert resource.key not in await observe_all(bench)
        finally:
            await stranger.remove()

    async def test_a_volume_grows_in_place(self, bench: Bench, rack: AnyRack) -> None:
        if not isinstance(rack, Rack):
            return
        await make(bench, rack.pool, rack.image, rack.blank)
        assert isinstance(rack.blank.shape, Volume)
        larger = replace(rack.blank, shape=replace(rack.blank.shape, size=12 * MEBI))
        driver = bench.connection.drivers[Kind.VOLUME]
        await driver.change(await found(bench, rack.blank), larger, bench.tag)
        assert (await found(bench, rack.blank)).shape == larger.shape

    async def test_a_volume_never_shrinks(self, bench: Bench, rack: AnyRack) -> None:
        if not isinstance(rack, Rack):
            return
        await make(bench, rack.pool, rack.image, rack.blank)
        assert isinstance(rack.blank.shape, Volume)
        smaller = replace(rack.blank, shape=replace(rack.blank.shape, size=4 * MEBI))
        driver = bench.connection.drivers[Kind.VOLUME]
        with pytest.raises(ProviderError, match="shrink"):
            await driver.change(await found(bench, rack.blank), smaller, bench.tag)
        assert (await found(bench, rack.blank)).shape == rack.blank.shape

    async def test_virtual_ips_of_a_port_change_in_place(self, bench: Bench, rack: AnyRack) -> None:
        port = next((each for each in rack.all if isinstance(each.shape, Port)), None)
        if port is None or rack.link is None:
            return
        assert isinstance(port.shape, Port)
        shape = replace(port.shape, guarded=True)
        await make(bench, rack.link, replace(port, shape=shape))
        driver = bench.connection.drivers[Kind.PORT]
        for addresses in (("192.0.2.8", "192.0.2.9"), ("192.0.2.9",), ()):
            other = replace(port, shape=replace(shape, virtual_ips=addresses))
            await driver.change(await found(bench, port), other, bench.tag)
            assert (await found(bench, port)).shape == other.shape

    async def test_what_a_trunk_carries_changes_in_place(self, bench: Bench, rack: AnyRack) -> None:
        driver = bench.connection.drivers.get(Kind.TRUNK)
        port = next((each for each in rack.all if isinstance(each.shape, Port)), None)
        if driver is None or port is None or rack.link is None:
            return
        assert isinstance(port.shape, Port)
        bridge = identity.bridge_name(bench.cluster, "tagged")
        link = Resource(Key(Kind.NETWORK, bench.host, "tagged"), Link(bridge))
        plug = Port(bridge, port.shape.mac, vlan=101)
        tagged = Resource(Key(Kind.PORT, bench.host, f"{port.key.name}.101"), plug)
        key = Key(Kind.TRUNK, bench.host, port.key.name)
        trunk = Trunk(port.shape.network, plug.mac, (Carried(101, bridge),))
        whole = Resource(key, trunk, (port.key, tagged.key))
        await make(bench, rack.link, link, port, tagged, whole)
        for shape in (replace(trunk, carries=()), trunk):
            other = replace(whole, shape=shape)
            await driver.change(await found(bench, whole), other, bench.tag)
            assert (await found(bench, whole)).shape == shape
        await driver.delete(await found(bench, whole))
        seen = await observe_all(bench)
        assert key not in seen
        assert seen[tagged.key].shape == plug

    async def test_a_disk_is_not_removed_from_a_machine_that_runs_with_it(
        self, bench: Bench, rack: AnyRack
    ) -> None:
        if not isinstance(rack, Rack):
            return
        await make(bench, *rack.all)
        machine, volumes = bench.connection.machine_driver, bench.connection.drivers[Kind.VOLUME]
        await machine.power(rack.uuid, PowerCommand.ON, PLAN)
        before = await found(bench, rack.blank)
        with pytest.raises(ProviderError, match=r"disk of node m0, which is running with it"):
            await volumes.delete(before)
        assert (await found(bench, rack.blank)).shape == before.shape
        await machine.power(rack.uuid, PowerCommand.OFF, PLAN)
        await volumes.delete(before)
        assert rack.blank.key not in await observe_all(bench)

    async def test_a_machine_changes_in_place(self, bench: Bench, rack: AnyRack) -> None:
        await make(bench, *rack.all)
        assert isinstance(rack.machine.shape, Machine)
        rules = (await bench.connection.capabilities()).rules[Kind.MACHINE]
        changes: dict[str, Any] = {
            "cpus": 2,
            "memory": 96 * MEBI,
            "boot_order": (BootDevice.NETWORK, BootDevice.DISK),
            "disks": rack.machine.shape.disks[:1],
        }
        may_change = {name: value for name, value in changes.items() if name in rules}
        assert may_change
        other = replace(rack.machine.shape, **may_change)
        driver = bench.connection.drivers[Kind.MACHINE]
        await driver.change(
            await found(bench, rack.machine), replace(rack.machine, shape=other), bench.tag
        )
        assert (await found(bench, rack.machine)).shape == other

    async def test_cloud_init_is_given_a_seed_and_another_one_at_the_next_start(
        self, bench: Bench, rack: AnyRack
    ) -> None:
        if not isinstance(rack, Rack):
            return
        machine, driver = bench.connection.machine_driver, bench.connection.drivers[Kind.MACHINE]
        assert isinstance(rack.machine.shape, Machine)
        shapes = [replace(rack.machine.shape, seed=each.digest) for each in SEEDS]
        await make(bench, *rack.all[:-1], replace(rack.machine, shape=shapes[0]))
        assert (await found(bench, rack.machine)).shape == shapes[0]
        await machine.power(rack.uuid, PowerCommand.ON, PLAN)
        await self.expect_seed(bench, shapes[0], SEEDS[0])
        changed = replace(rack.machine, shape=shapes[1])
        await driver.change(await found(bench, rack.machine), changed, bench.tag)
        seen = await found(bench, rack.machine)
        assert seen.shape == shapes[1]
        assert seen.live == shapes[0]
        await machine.power(rack.uuid, PowerCommand.CYCLE, PLAN)
        seen = await found(bench, rack.machine)
        assert (seen.shape, seen.live) == (shapes[1], None)
        await self.expect_seed(bench, shapes[1], SEEDS[1])

    async def expect_seed(self, bench: Bench, machine: Machine, seed: Seed) -> None:
        if bench.read_seed is not None:
            for name, content in seed.files.items():
                assert await bench.read_seed(machine, name) == content

    async def test_power_goes_on_and_off_and_is_told(self, bench: Bench, rack: AnyRack) -> None:
        await make(bench, *rack.all)
        driver = bench.connection.machine_driver
        async with events_of(bench, rack.uuid) as queue:
            assert (await until(queue, MachineChange.OBSERVED, 60)).power is PowerState.OFF
            outcome = await driver.power(rack.uuid, PowerCommand.ON, PLAN)
            assert outcome is Outcome.CHANGED
            assert await self.power_of(bench, rack.uuid) is PowerState.ON
            started = await until(queue, MachineChange.STARTED, bench.patience)
            assert started.power is PowerState.ON
            assert (await found(bench, rack.machine)).running
            unchanged = await driver.power(rack.uuid, PowerCommand.ON, PLAN)
            assert unchanged is Outcome.UNCHANGED
            outcome = await driver.power(rack.uuid, PowerCommand.RESET, PLAN)
            assert outcome is Outcome.CHANGED
            await until(queue, MachineChange.RESET, bench.patience)
            await driver.power(rack.uuid, PowerCommand.CYCLE, PLAN)
            await until(queue, MachineChange.STARTED, bench.patience)
            outcome = await driver.power(rack.uuid, PowerCommand.OFF, PLAN)
            assert outcome is Outcome.CHANGED
            assert await self.power_of(bench, rack.uuid) is PowerState.OFF
            await until(queue, MachineChange.STOPPED, bench.patience)
            for command in (PowerCommand.OFF, PowerCommand.SOFT):
                unchanged = await driver.power(rack.uuid, command, PLAN)
                assert unchanged is Outcome.UNCHANGED

    async def test_a_machine_that_is_off_cannot_be_reset(self, bench: Bench, rack: AnyRack) -> None:
        await make(bench, *rack.all)
        driver = bench.connection.machine_driver
        await driver.power(rack.uuid, PowerCommand.SOFT, PLAN)
        if driver.boot_order is not None:
            await driver.boot_order.set_boot(rack.uuid, PLAN)
        with pytest.raises(ProviderError, match="off"):
            await driver.power(rack.uuid, PowerCommand.RESET, PLAN)

    async def test_a_machine_removed_behind_our_back_is_gone(
        self, bench: Bench, rack: AnyRack
    ) -> None:
        await make(bench, *rack.all)
        async with events_of(bench, rack.uuid) as queue:
            await bench.remove_machine(rack.machine)
            event = await until(queue, MachineChange.UNDEFINED, bench.patience)
            assert event.power is PowerState.ABSENT
        with pytest.raises(Gone):
            await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
        assert rack.machine.key not in await observe_all(bench)
        await make(bench, rack.machine)
        assert (await found(bench, rack.machine)).shape == rack.machine.shape

    async def test_a_machine_that_never_was_is_gone(self, bench: Bench) -> None:
        with pytest.raises(Gone, match=bench.host):
            await bench.connection.machine_driver.power(uuid4(), PowerCommand.ON, PLAN)

    async def test_media_are_inserted_once_or_again_and_ejected_once_or_again(
        self, bench: Bench, rack: AnyRack, tmp_path: Path
    ) -> None:
        drives = bench.connection.machine_driver.drives
        if drives is None:
            return
        await make(bench, *rack.all)
        (tmp_path / "disc").write_bytes(b"not bootable".ljust(4096))
        sha256 = hashlib.sha256((tmp_path / "disc").read_bytes()).hexdigest()
        for _ in range(2):
            await drives.insert(rack.uuid, Medium(str(tmp_path / "disc"), sha256))
        for _ in range(2):
            await drives.eject(rack.uuid)
        with pytest.raises(Gone):
            await drives.eject(uuid4())

    async def test_a_snapshot_is_taken_of_what_does_not_run_and_restored_to_what_is_off(
        self, bench: Bench, rack: AnyRack
    ) -> None:
        machines = bench.connection.machine_driver
        states = machines.snapshots
        if states is None:
            return
        await make(bench, *rack.all)
        if await states.refusal(rack.uuid):
            return
        await states.delete(rack.uuid, "none")
        assert not await states.pause(rack.uuid)
        await states.create(rack.uuid, "off")
        await machines.power(rack.uuid, PowerCommand.ON, PLAN)
        with pytest.raises(ProviderError, match="was resumed"):
            await states.create(rack.uuid, "on")
        with pytest.raises(ProviderError, match="runs"):
            await states.restore(rack.uuid, "off")
        for _ in range(2):
            assert await states.pause(rack.uuid)
            await states.create(rack.uuid, "on")
        assert await self.power_of(bench, rack.uuid) is PowerState.ON
        for _ in range(2):
            await states.resume(rack.uuid)
        await machines.power(rack.uuid, PowerCommand.OFF, PLAN)
        for kept in (await states.list(rack.uuid)).values():
            assert {name: state.on for name, state in kept.items()} == {"on": True, "off": False}
        for name in ("on", "off"):
            await states.restore(rack.uuid, name)
            await states.delete(rack.uuid, name)
            with pytest.raises(Gone):
                await states.restore(rack.uuid, name)
        with pytest.raises(Gone):
            await states.create(uuid4(), "none")

    async def test_a_machine_that_nospoon_did_not_make_is_claimed_and_released_as_it_was(
        self, bench: Bench
    ) -> None:
        adoption = bench.connection.machine_driver.adoption
        if adoption is None:
            assert await bench.connection.adoptable() is None
            return
        before = await adoptable(bench)
        assert before.tag is None
        claimed = Resource(Key(Kind.MACHINE, bench.host, "node"), before.machine)
        for _ in range(2):
            await adoption.claim(claimed, bench.tag)
        seen = await found(bench, claimed)
        assert (seen.shape, seen.tag.cluster) == (before.machine, bench.cluster)
        other = replace(bench.tag, cluster=uuid4())
        with pytest.raises(NotOurs, match="another cluster"):
            await adoption.claim(claimed, other)
        assert (await adoptable(bench)).node == "node"
        await bench.connection.machine_driver.power(before.machine.uuid, PowerCommand.ON, PLAN)
        await bench.connection.drivers[Kind.MACHINE].delete(await found(bench, claimed))
        assert (await adoptable(bench)) == before, "a deletion releases it"
        await adoption.claim(claimed, other)
        (seen,) = await bench.connection.drivers[Kind.MACHINE].observe(other.cluster)
        for _ in range(2):
            await adoption.release(seen)
        assert (await adoptable(bench)) == before
        missing = replace(claimed, shape=replace(before.machine, uuid=uuid4()))
        with pytest.raises(Gone):
            await adoption.claim(missing, bench.tag)

    async def test_the_console_speaks_and_ends(self, bench: Bench, rack: AnyRack) -> None:
        await make(bench, *rack.all)
        driver = bench.connection.machine_driver
        await driver.power(rack.uuid, PowerCommand.ON, PLAN)
        if bench.declares.console is not Console.STREAM:
            with pytest.raises(ProviderError, match="cannot be typed at"):
                await driver.console(rack.uuid)
            return
        stream = await driver.console(rack.uuid)
        async with asyncio.timeout(bench.patience):
            assert await stream.read() != b""
        await stream.close()
        again = await driver.console(rack.uuid)
        await again.close()

    async def power_of(self, bench: Bench, machine: UUID) -> PowerState:
        events = await bench.connection.machine_driver.machines()
        return next(event.power for event in events if event.uuid == machine)
