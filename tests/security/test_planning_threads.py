"""Planning has threads of its own, one for each user, which a caller who leaves does not free."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.security.asked import OTHER, OWNER, a_daemon

from nospoon.clusterfile.load import load
from nospoon.clusterfile.nearest import MAX_LETTERS, MAX_WORDS, nearest
from nospoon.clusterfile.references import MAX_HINTS
from nospoon.control.fleet.enrolment import Sought
from nospoon.control.operations import memory
from nospoon.control.planning import access, allocating, observing
from nospoon.errors import SpecError
from nospoon.model.cluster import Cluster
from nospoon.model.grants import Grants
from nospoon.plan.access import Violation, violations
from nospoon.runtime.workers import Workers
from nospoon.store.nodes import NodeRow

LEAST = "cluster: c\nhosts: {s: simulated}\nnodes: [{}]\n"
BODY = {"file": "f", "text": LEAST}


async def test_a_plan_needs_no_thread_of_the_default_executor_that_others_hold(
    tmp_path: Path,
) -> None:
    async with a_daemon(tmp_path) as asked:
        workers = asked.daemon.parts.planner.workers
        let = threading.Event()
        held = [
            asyncio.ensure_future(workers.run(OWNER, let.wait))  # noqa: TID251
            for _ in range(20)
        ]
        try:
            await asyncio.sleep(0)
            assert (await asked.ask(OTHER, "POST", "/v1/plan", BODY)).status == 200
            assert await asyncio.to_thread(lambda: "free") == "free"
            assert not any(each.done() for each in held)
        finally:
            let.set()
        assert await asyncio.gather(*held) == [True] * 20
        where = await workers.run(OWNER, threading.current_thread)
        assert where.name.startswith("planning")


async def test_macs_of_nodes_that_leave_are_gone_through_where_plans_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of 20,000 nodes took 80 ms of the event loop with each `up`, whoever left."""
    threads, gone = list[str](), memory._macs_gone

    def noted(rows: Sequence[NodeRow], names: Collection[str]) -> Any:
        threads.append(threading.current_thread().name)
        return gone(rows, names)

    monkeypatch.setattr(memory, "_macs_gone", noted)
    text = "cluster: c\nhosts: {s: simulated}\nnodes: [%s]\n"
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, text % "{name: a}, {name: b}")
        assert threads == []
        assert (await asked.up(OWNER, text % "{name: a}")).status == 202
    assert len(threads) == 1
    assert threads[0].startswith("planning")


async def test_what_placement_is_to_have_is_gone_through_where_plans_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred flavors of one class and 2,000 nodes took 4.8 s of the event loop."""
    threads, sought = set[str](), observing._sought

    def noted(cluster: Cluster, cluster_id: UUID) -> Sought:
        threads.add(threading.current_thread().name)
        return sought(cluster, cluster_id)

    monkeypatch.setattr(observing, "_sought", noted)
    async with a_daemon(tmp_path) as asked:
        assert (await asked.ask(OWNER, "POST", "/v1/plan", BODY)).status == 200
    assert threads
    assert all(each.startswith("planning") for each in threads)


async def test_what_members_may_have_is_looked_at_where_plans_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BMCs of 20,000 nodes with an address each took 1.3 s of the event loop."""
    threads = set[str]()

    def noted(cluster: Cluster, grants: Grants) -> Iterator[Violation]:
        threads.add(threading.current_thread().name)
        yield from violations(cluster, grants)

    monkeypatch.setattr(access, "violations", noted)
    async with a_daemon(tmp_path) as asked:
        assert (await asked.ask(OWNER, "POST", "/v1/plan", BODY)).status == 200
    assert threads
    assert all(each.startswith("planning") for each in threads)


async def test_a_pool_is_compared_with_routes_where_plans_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 6,400 routes of members' networks, a file of 1,000 took 1.4 s of the event loop."""
    threads = dict[str, str]()
    for name in ("against_pool", "overlapping_routes"):
        looked = getattr(allocating, name)

        def noted(*given: object, name: str = name, looked: Any = looked) -> list[str]:
            threads[name] = threading.current_thread().name
            return list(looked(*given))

        monkeypatch.setattr(allocating, name, noted)
    text = f"{LEAST.replace('{}', '{bmc: [redfish]}')}bmc: {{pool: 10.211.0.0/24}}\n"
    async with a_daemon(tmp_path) as asked:
        assert (await asked.ask(OWNER, "POST", "/v1/plan", {**BODY, "text": text})).status == 200
    assert len(threads) == 2
    assert all(each.startswith("planning") for each in threads.values())


@pytest.mark.parametrize("path", ["/v1/orphans", "/v1/recover"])
async def test_files_of_upkeep_are_read_where_plans_are_made(tmp_path: Path, path: str) -> None:
    """An administrator's file waits for that one's turn in those threads, and holds up nobody."""
    async with a_daemon(tmp_path) as asked:
        workers, let, uid = asked.daemon.parts.planner.workers, threading.Event(), os.getuid()
        held = asyncio.ensure_future(workers.run(uid, let.wait))  # noqa: TID251
        await asyncio.sleep(0)
        mine = asyncio.ensure_future(asked.ask(uid, "POST", path, BODY))  # noqa: TID251
        try:
            assert (await asked.ask(OTHER, "POST", "/v1/plan", BODY)).status == 200
            assert not mine.done()
        finally:
            let.set()
        assert (await mine).status == 200
        assert await held


async def test_what_is_cancelled_holds_its_owners_turn_until_its_thread_has_ended() -> None:
    workers, began, let = Workers("test", 4), threading.Event(), threading.Event()
    order: list[str] = []

    def long() -> None:
        began.set()
        let.wait()
        order.append("first")

    first = asyncio.ensure_future(workers.run(1, long))  # noqa: TID251
    await asyncio.to_thread(began.wait)
    first.cancel()
    second = asyncio.ensure_future(workers.run(1, order.append, "second"))  # noqa: TID251
    assert await workers.run(2, lambda: "another's") == "another's"
    assert (first.done(), second.done()) == (False, False)
    let.set()
    await second
    assert first.cancelled()
    assert order == ["first", "second"]
    workers.close()


async def test_what_was_cancelled_before_it_began_never_runs() -> None:
    workers, let, ran = Workers("test", 1), threading.Event(), list[str]()
    first = asyncio.ensure_future(workers.run(1, let.wait))  # noqa: TID251
    second = asyncio.ensure_future(workers.run(2, ran.append, "x"))  # noqa: TID251
    for _ in range(3):
        await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    let.set()
    assert await first
    assert ran == []
    with pytest.raises(ZeroDivisionError):
        await workers.run(1, lambda: 1 / 0)
    workers.close()


def test_hints_are_bounded_by_length_and_number() -> None:
    assert nearest("node-1x", ["node-1", "other"]) == "node-1"
    assert nearest("a" * (MAX_LETTERS + 1), ["a" * (MAX_LETTERS + 1)]) == ""
    many = [f"b{n}" for n in range(20_000)]
    assert nearest("x", many) == ""
    assert nearest("c1x", [*many, "c1"]) == "c1"
    assert nearest("b19999", [*many[: MAX_WORDS + 5], "b19999"]) != "b19999"


def test_a_file_gets_few_hints_and_few_problems() -> None:
    networks = "".join(f"  {'ab' * 27}{n:05}: {{}}\n" for n in range(30))
    nodes = "".join(f"- {{name: n{n}, nics: [{'ab' * 27}x{n:04}]}}\n" for n in range(400))
    with pytest.raises(SpecError) as refused:
        load(f"cluster: c\nnetworks:\n{networks}nodes:\n{nodes}", file="f")
    problems = refused.value.problems
    assert sum("Did you mean" in each.hint for each in problems) == MAX_HINTS
    assert len(problems) == 200


@pytest.mark.parametrize(
    "text",
    [
        "a: &a " + "k" * 100_000 + "\nnodes: [" + "{*a : 1}, " * 300 + "]\n",
        "networks: {}\nnodes:\n- nics: [" + ", ".join(["x" * 100_000] * 3) + "]\n",
        "a: {" + "b: 1, " * 100_000 + "}\n",
    ],
)
def test_messages_of_a_file_are_not_larger_than_the_file(text: str) -> None:
    with pytest.raises(SpecError) as refused:
        load(f"cluster: c\n{text}", file="f")
    assert len(str(refused.value)) < 200_000
