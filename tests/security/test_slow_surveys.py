"""Clouds and Ironics that members' files name may tell what they have as slowly as they like, for
hours: administrators look at them with `orphans` and `recover`, and wait for none of them so long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest
from tests.security.asked import OWNER, a_daemon

from nospoon.control.maintenance import survey
from nospoon.control.maintenance.survey import TOO_SLOW, Scope, Seen, Survey
from nospoon.engine.observe import Drivers
from nospoon.model.cluster import Host
from nospoon.model.connections import OpenStack
from nospoon.model.ironic import IronicPlace
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Observed
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.runtime.tasks import Tasks
from nospoon.testing.cloud_connection import connected, fake_cloud

pytestmark = [
    pytest.mark.filterwarnings("ignore:Support for InfluxDB"),
    pytest.mark.filterwarnings("ignore:The 'service_type' parameter"),
]
CLOUD = Host("cloud", OpenStack("mine", "http://keystone p", login="0" * 64))


async def _silent(drivers: Drivers, cluster: UUID | None) -> Sequence[Observed]:
    del drivers, cluster
    await asyncio.Event().wait()
    return ()


@pytest.mark.parametrize("scope", [Scope(ironics=(IronicPlace("http://x"),)), Scope((CLOUD,))])
async def test_what_a_slow_cloud_has_is_not_known(
    scope: Scope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "observe", _silent)
    monkeypatch.setattr(survey, "PATIENCE", 0.1, raising=False)
    async with (
        a_daemon(tmp_path) as asked,
        fake_cloud() as cloud,
        connected(cloud, tmp_path) as there,
    ):
        looks = asked.daemon.control.controller.survey
        _use(looks, there, monkeypatch)
        (seen,) = await looks.look(scope)
    assert seen.away == TOO_SLOW


def _use(at: Survey, there: OpenStackConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    class Used:
        connection = there

    monkeypatch.setattr(at._hosts, "use", lambda _host: Used)
    drivers = {("cloud", Kind.IMAGE): there.drivers[Kind.IMAGE]}
    monkeypatch.setattr(at._planner, "drivers", lambda _hosts: drivers)


async def test_who_recovers_elsewhere_waits_for_no_slow_cloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, goes_on = asyncio.Event(), asyncio.Event()
    around = Survey.around

    async def slow(self: Survey, scope: Scope) -> list[Seen]:
        if not began.is_set():
            began.set()
            await goes_on.wait()
        return await around(self, scope)

    monkeypatch.setattr(Survey, "around", slow)
    async with a_daemon(tmp_path) as asked, Tasks("recovery") as tasks:
        first = tasks.start(asked.ask(0, "POST", "/v1/recover", {}), name="first")
        await began.wait()
        assert (await asked.ask(0, "POST", "/v1/recover", {})).status == 200
        assert not first.done()
        goes_on.set()
        assert (await first).status == 200


async def test_who_leaves_looks_for_orphans_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.Event()

    async def silent(self: Survey, scope: Scope) -> list[Seen]:
        del self, scope
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return []

    monkeypatch.setattr(Survey, "around", silent)
    async with a_daemon(tmp_path) as asked:
        await asked.ask(0, "POST", "/v1/orphans", {}, gone=True)
        assert ended.is_set()
        assert (await asked.ask(OWNER, "POST", "/v1/orphans", {})).status == 403
