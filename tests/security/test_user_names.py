"""Names of users may be asked of another machine: nobody waits for that in the event loop."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from tests.security.asked import OWNER, a_daemon

from nospoon.runtime.users import names_of, user_name
from nospoon.store import clusters as stored

FILE = "cluster: c\nhosts: {s: simulated}\nnodes: [{}]\n"


async def test_names_of_owners_are_looked_up_off_the_event_loop(tmp_path: Path) -> None:
    where: list[threading.Thread] = []

    def name_of(uid: int | None) -> str:
        where.append(threading.current_thread())
        return user_name(uid)

    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, FILE)
        controller = asked.daemon.control.controller
        controller.orphans.name_of = controller.recovery.name_of = name_of
        for member in asked.daemon.parts.fleet.of(OWNER):
            asked.daemon.parts.fleet.drop(member.uuid)
            await asked.daemon.parts.database.call(stored.remove, member.cluster_id)
        for path in ("/v1/orphans", "/v1/recover"):
            before = len(where)
            answer = await asked.ask(os.getuid(), "POST", path, {"file": "f", "text": FILE})
            assert answer.status == 200
            assert b'"owner":"nobody"' in answer.body
            assert len(where) == before + 1
    assert threading.main_thread() not in where


async def test_each_user_is_asked_for_once() -> None:
    asked: list[int | None] = []

    def name_of(uid: int | None) -> str:
        asked.append(uid)
        return user_name(uid)

    found = await names_of([OWNER, None, OWNER], name_of)
    assert found == {OWNER: "nobody", None: ""}
    assert len(asked) == 2
