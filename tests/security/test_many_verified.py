"""`verify` of thousands of nodes: not a task for each, for all of them begin and end at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.security.asked import OWNER, a_daemon

COUNT, FEW = 300, 64
FILE = f"""cluster: many
hosts: {{here: {{simulated: {{}}}}}}
bmc: {{ports: 20000-21000}}
nodes: [{{name: "n-{{n}}", count: {COUNT}}}]
"""


async def test_a_verification_has_few_tasks_at_a_time(tmp_path: Path) -> None:
    """Those of 10,000 nodes held up all BMCs for 0.4 s when they were cancelled."""
    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OWNER, FILE)).status == 202
        before, most = len(asyncio.all_tasks()), 0
        answer = await asked.ask(OWNER, "POST", "/v1/clusters/many/verify", {})
        assert answer.status == 202, answer.body
        following = asyncio.create_task(  # noqa: TID251  (it is awaited here)
            asked.finished(OWNER, answer.json["id"])
        )
        while not following.done():
            most = max(most, len(asyncio.all_tasks()))
            await asyncio.sleep(0)
        found = await following
    assert len(found["result"]["nodes"]) == COUNT
    assert 0 < most - before < COUNT - FEW
