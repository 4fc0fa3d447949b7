"""Names that are kept once for each of many things: a request of half a megabyte took all memory.

Each element of a request has the names of all elements that it is in, and each of a namespace has
that namespace's.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.security.asked import OWNER, a_daemon

from nospoon.clusterfile.requests import MOST_DEPTH, MOST_NAME, read_asked
from nospoon.errors import SpecError

LAB = """cluster: owned
hosts: {here: {simulated: {}}}
flavors: {small: {disks: [10GiB]}}
labs: {dev: {users: ["*"]}}
nodes: []
"""
LEVELS, MANY = MOST_DEPTH - 4, 30_000


def nested(name: str) -> bytes:
    """Many elements in some that have this name and are in one another."""
    begun, ended = f"<{name}>" * LEVELS, f"</{name}>" * LEVELS
    return f"<hostRequires>{begun}{'<b/>' * MANY}{ended}</hostRequires>".encode()


def nested_json(name: str) -> bytes:
    value: object = [{"b": 1}] * MANY
    for _ in range(LEVELS):
        value = {name: value}
    return json.dumps({"hostRequires": value}).encode()


def of_a_namespace(length: int) -> bytes:
    return f"<hostRequires xmlns='{'u' * length}'>{'<b/>' * MANY}</hostRequires>".encode()


def with_attribute(length: int) -> bytes:
    return f"<hostRequires {'a' * length}=''/>".encode()


@pytest.mark.parametrize(
    "data",
    [
        nested("a" * (MOST_NAME + 1)),
        nested_json("a" * (MOST_NAME + 1)),
        of_a_namespace(MOST_NAME),
        with_attribute(MOST_NAME + 1),
    ],
    ids=["xml", "json", "namespace", "attribute"],
)
def test_names_are_bounded(data: bytes) -> None:
    with pytest.raises(SpecError, match=f"at most {MOST_NAME} characters"):
        read_asked(data, file="f")


@pytest.mark.parametrize("data", [nested("a" * 100), nested_json("a" * 100)], ids=["xml", "json"])
def test_the_paths_of_all_elements_are_bounded_together(data: bytes) -> None:
    with pytest.raises(SpecError, match="fewer elements in others, or shorter names") as refused:
        read_asked(data, file="f")
    assert len(str(refused.value)) < LEVELS * (100 + 10)


async def test_a_request_of_long_names_is_refused(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, LAB)
        text = nested_json("a" * 4000).decode()
        answer = await asked.ask(OWNER, "POST", "/v1/requests", {"text": text})
        assert answer.status == 422, answer.body
        assert f"expected at most {MOST_NAME} characters" in answer.body.decode()
