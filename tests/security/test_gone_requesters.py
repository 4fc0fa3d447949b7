"""Requesters whose rights end: what they got is removed, with the rights of their lab's owner."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.security.asked import OTHER, OWNER, Asked, a_daemon

from nospoon.control.labs import access
from nospoon.runtime import clock

ROOT = 0
LAB = """cluster: owned
hosts: {{here: {{simulated: {{}}}}}}
flavors: {{small: {{disks: [10GiB]}}}}
labs: {{dev: {{users: [{users}], lease: 1h}}}}
nodes: []
"""
PATIENCE = 60.0


async def shown(asked: Asked, set_id: str, state: str) -> Any:
    async with asyncio.timeout(PATIENCE):
        while True:
            found = (await asked.ask(ROOT, "GET", f"/v1/requests/{set_id}")).json
            if found["state"] == state:
                return found
            await asyncio.sleep(0.01)


async def test_a_set_ends_whose_requester_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account is removed, and the lab's file lists it no more; then the lease expires."""
    names = {OTHER: "leaver", OWNER: "owner"}
    monkeypatch.setattr(access, "_name_of", lambda uid: names.get(uid, ""))
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, LAB.format(users="leaver"))
        body = {"text": "<hostRequires/>", "lab": "owned/dev"}
        answer = await asked.ask(OTHER, "POST", "/v1/requests", body)
        assert answer.status == 201, answer.body
        (row,) = answer.json
        await shown(asked, row["set"], "running")
        assert len(asked.daemon.parts.fleet) == 1
        await asked.up(OWNER, LAB.format(users=""))
    del names[OTHER]
    async with a_daemon(tmp_path, NOSPOON_GROUP="") as asked:
        refused = await asked.ask(OTHER, "GET", f"/v1/requests/{row['set']}")
        assert refused.status == 403, "it is no member any more"
        board = asked.daemon.control.board
        board._clock = lambda: clock.unix() + 2 * 3600
        board._wake.set()
        ended = await shown(asked, row["set"], "ended")
        assert ended["result"] == "expired"
        assert not len(asked.daemon.parts.fleet)
        left = await asked.ask(ROOT, "POST", "/v1/orphans", {})
        assert left.json["orphans"] == []
