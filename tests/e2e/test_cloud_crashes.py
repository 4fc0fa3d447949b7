"""The daemon dies at each call that changes a cloud: what was begun is finished, nothing is left.

At a cloud in memory, which carries the call out, and kills the daemon before it answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator

import pytest

from nospoon.testing.fake_cloud import FakeCloud, fake_cloud
from nospoon.testing.rack import Rack, private_rack

CLUSTER = """
cluster: crash
hosts:
  cloud:
    openstack: {{cloud: {settings}, flavors: [metal.512], boot_address: 127.0.0.1}}
    physnets: {{external: external}}
networks: {{external: {{physnet: external}}, provision: {{}}}}
nodes:
  - {{name: n, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB],
     nics: [{{network: external}}, {{network: provision}}]}}
"""
CHANGES = ("POST", "PUT", "DELETE")


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    async with fake_cloud() as made:
        made.networks["n0"]["project_id"] = "0" * 32  # its own: MACs may be chosen there
        yield made


def is_change(call: str) -> bool:
    return call.startswith(CHANGES) and "auth/tokens" not in call and "/action" not in call


async def dying(cloud: FakeCloud, rack: Rack, number: int, *command: str) -> bool:
    """Run a command whose daemon dies at its change number `number`; whether there was one."""
    left = number

    def heard(call: str) -> None:
        nonlocal left
        left -= is_change(call)
        if left == 0 and is_change(call):
            os.kill(rack.daemon_pid(), signal.SIGKILL)

    cloud.heard = heard
    with contextlib.suppress(AssertionError):  # it fails as its daemon dies
        await asyncio.to_thread(rack.run, *command)
    cloud.heard = None
    return left <= 0


@pytest.mark.timeout(400, func_only=True)
async def test_the_daemon_dies_at_each_change_of_a_cloud(cloud: FakeCloud) -> None:
    before = cloud.everything()
    with private_rack() as rack:
        settings = json.dumps({"name": "mine", **cloud.settings})
        file = rack.file(CLUSTER.format(settings=settings) + rack.bmc())
        killed, number = 0, 1
        while await dying(cloud, rack, number, "up", file, "--yes"):
            number, killed = number + 1, killed + 1
            await asyncio.to_thread(rack.run, "up", file, "--yes")
            plan = await asyncio.to_thread(rack.run, "plan", file)
            assert "Nothing to do" in plan.stdout
            assert {kind: len(ids) for kind, ids in cloud.everything().items()} == {
                "servers": 1, "networks": 2, "subnets": 1, "ports": 2, "images": 1,
            }  # fmt: skip
            await asyncio.to_thread(rack.run, "down", "crash", "--yes")
            assert cloud.everything() == before
        assert killed >= 6, "an image and its data, a network, a subnet, two ports, a server"
        number = 1
        await asyncio.to_thread(rack.run, "up", file, "--yes")
        while await dying(cloud, rack, number, "down", "crash", "--yes"):
            number, killed = number + 1, killed + 1
            await asyncio.to_thread(rack.run, "down", "crash", "--yes")
            assert cloud.everything() == before
            await asyncio.to_thread(rack.run, "up", file, "--yes")
        await asyncio.to_thread(rack.run, "down", "crash", "--yes")
        assert cloud.everything() == before
        assert killed >= 10
