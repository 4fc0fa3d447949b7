"""Streams of events: what hundreds of readers take of the event loop, and when their rights end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from tests.redfish.test_events import said, stream
from tests.security.asked import OWNER, a_daemon
from tests.security.test_received import turns

from nospoon.control.operations.operations import AT_ONCE, Ended, Running
from nospoon.lab.work import SetState
from nospoon.model.machine import PowerCommand
from nospoon.runtime.slices import Slices
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.redfish.events.events import Stream
from nospoon.services.bmcs.redfish.events.streaming import sent
from nospoon.store.operations import OperationState
from nospoon.testing.bench import bench
from nospoon.testing.redfish import Client, client

SESSIONS = "/redfish/v1/SessionService/Sessions"
READERS, EVENTS = 10, 5


async def most_in_a_turn(followed: list[AsyncIterator[Any]], amount: int) -> int:
    """Pieces that all of these readers are sent in one turn of the loop."""
    async with turns() as loop, Tasks("readers") as tasks:

        async def read(pieces: AsyncIterator[Any]) -> None:
            for _ in range(amount):
                await anext(pieces)
                loop.count()

        reading = [tasks.start(read(each), name="reader") for each in followed]
        async with asyncio.timeout(20):
            await asyncio.gather(*reading)
    return max(loop.done.values())


async def test_events_of_an_operation_are_sent_in_turn(tmp_path: Path) -> None:
    """200 readers of one with 20,000 events stopped all BMCs for two seconds."""
    async with a_daemon(tmp_path) as asked:
        operations, told = asked.daemon.control.controller.operations, asyncio.Event()
        operations.slices = Slices(seconds=0)
        end = asyncio.Event()

        async def work(running: Running) -> Ended:
            for number in range(EVENTS * AT_ONCE):
                running.note(str(number))
            told.set()
            await end.wait()
            return Ended(OperationState.DONE, "")

        row = await operations.start("up", cluster_id=uuid4(), cluster="c", owner=OWNER, work=work)
        await told.wait()
        followed = [operations.follow(row.id) for _ in range(READERS)]
        assert await most_in_a_turn(followed, EVENTS) == 1
        end.set()
        await asked.finished(OWNER, str(row.id))


async def test_events_of_a_recipe_set_are_sent_in_turn(tmp_path: Path) -> None:
    """200 readers of one with 2,000 events stopped all BMCs for 0.3 s, again and again."""
    async with a_daemon(tmp_path) as asked:
        board = asked.daemon.control.controller.labs.board
        board.sending = Slices(seconds=0)
        history = [(0.0, 0, "extended", str(number)) for number in range(EVENTS)]
        found = SimpleNamespace(state=SetState.ENDED, submitter=OWNER)

        async def find(set_id: str) -> Any:
            del set_id
            return found, 0, history

        board.find = find  # type: ignore[method-assign]
        followed = [board.follow("1.1", 0) for _ in range(READERS)]
        assert await most_in_a_turn(followed, EVENTS) == 1


async def test_an_event_is_sent_to_many_streams_of_redfish_in_turn() -> None:
    """448 streams of one BMC, all that its accounts may have, stopped all BMCs for 0.09 s with each
    power command.
    """
    streams = [Stream(("127.0.0.1", 1), b"a", lambda _: True) for _ in range(READERS)]
    slices, known = Slices(seconds=0), dict[str, Stream]()
    followed = [sent(each, known, slices) for each in streams]
    assert [await anext(each) for each in followed] == [b": nospoon\n\n"] * READERS
    for each in streams:
        for number in range(EVENTS):
            each.put({"Id": str(number)})
    assert await most_in_a_turn(list(followed), EVENTS) == 1


async def test_a_stream_ends_with_the_session_that_opened_it() -> None:
    """Who was logged out, because another had the token, say, went on to be told of everything."""
    async with bench(1) as b:
        given = {"UserName": b.first.bmc.username, "Password": b.first.password}
        made = await client(b.first).ask("POST", SESSIONS, given)
        token = Client(b.first, {"X-Auth-Token": made.headers["x-auth-token"]})
        async with stream(b, line=token) as of_session, stream(b) as of_password:
            assert (await client(b.first).ask("DELETE", made.headers["location"])).status == 204
            async with asyncio.timeout(20):
                assert (await of_session.readuntil(b"\r\n0\r\n\r\n")).endswith(b"0\r\n\r\n")
            await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
            assert (await said(of_password))["Events"]
