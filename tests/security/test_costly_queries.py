"""Queries of one account that take a processor, or memory, from all others."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Hashable
from typing import Any

import pytest
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.types import Message, Receive

from nospoon.runtime.slices import Slices
from nospoon.services.bmcs.redfish.app import QUERIED_AT_ONCE, App, find
from nospoon.services.bmcs.redfish.http import query
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.http.filters import FilterError, parse
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.testing.bench import Bench, bench, endpoint
from nospoon.testing.redfish import SYSTEMS, client, system_of


@pytest.mark.parametrize("text", ["Severities gt Severities", "not (A/B eq C) or D eq 1"])
def test_filters_do_not_compare_lists_with_lists(text: str) -> None:
    with pytest.raises(FilterError, match="expected a value to compare"):
        parse(text)


async def test_such_a_filter_is_refused() -> None:
    async with bench(1) as b:
        asked = "/redfish/v1/EventService/Subscriptions?$filter=Severities%20gt%20EventTypes"
        assert (await client(b.first).ask("GET", asked)).status == 400


async def test_what_is_expanded_has_so_many_bytes_at_most() -> None:
    fetched = [0]

    async def fetch(path: str) -> dict[str, Any]:
        fetched[0] += 1 << 20
        return {"@odata.id": path, "Name": "large"}

    links = [{"@odata.id": f"/{number}"} for number in range(10)]
    body = {"@odata.id": "/", "Members": links}
    asked = QueryParams("$expand=.")
    found = dict[str, Any](await query.apply(body, asked, fetch, size=lambda: fetched[0]))
    full = [each for each in found["Members"] if "Name" in each]
    assert len(full) == query.LONGEST_EXPANDED >> 20
    assert found["Members"][len(full) :] == links[len(full) :]


class Reader:
    """One who asks, and reads nothing until `reads` is set. `begun`: it was sent the headers."""

    def __init__(self) -> None:
        self.begun, self.reads = asyncio.Event(), asyncio.Event()
        self.body = b""

    async def send(self, message: Message) -> None:
        self.begun.set()
        await self.reads.wait()
        self.body += message.get("body", b"")


def nothing_more() -> Receive:
    sent = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Message:
        found = next(sent, None)
        if found is None:
            await asyncio.Event().wait()
        assert found is not None
        return found

    return receive


def ask(b: Bench, app: App, query_string: bytes, reader: Reader, path: str = SYSTEMS) -> Any:
    bmc = b.first.bmc
    login = base64.b64encode(f"{bmc.username}:{b.first.password}".encode())
    scope = {
        "type": "http", "method": "GET", "scheme": "http", "path": path, "root_path": "",
        "query_string": query_string, "headers": [(b"authorization", b"Basic " + login)],
        "server": (bmc.address, bmc.redfish_port), "client": ("192.0.2.1", 1),
    }  # fmt: skip
    return app(scope, nothing_more(), reader.send)


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("Systems", b"$expand=."),
        ("Systems", b"$select=Members"),
        ("Systems", b"$top=1"),
        ("Systems", b"unknown"),
        ("TaskService/Tasks", b""),
        ("SessionService/Sessions", b""),
        ("AccountService/Accounts", b""),
        ("AccountService/Accounts/2", b""),
    ],
)
async def test_an_account_has_so_many_long_answers_under_way_until_they_are_read(
    path: str, asked: bytes
) -> None:
    """Each of thousands of BMCs in them takes memory until then."""
    place = f"{ROOT}/{path}"
    async with bench(1) as b, asyncio.TaskGroup() as group, asyncio.timeout(20):
        app = App(b.service.redfish, b.service.listeners.accounts)
        readers = [Reader() for _ in range(QUERIED_AT_ONCE + 1)]
        *first, last = readers
        for each in first:
            group.create_task(ask(b, app, asked, each, place))
            await each.begun.wait()
        group.create_task(ask(b, app, asked, last, place))
        short = Reader()
        group.create_task(ask(b, app, b"", short))
        await short.begun.wait()  # short answers do not wait for long ones
        assert not last.begun.is_set()
        first[0].reads.set()
        await last.begun.wait()
        for each in (*readers, short):
            each.reads.set()
    assert all(each.body.startswith(b"{") for each in (*readers, short))


class Counted(Slices):
    """Slices of no time, and how many there were."""

    turns = 0

    async def turn(self, key: Hashable) -> float:
        self.turns += 1
        return await super().turn(key)


@pytest.mark.parametrize("path", ["AccountService/Accounts", "AccountService/Accounts/2"])
async def test_accounts_are_looked_through_in_slices(path: str) -> None:
    """Thousands of BMCs may have thirteen users each, all with other names."""
    async with bench(1) as b:
        line = client(b.first)
        for number in range(5):
            made = {"UserName": f"u{number}", "Password": "hunter2222", "RoleId": "Operator"}
            assert (await line.ask("POST", f"{ROOT}/AccountService/Accounts", made)).status == 201
        b.service.redfish.slices = slices = Counted(seconds=-1.0)
        assert (await line.get(f"{ROOT}/{path}")).status == 200
        assert slices.turns >= 2 * 6  # looked at once, and named


@pytest.mark.parametrize(
    "path", ["SessionService/Sessions", "TaskService/Tasks", "AccountService/Accounts"]
)
async def test_long_lists_are_not_decoded_for_their_queries(path: str) -> None:
    async with bench(1) as b:
        asked, accounts = client(b.first), b.service.listeners.accounts
        given = {"UserName": b.first.bmc.username, "Password": b.first.password}
        await asked.ask("POST", f"{ROOT}/SessionService/Sessions", given)
        eject = f"{system_of(b.first)}/VirtualMedia/Cd/Actions/VirtualMedia.EjectMedia"
        assert (await asked.ask("POST", eject, {})).status == 204
        bmc = b.first.bmc
        scope: dict[str, Any] = {
            "type": "http", "method": "GET", "path": f"{ROOT}/{path}",
            "query_string": b"$select=Id", "headers": [],
            "server": (bmc.address, bmc.redfish_port), "client": None,
        }  # fmt: skip
        exchange = Exchange(Request(scope, nothing_more()), b.service.redfish, accounts)
        assert exchange.log_in(accounts.find(endpoint(b.first), bmc.username, b.first.password))
        found = find(f"{ROOT}/{path}")
        assert found is not None
        await found[0].methods["GET"](exchange)
        assert exchange.listed is not None  # of which it is made in slices
        assert len(exchange.listed.paths) == 1
        body = (await asked.get(f"{ROOT}/{path}?$select=Members@odata.count")).json
        assert body["Members@odata.count"] == 1
        assert (await asked.get(f"{ROOT}/{path}?$top=0")).json["Members"] == []
