"""Long answers are the JSON that they would be in one piece."""

from __future__ import annotations

import json

import pytest

from nospoon.api import long_answers


@pytest.mark.parametrize("amount", [0, 1, 3000])
async def test_rows_are_one_list(amount: int) -> None:
    rows = [{"node": f"node-{each}", "drift": [], "on": True} for each in range(amount)]
    answer = await long_answers.rows(rows)
    assert answer.media_type == "application/json"
    assert json.loads(bytes(answer.body)) == rows


@pytest.mark.parametrize("amount", [0, 1, 3000])
async def test_an_object_keeps_its_other_members(amount: int) -> None:
    whole = {"cluster": 'a "b"', "nodes": [{"n": each} for each in range(amount)], "drift": ["é"]}
    answer = await long_answers.with_rows(whole, "nodes")
    assert json.loads(bytes(answer.body)) == whole
