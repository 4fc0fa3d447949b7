"""A cloud is asked for a server and never answers, whether it makes the server or not."""

from __future__ import annotations

import asyncio

import pytest
from tests.e2e.test_cloud_changes import text

from nospoon.testing.cloud_connection import fake_cloud
from nospoon.testing.faulty import LineFault, in_front_of
from nospoon.testing.rack import private_rack

SERVERS = r"POST /compute/v2\.1/servers$"
PATIENCE = 4
"""Seconds until a call is given up."""


@pytest.mark.parametrize("fault", [LineFault.HANG, LineFault.SWALLOW])
async def test_up_makes_one_server_of_a_cloud_that_does_not_answer_at_first(
    fault: LineFault,
) -> None:
    """One that was made is found at the next try, which asks for no other."""
    async with fake_cloud() as cloud:
        cloud.api_timeout = PATIENCE
        before = cloud.everything()
        with in_front_of(cloud.url) as front, private_rack() as rack:
            cloud.url = front.url
            front.inject(SERVERS, fault, times=1)
            file = rack.file(text(cloud) + rack.bmc())
            done = await asyncio.to_thread(rack.run, "up", file, "--yes")
            assert "does not answer" in done.stdout + done.stderr, "and why it took longer"
            assert len(front.met) == 1
            assert [each["status"] for each in cloud.servers.values()] == ["SHUTOFF"]
            planned = await asyncio.to_thread(rack.run, "plan", file)
            assert "Nothing to do" in planned.stdout
            await asyncio.to_thread(rack.run, "down", "changing", "--yes")
            assert cloud.everything() == before
            rack.names.clear()


async def test_up_ends_with_the_reason_where_a_cloud_makes_no_server_and_never_answers() -> None:
    async with fake_cloud() as cloud:
        cloud.api_timeout = PATIENCE
        before = cloud.everything()
        with in_front_of(cloud.url) as front, private_rack() as rack:
            cloud.url = front.url
            front.inject(SERVERS, LineFault.SWALLOW, times=99)
            file = rack.file(text(cloud) + rack.bmc())
            failed = await asyncio.to_thread(rack.attempt, "up", file, "--yes")
            assert failed.returncode
            said = failed.stdout + failed.stderr
            assert "Nova of cloud mine does not answer" in said
            assert "Traceback" not in said
            assert cloud.servers == {}
            front.clear()
            await asyncio.to_thread(rack.run, "up", file, "--yes")
            assert len(cloud.servers) == 1
            await asyncio.to_thread(rack.run, "down", "changing", "--yes")
            assert cloud.everything() == before
            rack.names.clear()
