"""Ids that stand for something of nospoon's own are no cluster's, whoever names them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.security.asked import OWNER, a_daemon

from nospoon.clusterfile.load import load
from nospoon.errors import SpecError
from nospoon.plan.identity import RESERVED, UPKEEP

LEAST = "cluster: c\nhosts: {s: simulated}\nnodes: [{}]\n"


@pytest.mark.parametrize("reserved", sorted(map(str, RESERVED)))
async def test_a_reserved_id_is_refused_in_files_and_in_requests(
    tmp_path: Path, reserved: str
) -> None:
    async with a_daemon(tmp_path) as asked:
        for uid in (OWNER, os.getuid()):
            for path in ("/v1/plan", "/v1/clusters"):
                body = {"file": "f", "text": LEAST, "cluster_id": reserved}
                answer = await asked.ask(uid, "POST", path, body)
                assert answer.status == 400
                assert "this id is reserved" in answer.body.decode()
                body = {"file": "f", "text": f"id: {reserved.upper()}\n{LEAST}"}
                answer = await asked.ask(uid, "POST", path, body)
                assert answer.status == 422
                assert f"{reserved} is reserved" in answer.body.decode()
        assert (await asked.ask(OWNER, "GET", "/v1/clusters")).json == []


def test_the_error_is_one_of_the_files_line() -> None:
    with pytest.raises(SpecError) as refused:
        load(f"{LEAST}id: {UPKEEP}\n", file="f")
    (problem,) = refused.value.problems
    assert (problem.line, problem.path) == (4, "id")
    assert "Choose another, or drop it" in str(problem)
