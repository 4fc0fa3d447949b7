"""The daemon's start, which members could make longer than systemd waits: a hundred files of one,
6 s of the event loop each, kept it from starting at all.
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from tests.security.asked import OTHER, OWNER, Answer, Asked, a_daemon

from nospoon.api.app import create_app
from nospoon.control.operations.restoring import Restoring, in_turn
from nospoon.control.planning.clusters import Clusters
from nospoon.store.clusters import ClusterRow, Outline

TEXT = """
cluster: %s
hosts: {%s: simulated}
boot: {live: {script: 'http://192.0.2.1/boot.ipxe'}}
nodes: [{boot: live, bmc: [redfish]}]
"""
CLUSTERS = {OWNER: "first", OTHER: "second"}


@dataclass
class Row:
    """As much of a cluster's row as counts here."""

    owner: int
    created: float


def test_owners_take_turns_and_older_clusters_are_first() -> None:
    rows = [Row(1, 5), Row(1, 2), Row(1, 3), Row(2, 9), Row(3, 1)]
    found = [(each.owner, each.created) for each in in_turn(cast("list[Outline]", rows))]
    assert found == [(3, 1), (1, 2), (2, 9), (1, 3), (1, 5)]


async def finished(asked: Asked, uid: int, answer: Answer) -> None:
    """Wait until the `up` that is answered so is done."""
    assert answer.status == 202, answer.body
    id_ = answer.json["operation"]["id"]
    async with asyncio.timeout(60):
        while (await asked.ask(uid, "GET", f"/v1/operations/{id_}")).json["state"] != "done":  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def served(asked: Asked) -> set[str]:
    """What nodes boot, by the names of their clusters."""
    return {each.cluster for each in asked.daemon.parts.fleet.all() if each.profile is not None}


@pytest.mark.parametrize("patience", [30.0, 0.0])
async def test_the_start_waits_for_few_files_and_reads_all_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    async with a_daemon(tmp_path) as asked:
        for uid, name in CLUSTERS.items():
            body = {"file": "x.yaml", "text": TEXT % (name, name)}
            await finished(asked, uid, await asked.ask(uid, "POST", "/v1/clusters", body))
    threads, kept = list[int](), Clusters.kept

    def noted(self: Clusters, row: ClusterRow) -> object:
        threads.append(threading.get_ident())
        return kept(self, row)

    monkeypatch.setattr(Clusters, "kept", noted)
    monkeypatch.setattr(Restoring, "reading", patience)
    async with a_daemon(tmp_path) as asked:
        if patience:
            assert served(asked) == {*CLUSTERS.values()}
        async with asyncio.timeout(20):
            while served(asked) != {*CLUSTERS.values()}:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert threads
    assert threading.get_ident() not in threads


async def test_the_first_request_makes_and_imports_nothing_in_the_event_loop(
    tmp_path: Path,
) -> None:
    async with a_daemon(tmp_path) as asked:
        first = await processor_of(asked)
        asked.app = create_app(
            asked.daemon.control.controller, members=asked.daemon.control.members
        )
        unprepared = await processor_of(asked)
    assert first < unprepared / 3


async def processor_of(asked: Asked) -> float:
    """Seconds of the loop's own thread that a request takes."""
    before = time.thread_time()
    assert (await asked.ask(OWNER, "GET", "/v1/labs")).status == 200
    return time.thread_time() - before
