"""A client that asks one BMC for more changes than can be made durable."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from uuid import UUID

import pytest

from nospoon.bmc.messages import Answer, SettingsRequested, Verdict
from nospoon.bmc.runtime import Runtime
from nospoon.runtime.slices import Slices
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.effects import WAITING
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.bmcs.service import BmcService
from nospoon.testing.bench import MemoryMachines, MemoryStore, bench, config, free_port
from nospoon.testing.redfish_app import Redfish


class SlowStore(MemoryStore):
    """Saves once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_save = asyncio.Event()

    async def save(self, machine: UUID, runtime: Runtime) -> None:
        await self.may_save.wait()
        await super().save(machine, runtime)


async def test_further_requests_are_refused_and_others_are_not() -> None:
    async with Tasks("floods") as tasks, asyncio.timeout(30):
        store, machines = SlowStore(), MemoryMachines()
        service = machines.service = BmcService(machines, store, tasks)
        store.may_save.set()
        configs = [
            config(number, redfish_port=free_port(socket.SOCK_STREAM)) for number in range(2)
        ]
        for each in configs:
            await service.put(each)
        store.may_save.clear()

        def ask(number: int, tag: str) -> asyncio.Future[Answer]:
            served = service.status(configs[number].bmc.uuid)
            assert served is not None
            settings = replace(served.aggregate.runtime.settings, asset_tag=tag)
            return service.ask(served, lambda ticket: SettingsRequested(settings, ticket))

        asked = [ask(0, f"tag {number}") for number in range(2 * WAITING)]
        other = ask(1, "tag")
        refused = [each.result().verdict for each in asked if each.done()]
        assert len(refused) > WAITING // 2
        assert set(refused) == {Verdict.BUSY}
        store.may_save.set()
        answers = await asyncio.gather(*asked, other)
        assert {each.verdict for each in answers} == {Verdict.BUSY, Verdict.DONE}
        assert answers[-1].verdict is Verdict.DONE
        assert (await ask(0, "again")).verdict is Verdict.DONE
        await service.close()


@pytest.mark.parametrize("many", ["2001:db8::{}", "127.0.0.{}"])
async def test_who_has_many_addresses_has_one_turn(many: str) -> None:
    """A site's /64, and loopback for users of this machine."""
    async with bench(1) as b:
        b.service.redfish.slices = Slices(seconds=0.0)  # each request has a turn of its own
        stranger, answered = Redfish.of(b).without_login(), list[str]()

        async def ask(client: str) -> None:
            assert (await replace(stranger, client=client).ask("GET", f"{ROOT}/Systems")).status
            answered.append(client)

        flood = [many.format(number) for number in range(1, 41)]
        await asyncio.gather(*map(ask, [*flood, "192.0.2.9"]))
        assert answered.index("192.0.2.9") <= 2


async def test_a_session_waits_for_no_strangers_at_its_address() -> None:
    async with bench(1) as b:
        redfish = Redfish.of(b)
        pair = {"UserName": b.first.bmc.username, "Password": b.first.password}
        made = await redfish.ask("POST", f"{ROOT}/SessionService/Sessions", pair)
        b.service.redfish.slices = Slices(seconds=0.0)  # each request has a turn of its own
        stranger, answered = redfish.without_login(), list[int]()

        async def ask(**headers: str) -> None:
            answered.append((await stranger.ask("GET", f"{ROOT}/Systems", **headers)).status)

        known = ask(x_auth_token=made.headers["x-auth-token"])
        await asyncio.gather(*(ask(x_auth_token="guess") for _ in range(40)), known)
        assert sorted(answered) == [200, *[401] * 40]
        assert answered.index(200) <= 20
