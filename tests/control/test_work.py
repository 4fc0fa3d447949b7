"""The work of `up` and `down`: rows first, then the plan, then a second look."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.control.asking import HOST, OTHER, OWNER, file_of
from tests.control.wired import wired

from nospoon.control.request import Request
from nospoon.errors import ProviderError, Stale
from nospoon.model.principal import Principal
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.simulated.drivers import SimulatedDriver
from nospoon.providers.simulated.world import Made, World
from nospoon.store import operations as journal
from nospoon.store.operations import OperationState

BROKEN = "the disk is broken"


async def test_who_would_be_left_behind_is_remembered_before_anything_is_made(
    tmp_path: Path,
) -> None:
    async with wired(tmp_path) as asking:
        await asking.up(file_of("a"))
        asking.host.faults["create volume/b"] = [ProviderError(BROKEN)]
        ended = await asking.up(file_of("a", "b", "c"))
        assert ended.state is OperationState.PARTLY
        failures = ended.result["failures"]
        assert isinstance(failures, list)
        (failure,) = failures
        assert (failure["node"], failure["message"]) == ("b", BROKEN)
        assert failure["what"] == "volume/b-0@s"
        assert "machine/c" in asking.made()
        assert "machine/b" not in asking.made(), "what needs the disk is not begun"
        assert (await asking.nodes()).keys() == {"a", "b", "c"}
        assert {each.node for each in asking.fleet.of(OWNER)} == {"a", "b", "c"}
        again = await asking.up(file_of("a", "b", "c"))
        assert again.state is OperationState.DONE
        assert again.message == "cluster c is up: 3 nodes"
        assert "machine/b" in asking.made()


async def test_what_is_not_as_desired_afterwards_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that reports success is not believed: there is a second look."""
    put = World.put

    def lost(world: World, made: Made) -> None:
        if made.key.name != "b-0":
            put(world, made)

    async with wired(tmp_path) as asking:
        await asking.up(file_of("a"))
        with monkeypatch.context() as patch:
            patch.setattr(World, "put", lost)
            ended = await asking.up(file_of("a", "b"))
        assert ended.state is OperationState.PARTLY
        assert "these are not as desired: volume/b-0@s" in ended.message
        assert (await asking.up(file_of("a", "b"))).state is OperationState.DONE


async def test_a_call_is_journalled_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    make = SimulatedDriver.create

    async with wired(tmp_path) as asking:

        async def create(driver: SimulatedDriver, resource: Resource, tag: OwnerTag) -> None:
            if resource.key.kind is Kind.VOLUME:
                seen.append(await asking.database.read(journal.open_intents))
            await make(driver, resource, tag)

        monkeypatch.setattr(SimulatedDriver, "create", create)
        await asking.up(file_of("a"))
        ((known,),) = seen
        assert str(known[1]) == "volume/a-0@s"
        assert await asking.database.read(journal.open_intents) == []


async def test_a_node_that_left_is_forgotten_and_its_port_is_free(tmp_path: Path) -> None:
    async with wired(tmp_path) as asking:
        await asking.up(file_of("a", "b"))
        row = await asking.row()
        assert row is not None
        port = row.allocations.endpoints["b"].ipmi_port
        assert (await asking.up(file_of("a"))).state is OperationState.DONE
        assert (await asking.nodes()).keys() == {"a"}
        assert {each.node for each in asking.fleet.of(OWNER)} == {"a"}
        row = await asking.row()
        assert row is not None
        assert row.allocations.endpoints.keys() == {"a"}
        await asking.up(file_of("z", cluster="d"))
        other = await asking.row("d")
        assert other is not None
        assert other.allocations.endpoints["z"].ipmi_port == port


async def test_a_node_whose_removal_failed_is_known_and_keeps_its_port(tmp_path: Path) -> None:
    async with wired(tmp_path) as asking:
        await asking.up(file_of("a", "b"))
        before = (await asking.nodes())["b"]
        row = await asking.row()
        assert row is not None
        place = row.allocations.endpoints["b"]
        asking.host.faults["delete machine/b"] = [ProviderError(BROKEN)]
        ended = await asking.up(file_of("a"))
        assert ended.state is OperationState.PARTLY
        assert (await asking.nodes())["b"].uuid == before.uuid
        await asking.up(file_of("a", "b"))
        row, now = await asking.row(), (await asking.nodes())["b"]
        assert row is not None
        assert row.allocations.endpoints["b"] == place
        opened = [asking.cipher.decrypt(each.password) for each in (before, now)]
        assert opened[0] == opened[1], "its account stays as well"


async def test_an_up_of_some_nodes_remembers_the_others_as_they_are(tmp_path: Path) -> None:
    async with wired(tmp_path) as asking:
        await asking.up(file_of("a", "b"))
        before = await asking.nodes()
        more = file_of("a", "b").replace("[1GiB]", "[1GiB], memory: 2GiB")
        assert (await asking.up(more, targets=("a",))).state is OperationState.DONE
        now = await asking.nodes()
        assert now["b"] == before["b"]
        assert now["a"].machine.memory == 2 << 30
        assert not (await asking.plan(more)).empty, "the file says it of b as well"


async def test_down_leaves_nothing_here_or_there(tmp_path: Path) -> None:
    async with wired(tmp_path) as asking:
        await asking.up(file_of("a", "b"))
        (member, _) = asking.fleet.of(OWNER)
        asking.records.directory.joinpath(f"{member.uuid}.log").write_text("hello")
        ended = await asking.down()
        assert (ended.state, ended.message) == (OperationState.DONE, "cluster c is down")
        assert asking.made() == set()
        assert await asking.row() is None
        assert len(asking.fleet) == 0
        assert asking.files.space.held(OWNER, "") == 0
        again = await asking.down()
        assert (again.state, again.message) == (
            OperationState.DONE, "no cluster c: nothing to remove",
        )  # fmt: skip


async def test_down_of_no_cluster_says_which_one_may_be_meant(tmp_path: Path) -> None:
    async with wired(tmp_path) as asking:
        await asking.up(file_of("a", cluster="rack-one"))
        ended = await asking.down("rack-oen")
        assert (ended.state, ended.message) == (
            OperationState.DONE,
            "no cluster rack-oen: nothing to remove. Did you mean 'rack-one'?",
        )
        assert asking.made()


async def test_a_down_that_fails_keeps_what_it_needs_to_go_on(tmp_path: Path) -> None:
    async with wired(tmp_path) as asking:
        await asking.up(file_of("a", "b"))
        asking.host.faults["delete volume/a"] = [ProviderError(BROKEN)]
        ended = await asking.down()
        assert ended.state is OperationState.PARTLY
        assert await asking.row() is not None
        assert "volume/a-0" in asking.made()
        assert (await asking.down()).state is OperationState.DONE
        assert asking.made() == set()


async def test_a_down_without_a_host_forgets_nothing(tmp_path: Path) -> None:
    async with wired(tmp_path) as asking:
        await asking.up(file_of("a"))
        asking.host.reachable = False
        ended = await asking.down()
        assert ended.state is OperationState.PARTLY
        assert "host s: machine: host s (simulated) does not answer" in ended.message
        assert (await asking.nodes()).keys() == {"a"}
        asking.host.reachable = True
        assert (await asking.down()).state is OperationState.DONE


async def test_what_another_took_meanwhile_makes_it_stale_and_nothing_is_remembered(
    tmp_path: Path,
) -> None:
    async with wired(tmp_path) as asking:
        request = Request(Principal(OWNER), file="c.yaml", text=file_of("a"))
        prepared = await asking.planner.prepare(request, await asking.planner.clusters.of(request))
        await asking.up(file_of("a"), uid=OTHER)  # the same first free port
        with pytest.raises(Stale):
            await asking.memory.remember(prepared, request)
        assert await asking.row() is None
        assert asking.fleet.of(OWNER) == []


async def test_capacity_that_another_took_meanwhile_makes_it_stale(tmp_path: Path) -> None:
    """A host of 3 GiB, by its overcommit, on which each of two clusters had a place for 2 GiB."""

    def of(cluster: str, port: int) -> str:
        return (
            f"cluster: {cluster}\nhosts: {{{HOST}: {{simulated: {{memory: 2GiB, cpus: 4}}}}}}\n"
            f"bmc: {{ports: {port}-{port + 9}, redfish_port: {port + 10}}}\n"
            "nodes: [{name: a, memory: 2GiB}]\n"
        )

    async with wired(tmp_path) as asking:
        memory = asking.memory
        mine, others = (
            Request(Principal(OWNER), file="c.yaml", text=of(*each))
            for each in (("c", 16200), ("d", 16300))
        )
        both = [
            (await asking.planner.prepare(each, await asking.planner.clusters.of(each)), each)
            for each in (mine, others)
        ]
        found = await asyncio.gather(
            *(memory.remember(*each) for each in both), return_exceptions=True
        )
        (stale,) = (each for each in found if isinstance(each, BaseException))
        assert isinstance(stale, Stale)
        assert stale.message == "the plan is stale: another cluster took memory of host s"
        (late,) = (each for each, was in zip(both, found, strict=True) if was is stale)
        (first,) = (each for each in both if each is not late)
        assert await asking.row(late[0].seen.cluster.name) is None
        await asking.down(first[0].seen.cluster.name)
        await memory.remember(*late)
