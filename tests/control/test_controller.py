"""The controller: plans and operations of one caller beside those of others."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.control.asking import OTHER, OWNER, file_of
from tests.control.wired import wired

from nospoon.control.controller import AGAIN
from nospoon.control.operations.memory import Memory
from nospoon.control.operations.work import Removal
from nospoon.control.planning.clusters import Clusters
from nospoon.control.planning.planner import Planner
from nospoon.control.planning.prepared import Prepared
from nospoon.control.request import Request
from nospoon.errors import Conflict, NotFound, Problem, SpecError, Stale
from nospoon.model.cluster import Cluster
from nospoon.model.principal import Principal
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.model.service import Service
from nospoon.providers.simulated.drivers import SimulatedDriver
from nospoon.store.clusters import ClusterRow
from nospoon.store.operations import OperationState

STRANGE = 12345


def request(text: str, uid: int = OWNER, **more: str) -> Request:
    return Request(Principal(uid), file="c.yaml", text=text, **more)  # type: ignore[arg-type]


async def test_nothing_is_begun_where_nothing_is_to_be_done(tmp_path: Path) -> None:
    async with wired(tmp_path) as asking:
        await asking.up(file_of("a"))
        plan, operation = await asking.controller.up(request(file_of("a")))
        assert plan.empty
        assert operation is None
        assert len(await asking.operations.list(OWNER)) == 1


async def test_a_cluster_whose_file_is_not_read_hides_the_services_of_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Clusters.kept

    def unreadable(clusters: Clusters, row: ClusterRow) -> Cluster:
        if row.name == "c":
            raise SpecError([Problem("c.yaml", 1, 1, "nodes", "it is of a later version")])
        return replace(kept(clusters, row), services=(Service("db", ("db",), unit="db"),))

    async with wired(tmp_path) as asking:
        await asking.up(file_of("a"))
        await asking.up(file_of("db", cluster="d"))
        monkeypatch.setattr(Clusters, "kept", unreadable)
        rows = await asking.controller.services.rows(Principal(OWNER), "")
        assert sorted((each.cluster, each.service) for each in rows) == [("c", ""), ("d", "db")]
        (why,) = (each.why for each in rows if not each.service)
        assert "it is of a later version" in why
        with pytest.raises(SpecError):
            await asking.controller.services.rows(Principal(OWNER), "c")


async def test_one_operation_of_a_cluster_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, let = SimulatedDriver.create, asyncio.Event()

    async def slow(driver: SimulatedDriver, resource: Resource, tag: OwnerTag) -> None:
        if tag.uid == OWNER:
            await let.wait()
        await make(driver, resource, tag)

    async with wired(tmp_path) as asking:
        monkeypatch.setattr(SimulatedDriver, "create", slow)
        _, operation = await asking.controller.up(request(file_of("a")))
        assert operation is not None
        for text in (file_of("a"), file_of("a", "b")):
            with pytest.raises(Conflict, match="`up` by user 65534 has been running for"):
                await asking.controller.up(request(text))
        with pytest.raises(Conflict, match="`up` by user"):
            await asking.controller.down(Principal(OWNER), "c", Removal())
        (shown,) = await asking.controller.clusters(Principal(OWNER))
        assert shown.operation == f"up {operation.id}"
        await asking.up(file_of("a"), uid=OTHER)  # another's cluster of that name is another one
        async with asyncio.TaskGroup() as group:
            group.create_task(asking.operations.cancel(operation.id))
            await asyncio.sleep(0)
            let.set()  # a call that is under way is waited for
        ended = await asking.operations.get(operation.id)
        assert ended.state is OperationState.CANCELLED
        assert (await asking.up(file_of("a"))).state is OperationState.DONE


async def test_plans_of_a_user_wait_for_one_another_and_for_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, began, let = list[int](), asyncio.Event(), asyncio.Event()
    prepare = Planner.prepare

    async def waiting(planner: Planner, asked: Request, cluster: Cluster) -> Prepared:
        begun.append(asked.caller.uid)
        began.set()
        if asked.caller.uid == OWNER:
            await let.wait()
        return await prepare(planner, asked, cluster)

    monkeypatch.setattr(Planner, "prepare", waiting)
    async with wired(tmp_path) as asking:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(asking.controller.plan(request(file_of("a"))))
            await began.wait()
            second = group.create_task(asking.controller.plan(request(file_of("b"))))
            await asking.controller.plan(request(file_of("a"), uid=OTHER))
            assert begun == [OWNER, OTHER]
            let.set()
        assert begun == [OWNER, OTHER, OWNER]
        assert first.result().cluster_id == second.result().cluster_id


def remembered_at_the(time: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Others are quicker until then. Returns how often it was tried."""
    tries, remember = list[int](), Memory.remember

    async def late(memory: Memory, prepared: Prepared, asked: Request) -> object:
        tries.append(len(prepared.plan.steps))
        if len(tries) < time:
            raise Stale("another cluster took the same")
        return await remember(memory, prepared, asked)

    monkeypatch.setattr(Memory, "remember", late)
    return tries


async def test_a_plan_on_which_nobody_agreed_is_made_again_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with wired(tmp_path) as asking:
        tries = remembered_at_the(3, monkeypatch)
        assert (await asking.up(file_of("a"))).state is OperationState.DONE
        assert len(tries) == 3
    async with wired(tmp_path / "other") as asking:
        tries = remembered_at_the(100, monkeypatch)
        with pytest.raises(Stale, match="another cluster took the same"):
            await asking.up(file_of("a"))
        assert len(tries) == 1 + AGAIN


async def test_a_plan_on_which_somebody_agreed_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with wired(tmp_path) as asking:
        agreed = await asking.plan(file_of("a"))
        tries = remembered_at_the(2, monkeypatch)
        with pytest.raises(Stale):
            await asking.up(file_of("a"), fingerprint=agreed.fingerprint)
        assert len(tries) == 1


async def test_what_down_would_do_is_shown_and_not_done(tmp_path: Path) -> None:
    async with wired(tmp_path) as asking:
        assert (await asking.controller.removal(Principal(OWNER), "c", Removal())).empty
        await asking.up(file_of("a"))
        made = asking.made()
        plan = await asking.controller.removal(Principal(OWNER), "c", Removal())
        gone = {f"{step.key.kind}/{step.key.name}" for step in plan.steps}
        assert gone == {*made, "bmc/a"}
        assert asking.made() == made
        assert (await asking.controller.removal(Principal(OTHER), "c", Removal())).empty


async def test_status_is_looked_at_now_and_says_what_nobody_can_see(tmp_path: Path) -> None:
    async with wired(tmp_path) as asking:
        await asking.up(file_of("a", "b"))
        shown = await asking.controller.status(Principal(OWNER), "c")
        assert [(each.node, each.state) for each in shown.nodes] == [
            ("a", "present"), ("b", "present"),
        ]  # fmt: skip
        assert shown.drift == []
        world = asking.host.world
        world.take_away(next(each for each in world.all() if each.key.name == "a-0"))
        shown = await asking.controller.status(Principal(OWNER), "c")
        assert shown.nodes[0].state != "present"
        assert shown.nodes[1].state == "present"
        asking.host.reachable = False
        shown = await asking.controller.status(Principal(OWNER), "c")
        assert {each.state for each in shown.nodes} == {"unknown"}
        with pytest.raises(NotFound):
            await asking.controller.status(Principal(OTHER), "c")


async def test_callers_see_what_is_theirs(tmp_path: Path) -> None:
    async with wired(tmp_path) as asking:
        await asking.up(file_of("a"))
        await asking.up(file_of("a", "b"), uid=OTHER)
        mine, theirs = [await asking.controller.clusters(Principal(uid)) for uid in (OWNER, OTHER)]
        assert [(row.name, row.nodes) for row in mine] == [("c", 1)]
        assert [(row.name, row.nodes) for row in theirs] == [("c", 2)]
        with pytest.raises(NotFound):
            await asking.controller.export(Principal(STRANGE), "c", "ssh")
        asking.controller.found = "1 node"
        root = Principal(os.getuid(), admin=True)
        assert (await asking.controller.about(root)).found == "1 node"
        assert (await asking.controller.about(Principal(OWNER))).found == ""
