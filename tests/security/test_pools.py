"""Pools and volumes have 32 bits of a cluster's id in their names, and files may choose ids."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from tests.security.asked import OTHER, OWNER, a_daemon

from nospoon.errors import NotOurs
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Resource

MINE = UUID("11223344-1111-4111-8111-111111111111")
THEIRS = UUID("11223344-2222-4222-8222-222222222222")
TEXT = "cluster: lab\nid: {}\nhosts: {{s: simulated}}\nnodes: [{{disks: [1GiB]}}]\n"


async def test_no_cluster_gets_the_pool_of_another_one(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OWNER, TEXT.format(MINE))).status == 202
        body = {"file": "c.yaml", "text": TEXT.format(THEIRS)}
        refused = await asked.ask(OTHER, "POST", "/v1/plan", body)
        assert refused.status == 409
        assert "which another cluster has" in refused.json["error"]["message"]
        (member,) = asked.daemon.parts.fleet.of(OWNER)
        driver = asked.daemon.parts.drivers.of(member.host)[Kind.POOL]
        (pool,) = await driver.observe(MINE)
        thief = replace(pool.tag, cluster=THEIRS)
        with pytest.raises(NotOurs, match="of this cluster"):
            await driver.create(Resource(pool.key, pool.shape), thief)
        with pytest.raises(NotOurs):
            await driver.change(pool, Resource(pool.key, pool.shape), thief)
        with pytest.raises(NotOurs):
            await driver.delete(replace(pool, tag=thief))
        assert await driver.observe(MINE)
