"""Long answers are the JSON that they would be in one piece."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest

from nospoon.api import long_answers
from nospoon.model.rest.clusters import ClusterStatus, NodeStatus


@pytest.mark.parametrize("amount", [0, 1, 3000])
async def test_rows_are_one_list(amount: int) -> None:
    rows = [{"node": f"node-{each}", "drift": [], "on": True} for each in range(amount)]
    answer = await long_answers.rows(rows)
    assert answer.media_type == "application/json"
    assert json.loads(bytes(answer.body)) == rows


@pytest.mark.parametrize("amount", [0, 1, 3000])
async def test_an_object_keeps_its_other_members(amount: int) -> None:
    node = NodeStatus("", "h", "present", "on", "disk", "127.0.0.1:623", "", floating_ips=["::1"])
    nodes = [replace(node, node=f"node-{each}") for each in range(amount)]
    whole = ClusterStatus('a "b"', "id", nodes, ["é"])
    answer = await long_answers.status(whole)
    assert bytes(answer.body) == msgspec.json.encode(whole)
