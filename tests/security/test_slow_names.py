"""Names of hosts that clients choose: servers of names that never answer hold up no one else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.security.asked import a_daemon

from nospoon.bmc.events import EventSettings, Subscription
from nospoon.control.labs.webhooks import Webhooks
from nospoon.model.declared import CallLimits
from nospoon.model.lab import Webhook
from nospoon.providers.cloud_calls import Means
from nospoon.providers.openstack.api import Api
from nospoon.runtime.lookups import OF_ALL, OF_ONE, Lookups, Place, resolve
from nospoon.runtime.reach import Reach, places_of
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.redfish.events.delivery import Deliveries
from nospoon.store.lab_notices import Notice

PATIENCE = 30.0


class Servers:
    """Those of `*.silent.example` answer when they are let; all other names are here."""

    def __init__(self) -> None:
        self.answer, self.asked = Event(), 0
        self._loop, self._changed = asyncio.get_running_loop(), asyncio.Condition()

    def resolve(self, host: str, port: int) -> Sequence[Place]:
        if host.endswith(".silent.example"):
            asyncio.run_coroutine_threadsafe(self._note(), self._loop)
            self.answer.wait(PATIENCE)
        return resolve("127.0.0.1", port)

    async def _note(self) -> None:
        async with self._changed:
            self.asked += 1
            self._changed.notify_all()

    async def until(self, asked: int) -> None:
        """So many names were asked for."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.asked >= asked)


@asynccontextmanager
async def attacked(servers: Servers, *owners: str) -> AsyncIterator[Reach]:
    """Each of them has named a hundred hosts whose servers are silent. How others connect."""
    reach = Reach(anywhere=True, names=Lookups(servers.resolve))
    async with asyncio.timeout(PATIENCE / 2), Tasks("attack") as tasks:
        for owner in owners:
            for number in range(100):
                name = f"{owner}-{number}.silent.example"
                tasks.start(places_of(name, 80, replace(reach, owner=owner)), name="look up")
        try:
            await servers.until(min(OF_ALL, OF_ONE * len(owners)))
            yield reach
        finally:
            servers.answer.set()


async def test_silent_servers_of_one_owner_hold_up_neither_others_nor_the_daemon() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    servers = Servers()
    async with attacked(servers, "mallory") as reach:
        assert await places_of("fine.example", 80, replace(reach, owner="bob"))
        assert await asyncio.to_thread(lambda: True)
        assert servers.asked == OF_ONE


async def test_lookups_of_all_owners_together_are_bounded() -> None:
    servers = Servers()
    owners = [f"mallory-{number}" for number in range(2 * OF_ALL // OF_ONE)]
    async with attacked(servers, *owners):
        assert await asyncio.to_thread(lambda: True)
        assert servers.asked == OF_ALL


async def test_who_no_longer_waits_has_a_place_until_the_server_has_answered() -> None:
    servers = Servers()
    lookups = Lookups(servers.resolve)
    async with asyncio.timeout(PATIENCE / 2), Tasks("attack") as tasks:
        for number in range(OF_ONE):
            left = tasks.start(lookups("a.silent.example", 80, "mallory"), name="look up")
            await servers.until(number + 1)
            left.cancel()
        further = tasks.start(lookups("fine.example", 80, "mallory"), name="look up")
        assert await lookups("fine.example", 80, "bob")
        assert not further.done()
        servers.answer.set()
        assert await further


async def test_a_lookup_that_gets_no_thread_keeps_no_place() -> None:
    def begin(_: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    lookups = Lookups(begin=begin)
    async with asyncio.timeout(PATIENCE):
        for _ in range(2 * OF_ONE):
            with pytest.raises(OSError, match=r"fine\.example cannot be looked up: too many"):
                await lookups("fine.example", 80, "bob")


async def test_addresses_in_text_need_no_server() -> None:
    async def names(host: str, _port: int, _owner: Hashable) -> Sequence[Place]:
        pytest.fail(f"{host} was looked up")

    reach = Reach(anywhere=True, names=names)
    assert await places_of("192.0.2.1", 80, reach) == ["192.0.2.1"]
    assert await places_of("2001:db8::1", 80, reach) == ["2001:db8::1"]


async def test_destinations_of_events_are_looked_up_in_their_owners_turn() -> None:
    told: asyncio.Queue[tuple[str, Hashable]] = asyncio.Queue()

    async def names(host: str, _port: int, owner: Hashable) -> Sequence[Place]:
        await told.put((host, owner))
        raise OSError("no such name")

    async def give_up(_: str) -> None:
        """Nobody does so soon."""

    wanted = Subscription("1", "http://hook.example/")
    async with asyncio.timeout(PATIENCE), Tasks("deliveries") as tasks:
        deliveries = Deliveries(
            tasks,
            lambda _: (EventSettings("here 1", "00", subscriptions=(wanted,)), wanted),
            give_up,
            lambda _, records: {"Events": records},
            overrun=dict[str, Any],
            owner_of=lambda _: "bob",
            reach=Reach(anywhere=True, names=names),
        )
        deliveries.put("1", {"n": 1})
        assert await told.get() == ("hook.example", "bob")
        deliveries.close()


async def test_webhooks_are_looked_up_in_their_owners_turn() -> None:
    told: asyncio.Queue[tuple[str, Hashable]] = asyncio.Queue()

    async def names(host: str, _port: int, owner: Hashable) -> Sequence[Place]:
        await told.put((host, owner))
        raise OSError("no such name")

    async def forget(_: Sequence[str]) -> None:
        """They need not be stored any more."""

    async with asyncio.timeout(PATIENCE), Tasks("webhooks") as tasks:
        hooks = Webhooks(tasks, Reach(anywhere=True, names=names), forget, pauses=())
        for owner in (1000, 1001):
            hook = Webhook(f"http://{owner}.example/", "s" * 16)
            hooks.send((hook,), Notice(str(owner), f"{owner}:c/dev", 0, "{}"))
        asked = {await told.get(), await told.get()}
    assert asked == {("1000.example", 1000), ("1001.example", 1001)}


async def test_what_a_cloud_names_is_looked_up_in_its_own_threads() -> None:
    """Consoles of its servers; a member chooses the cloud."""

    async def names(host: str, _port: int, _owner: Hashable) -> Sequence[Place]:
        pytest.fail(f"{host} was looked up among the names of all")

    with ThreadPoolExecutor(1) as threads:
        means = Means(threads, Reach(anywhere=True, names=names))
        api = Api("cloud", dict, means, CallLimits())
        assert "127.0.0.1" in await places_of("localhost", 80, api.reach)


async def test_the_daemon_looks_up_what_clients_name_in_threads_of_its_own(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as here:
        assert isinstance(here.daemon.parts.reach.names, Lookups)
        assert isinstance(here.daemon.parts.files.reach.names, Lookups)
