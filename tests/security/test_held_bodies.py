"""Requests whose bodies are held back, and end at one moment."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any, cast
from uuid import UUID

from starlette.types import ASGIApp

from nospoon.protocols.agent.agent import Reply, fault
from nospoon.runtime.slices import Slices
from nospoon.services.agents.listeners import Commanded, _app
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.netboot.http import create_app
from nospoon.services.netboot.inventory import Inventoried
from nospoon.services.netboot.peers import Peers
from nospoon.testing.bench import bench
from nospoon.testing.netboot import ToldAuthority
from nospoon.testing.redfish_app import Redfish

Event = MutableMapping[str, Any]
MANY = 20


async def turns_of(app: ASGIApp, scope: Callable[[], dict[str, Any]], body: bytes) -> list[int]:
    """In which turn of the loop each of so many requests was answered whose bodies end at one
    moment, when all of them have begun.
    """
    go, waiting, turn, answered = asyncio.Event(), asyncio.Semaphore(0), 0, list[int]()

    async def request() -> None:
        async def receive() -> Event:
            waiting.release()
            await go.wait()
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Event) -> None:
            if message["type"] == "http.response.start":
                answered.append(turn)

        await app(scope(), receive, send)

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for _ in range(MANY):
            group.create_task(request())
        for _ in range(MANY):
            await waiting.acquire()
        go.set()
        while len(answered) < MANY:
            turn += 1
            await asyncio.sleep(0)
    return answered


async def test_of_redfish_requests_a_few_go_on_in_each_turn_of_the_loop() -> None:
    """Each of 60 for a signing request at 10,000 BMCs took 20 ms, all in one turn."""
    async with bench(1) as b:
        redfish = Redfish.of(b)
        b.service.redfish.slices = Slices(seconds=0.0)  # each has a turn of its own
        place = f"{ROOT}/EventService/Actions/EventService.TestEventSubscription"
        answered = await turns_of(redfish.app, partial(redfish._scope, "POST", place, {}), b"{}")
        assert len(set(answered)) == MANY


async def test_of_reports_to_the_boot_server_a_few_are_read_in_each_turn_of_the_loop() -> None:
    """Who has no secret, too, sends 256 KiB of JSON, which are decoded first."""
    clock = itertools.count()
    app = create_app(
        ToldAuthority(),
        Peers(lambda _: None),
        ready=lambda: True,
        inventories=cast("Inventoried", object()),
        now=lambda: float(next(clock)),  # no time is left in any turn
    )
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "method": "POST",
        "path": "/lab/guess/inventory", "raw_path": b"/lab/guess/inventory", "root_path": "",
        "query_string": b"", "headers": [], "scheme": "http", "server": ("172.31.0.1", 8069),
        "client": ("172.31.0.20", 1), "http_version": "1.1",
    }  # fmt: skip
    assert len(set(await turns_of(app, partial(dict, scope), b"[]"))) == MANY


class Told:
    """Agents that refuse what they are told."""

    def refusal(self, machine: UUID, *, token: str) -> None:
        del machine, token

    def owner(self, machine: UUID) -> int:
        del machine
        return 0

    def held(self, machine: UUID) -> int:
        del machine
        return 0

    def command(self, machine: UUID, body: object, *, token: str, size: int, values: int) -> Reply:
        del machine, body, token, size, values
        return fault(400, "no such command")


async def test_of_commands_to_agents_a_few_are_read_in_each_turn_of_the_loop() -> None:
    """Each of 64 KiB, as many as a client of a BMC likes whose API an agent told its token, takes
    up to 20 ms.
    """
    app = _app(cast("Commanded", Told()), Slices(seconds=0.0))
    path = f"/{UUID(int=7)}/v1/commands"
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "method": "POST",
        "path": path, "raw_path": path.encode(), "root_path": "", "query_string": b"",
        "headers": [(b"content-length", b"2")], "scheme": "http", "server": ("172.31.0.1", 8069),
        "client": ("172.31.0.20", 1), "http_version": "1.1",
    }  # fmt: skip
    assert len(set(await turns_of(app, partial(dict, scope), b"{}"))) == MANY
