"""What is read from the store for an answer may be long, and a member may ask hundreds of times at
once: one of each user at a time holds it.

A cluster file of 16 MiB was held three times over by each look at its cluster that waited for its
turn, gigabytes together; an export held all nodes, and an operation's result was held as long as
its client liked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.security.asked import OWNER, Asked, a_daemon

from nospoon.api.routes import operations as routes
from nospoon.control.fleet.owned import owned
from nospoon.control.planning.clusters import Clusters
from nospoon.model.principal import Principal
from nospoon.store import clusters
from nospoon.store.clusters import ClusterRow

TEXT = "cluster: held\nhosts: {sim: simulated}\nnodes: [{count: 2, bmc: [redfish]}]\n"
ASKED = 5


class Held:
    """Whole clusters that were read; none is done with before it may `go`."""

    def __init__(self) -> None:
        self.read, self.go, self.holds = 0, asyncio.Event(), asyncio.Event()

    def of(self, read: Callable[..., Awaitable[ClusterRow]]) -> Callable[..., Any]:
        async def counted(*given: Any, **more: Any) -> Any:
            self.read += 1
            return await read(*given, **more)

        return counted

    def kept(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        async def waiting(*given: Any, **more: Any) -> Any:
            self.holds.set()
            await self.go.wait()
            return await call(*given, **more)

        return waiting


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/clusters/held"),
        ("GET", "/v1/clusters/held/export/ansible"),
        ("GET", "/v1/nodes/held/node-0/login"),
        ("POST", "/v1/clusters/held/verify"),
    ],
)
async def test_one_whole_cluster_of_a_user_is_held_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    held = Held()
    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OWNER, TEXT)).status == 202
        monkeypatch.setattr("nospoon.control.controller.owned", held.of(owned))
        for name in ("request_of", "stored"):
            monkeypatch.setattr(Clusters, name, held.kept(getattr(Clusters, name)))
        body: dict[str, str] | None = {} if method == "POST" else None
        async with asyncio.TaskGroup() as tasks:
            for _ in range(ASKED):
                tasks.create_task(asked.ask(OWNER, method, path, body))
            await held.holds.wait()
            await asked.ask(OWNER, "GET", "/v1/nodes?cluster=held")  # reads the store after them
            assert held.read == 1
            held.go.set()
        assert held.read == ASKED


async def test_snapshots_and_lists_read_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: list[object] = []
    cluster = clusters._cluster

    def read(row: Any) -> ClusterRow:
        whole.append(row.name)
        return cluster(row)

    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OWNER, TEXT)).status == 202
        monkeypatch.setattr(clusters, "_cluster", read)
        for path in ("clusters/held/snapshots", "nodes?cluster=held", "bmcs?cluster=held"):
            assert (await asked.ask(OWNER, "GET", f"/v1/{path}")).status == 200
    assert whole == []


async def ended(asked: Asked) -> Any:
    answer = await asked.up(OWNER, TEXT)
    return answer.json["operation"]["id"]


@pytest.mark.parametrize(("size", "at_once"), [(routes.LONG, 2), (routes.LONG + 1, 1)])
async def test_one_long_result_of_a_user_is_sent_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, at_once: int
) -> None:
    async with a_daemon(tmp_path) as asked:
        id_ = await ended(asked)
        kept, caller = asked.daemon.control.controller.operations, Principal(OWNER, admin=False)
        read: list[str] = []

        async def result_size(_: object) -> int:
            return size

        async def result_text(asked_for: object) -> str:
            read.append(str(asked_for))
            return "{}"

        monkeypatch.setattr(kept, "result_size", result_size)
        monkeypatch.setattr(kept, "result_text", result_text)
        first, second = (
            routes._with_result(asked.daemon.control.controller, caller, id_, {}) for _ in range(2)
        )
        await anext(first)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_next(second))
            await asked.ask(OWNER, "GET", "/v1/nodes")  # which takes more turns of the loop
            assert len(read) == at_once
            assert [part async for part in first][-1] == "}"
        assert len(read) == 2


async def _next(parts: AsyncIterator[str]) -> None:
    await anext(parts)
