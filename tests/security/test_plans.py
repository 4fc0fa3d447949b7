"""Plans that take long: how large one may be, one at a time for each user, cancelled on leaving."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.security.asked import OTHER, OWNER, a_daemon

from nospoon.clusterfile.load import load
from nospoon.clusterfile.node_groups import MAX_CLUSTER
from nospoon.errors import SpecError

LEAST = "cluster: c\nhosts: {s: simulated}\nnodes: [{}]\n"
BODY = {"file": "f", "text": LEAST}


@pytest.mark.parametrize("groups", [[100_000], [MAX_CLUSTER + 1], [MAX_CLUSTER, 1], [9_000] * 3])
def test_a_cluster_has_at_most_so_many_nodes(groups: list[int]) -> None:
    listed = ", ".join(f"{{count: {count}, name: 'g{n}-{{n}}'}}" for n, count in enumerate(groups))
    with pytest.raises(SpecError, match=r"f:1:\d\d: nodes.*at most 20000") as refused:
        load(f"{{cluster: c, nodes: [{listed}]}}", file="f")
    assert len(refused.value.problems) == 1


async def test_a_second_plan_of_a_user_waits_and_those_of_others_do_not(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        turn = asked.daemon.control.controller.turns.of("plan", str(OWNER))
        async with turn:
            waiting = asyncio.ensure_future(asked.ask(OWNER, "POST", "/v1/plan", BODY))  # noqa: TID251
            for _ in range(3):  # longer than the other would take
                assert (await asked.ask(OTHER, "POST", "/v1/plan", BODY)).status == 200
            assert not waiting.done()
        assert (await waiting).status == 200


LOOKS = [
    ("GET", "/v1/clusters/c", None),
    ("GET", "/v1/clusters/c/removal", None),
    ("GET", "/v1/hosts", None),
    ("POST", "/v1/hosts/check", BODY),
]


@pytest.mark.parametrize(("method", "path", "body"), LOOKS)
async def test_looks_at_clusters_are_made_one_at_a_time_and_end_when_their_caller_leaves(
    tmp_path: Path, method: str, path: str, body: object
) -> None:
    async with a_daemon(tmp_path) as asked:
        for uid in (OWNER, OTHER):
            await asked.up(uid, LEAST)
        turn = asked.daemon.control.controller.turns.of("look", str(OWNER))
        async with turn:
            waiting = asyncio.ensure_future(asked.ask(OWNER, method, path, body))  # noqa: TID251
            for _ in range(3):  # longer than the other would take
                assert (await asked.ask(OTHER, method, path, body)).status == 200
            assert not waiting.done()
            left = await asked.ask(OWNER, method, path, body, gone=True)
            assert left.json["error"]["type"] == "CallerGone"
        assert (await waiting).status == 200
        assert not turn.locked()


async def test_a_plan_whose_caller_left_is_cancelled(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        turn = asked.daemon.control.controller.turns.of("plan", str(OWNER))
        async with turn:
            left = await asked.ask(OWNER, "POST", "/v1/plan", BODY, gone=True)
            assert left.json["error"]["type"] == "CallerGone"
        assert not turn.locked()
        assert (await asked.ask(OWNER, "POST", "/v1/plan", BODY)).status == 200
