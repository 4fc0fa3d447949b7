"""Two users take the same at one moment, while the store takes its time: one of them has it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.security.asked import OTHER, OWNER, Asked, a_daemon

from nospoon.control.planning import saved
from nospoon.plan import identity

PATIENCE = 60.0
LAB = """\
cluster: c
hosts: {{s{uid}: simulated}}
nodes: []
labs:
  dev:
    dynamic: false
    machines: {{m: {{macs: ['52:54:00:00:00:01'], bmc: {{address: 10.9.0.1, password: secret}}}}}}
"""
NETWORK = """\
cluster: c
hosts: {{s{uid}: simulated}}
networks: {{lan: {{cidr: 10.9.{number}.0/24}}}}
bmc: {{ports: 7{number}00-7{number}99, redfish_port: 8{number}00}}
nodes: [{{nics: [lan]}}]
"""


async def both(asked: Asked, text: str) -> list[tuple[int, Any]]:
    """What each of two users is answered whose files are brought up at once. Neither is stored
    before the other one is to be stored, too, or is answered.
    """
    memory, ready, waiting = asked.daemon.control.memory, asyncio.Event(), list[int]()
    whole = memory._store

    async def late(*args: Any) -> None:
        waiting.append(1)
        if len(waiting) == 2:
            ready.set()
        await ready.wait()
        await whole(*args)

    async def up(number: int, uid: int) -> tuple[int, Any]:
        try:
            answer = await asked.up(uid, text.format(uid=uid, number=number))
        finally:
            ready.set()
        return answer.status, answer.json

    memory._store = late  # type: ignore[assignment, method-assign]  # a store that takes its time
    async with asyncio.timeout(PATIENCE):
        answers = await asyncio.gather(up(0, OWNER), up(1, OTHER))
    return sorted(answers, key=lambda each: each[0])


async def test_a_mac_address_is_of_the_lab_that_is_stored_first(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        (made, _), (refused, why) = await both(asked, LAB)
        assert (made, refused) == (202, 409)
        assert "has a machine with the MAC address" in why["error"]["message"]
        assert len(asked.daemon.control.board.labs._of_mac["52:54:00:00:00:01"]) == 1


async def test_a_bridge_is_of_the_cluster_that_is_stored_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file may choose an id that gives the name of another cluster's."""
    for module in (identity, saved):
        monkeypatch.setattr(module, "bridge_name", lambda _, name: f"nsaaaaaa-{name}")
    async with a_daemon(tmp_path) as asked:
        (made, _), (refused, why) = await both(asked, NETWORK)
        assert (made, refused) == (202, 409)
        assert "which another cluster has" in why["error"]["message"]
