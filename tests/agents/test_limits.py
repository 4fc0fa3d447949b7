"""Agents of one user, and the servers that they ask, take little from those of others."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
from tests.agents.test_service import HARDWARE, ironic

from nospoon.errors import ProviderError
from nospoon.model.agent import Agents
from nospoon.providers.simulated.guests import Guest
from nospoon.runtime.reach import Reach
from nospoon.runtime.tasks import Tasks
from nospoon.services.agents import listeners, service
from nospoon.services.agents.listeners import Listeners
from nospoon.services.agents.service import AgentService, Bounds
from nospoon.testing.due import forward

MINE, OTHER = UUID(int=1), UUID("11111111-2222-5333-8444-555555555555")
PLAIN = Agents(tls=False)


class Quiet:
    """A machine that remembers nothing but what it said last."""

    said = ""

    def say(self, machine: UUID, text: str) -> None:
        del machine
        self.said = text

    def write(self, machine: UUID, image: str) -> None: ...
    def power_off_by_guest(self, machine: UUID) -> None: ...
    def reset_by_guest(self, machine: UUID) -> None: ...
    def boot_disk(self, machine: UUID) -> None: ...


async def nothing(machine: UUID) -> None:
    del machine


async def no_endpoint(machine: UUID) -> str:
    del machine
    return ""


@asynccontextmanager
async def agents(reach: Reach | None = None) -> AsyncIterator[AgentService]:
    bounds = Bounds(reach or Reach(), no_endpoint, owner_of=lambda uuid: int(uuid == OTHER))
    async with Tasks("test") as tasks:
        made = AgentService(tasks, nothing, random.Random(1), bounds=bounds)
        try:
            yield made
        finally:
            await made.close()


@pytest.mark.parametrize(
    "silent_at",
    [lambda url: Agents(tls=False, api=url), lambda url: Agents(tls=False, boot_script=url)],
    ids=["api", "boot_script"],
)
async def test_a_silent_server_holds_up_its_own_users_agents_alone(
    monkeypatch: pytest.MonkeyPatch, silent_at: Callable[[str], Agents]
) -> None:
    monkeypatch.setattr(service, "AT_ONCE", 1)
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with agents() as made, ironic() as api:
        made.booted(Guest(MINE, HARDWARE, silent_at(url), Quiet()))
        await asked.wait()
        made.booted(Guest(OTHER, HARDWARE, Agents(tls=False, api=api.url), Quiet()))
        async with asyncio.timeout(20):
            await api.beats.get()
    server.close()


async def test_boot_scripts_are_not_fetched_from_the_daemons_own_listeners() -> None:
    machine = Quiet()
    async with ironic() as api:
        port = int(api.url.rpartition(":")[2])
        reach = Reach(closed=lambda _address, there: there == port)
        async with agents(reach) as made:
            behaviour = Agents(tls=False, boot_script=f"{api.url}/boot.ipxe")
            made.booted(Guest(MINE, HARDWARE, behaviour, machine))
            async with asyncio.timeout(20):
                while "did not start" not in machine.said:  # noqa: ASYNC110  (it has no event)
                    await asyncio.sleep(0.01)


async def test_a_listener_ends_a_while_after_its_last_agent() -> None:
    async with Tasks("test") as tasks:
        made = Listeners(AgentService(tasks, nothing, bounds=Bounds(Reach(), no_endpoint)), tasks,
                         idle=600)  # fmt: skip
        first, again = await made.use(PLAIN, 1), await made.use(PLAIN, 2)
        assert first is again
        made.leave(PLAIN, 1)
        await _idle()
        assert await made.use(PLAIN, 1) is first, "another user's agent is there"
        made.leave(PLAIN, 1)
        made.leave(PLAIN, 2)
        for _ in range(10):
            await asyncio.sleep(0)
        assert await made.use(PLAIN, 1) is first, "a while is not over"
        await _idle()
        assert await made.use(PLAIN, 2) is first, "one came within that while"
        made.leave(PLAIN, 1)
        made.leave(PLAIN, 2)
        await _idle()
        port = int(first.url.rpartition(":")[2])
        async with asyncio.timeout(20):
            while _answers(port):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await made.use(PLAIN, 1) is not first
        await made.close()


async def _idle() -> None:
    """What waits for 600 s is due, and what was due by now is done."""
    await asyncio.sleep(0)  # a task that was started just now begins to wait
    forward(600)
    await asyncio.sleep(0.001)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_agents_of_one_user_answer_at_so_many_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listeners, "MOST", 2)
    places = [Agents(tls=False, address=f"127.0.0.{number}") for number in (1, 2, 3)]
    async with Tasks("test") as tasks:
        made = Listeners(AgentService(tasks, nothing, bounds=Bounds(Reach(), no_endpoint)), tasks)
        for each in places[:2]:
            await made.use(each, 1)
        with pytest.raises(ProviderError, match="your agents answer at 2 addresses"):
            await made.use(places[2], 1)
        await made.use(places[1], 1)
        await made.use(places[2], 2)
        await made.close()
