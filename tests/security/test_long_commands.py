"""Commands of simulated agents: who names an agent's API may send long ones.

250 connections to one agent had the daemon hold 2 GB, and a user's agents kept what each was given.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any
from uuid import UUID

import pytest
from tests.agents.test_service import NODE, TOKEN, Machine, agents, guest, ironic
from tests.security.test_agent_floods import results, serving

from nospoon.errors import Busy
from nospoon.model.agent import Agents
from nospoon.protocols.agent.agent import VALUE, Agent
from nospoon.runtime.tasks import Tasks
from nospoon.services.agents import long_ones
from nospoon.services.agents.kept import MOST, Kept
from nospoon.services.agents.long_ones import AT_ONCE, LONG, LongOnes

LARGE = 8 << 20
ERASE = {"step": "erase_devices"}
Lines = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def asks(beat: dict[str, Any], head: str, body: bytes = b"") -> Lines:
    """A connection to an agent, with a request of which this body is sent."""
    place, _, path = beat["callback_url"].removeprefix("https://").partition("/")
    host, _, port = place.partition(":")
    context = ssl.create_default_context(cadata=beat["agent_verify_ca"])
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    method, _, more = head.partition(" ")
    target = f"/{path}/v1/commands/?agent_token={TOKEN}"
    writer.write(f"{method} {target} HTTP/1.1\r\nHost: h\r\n{more}\r\n\r\n".encode() + body)
    return reader, writer


async def status(lines: Lines) -> int:
    async with asyncio.timeout(20):
        found = int((await lines[0].readline()).split()[1])
    lines[1].close()
    return found


async def test_one_long_command_of_an_agent_is_received_at_a_time() -> None:
    command = {"name": "standby.sync", "params": {"x": "x" * 2 * LONG}}
    long, short = (json.dumps(each).encode() for each in (command, {**command, "params": {}}))
    head = f"POST Content-Length: {len(long)}"
    async with ironic() as api, agents() as service, Tasks("test") as tasks:
        service.booted(guest(Machine(), Agents(api=api.url)))
        beat = await api.beats.get()
        first = await asks(beat, head, long[:-1])
        assert await status(await asks(beat, f"POST Content-Length: {len(short)}", short)) == 200
        second = tasks.start(status(await asks(beat, head, long)), name="second")
        assert await status(await asks(beat, f"POST Content-Length: {len(short)}", short)) == 200
        assert not second.done()
        first[1].write(long[-1:])
        assert await status(first) == 200
        assert await second == 200
        assert await status(await asks(beat, "GET Accept: */*")) == 200


async def test_so_many_long_ones_of_a_users_agents_are_held_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns, most, now = LongOnes(), 0, 0
    monkeypatch.setattr(long_ones, "UNDER_WAY", 3 * AT_ONCE)

    async def one(number: int) -> None:
        nonlocal most, now
        async with turns.turn(UUID(int=number), 1, LARGE):
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            now -= 1

    async with Tasks("test") as tasks:
        under_way = [tasks.start(one(each), name="one") for each in range(3 * AT_ONCE)]
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await one(1000)
        async with turns.turn(UUID(int=1), 1, LONG), turns.turn(UUID(int=1000), 2, LARGE):
            pass
        await asyncio.gather(*under_way)
    assert most == AT_ONCE
    await one(1000)


def command(agent: Agent, size: int, *, values: int = 0, seconds: float = 2000.0) -> None:
    """Long ones are as good as any: what counts is what is said of their size."""
    params = {"step": {**ERASE, "args": {"x": size}}}
    agent.run("clean.execute_clean_step", params, 3.0, chance=1.0, size=size, values=values)
    agent.expire(seconds)


def test_what_agents_of_a_user_keep_is_bounded_and_ironic_finds_what_it_reads() -> None:
    kept, all_agents = Kept(), [serving() for _ in range(100)]
    for turn in range(3):
        for number, agent in enumerate(all_agents):
            size = LARGE if turn < 2 else 1000
            assert kept.has_room(1, UUID(int=number), size + VALUE * 10)
            command(agent, size, values=10)
            kept.put(1, UUID(int=number), agent)
            assert sum(each.held for each in all_agents) <= MOST
    for agent in all_agents:
        last = results(agent)[-1]
        assert last["command_status"] == "SUCCEEDED"
        assert last["command_result"]["clean_step"]["step"] == "erase_devices"
    assert results(all_agents[-1])[-1]["command_params"]


def test_commands_that_run_are_not_forgotten_but_further_ones_refused() -> None:
    kept, slow = Kept(), [serving() for _ in range(MOST // LARGE)]
    for number, agent in enumerate(slow):
        assert kept.has_room(1, UUID(int=number), LARGE)
        command(agent, LARGE, seconds=0.0)
        kept.put(1, UUID(int=number), agent)
    assert not kept.has_room(1, UUID(int=1000), LARGE)
    assert kept.has_room(2, UUID(int=1000), LARGE)
    slow[0].expire(2000.0)
    assert kept.has_room(1, UUID(int=1000), LARGE)
    assert not results(slow[0])[-1]["command_params"]
    kept.drop(1, UUID(int=1))
    assert kept.has_room(1, UUID(int=1000), 2 * LARGE)


async def test_an_agent_refuses_what_there_is_no_memory_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nospoon.services.agents.kept.MOST", 1000)
    async with ironic() as api, agents() as service:
        service.booted(guest(Machine(), Agents(api=api.url)))
        await api.beats.get()
        body = {"name": "standby.sync", "params": {}}
        assert service.command(NODE, body, token=TOKEN, size=1001).status == 503
        assert service.command(NODE, body, token=TOKEN, size=900).status == 200
