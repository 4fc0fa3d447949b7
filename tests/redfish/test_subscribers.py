"""Event subscriptions belong to a user, by number: whatever else of the user changes, they stay."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from nospoon.bmc import users as table
from nospoon.bmc.messages import SettingsRequested
from nospoon.model.machine import PowerCommand
from nospoon.services.bmcs.redfish.events.events import MOST
from nospoon.testing.bench import Bench, bench
from nospoon.testing.redfish import Client, client

from .test_accounts import ACCOUNTS, bob, create
from .test_events import SUBSCRIPTIONS, Sink, asked, sink, stream

BOB = f"{ACCOUNTS}/3"


async def subscribed(line: Client, to: Sink) -> str:
    made = await line.ask("POST", SUBSCRIPTIONS, {"Destination": to.uri, "Protocol": "Redfish"})
    assert made.status == 201
    return made.headers["location"]


async def patch(b: Bench, body: dict[str, Any]) -> None:
    assert (await client(b.first).ask("PATCH", BOB, body)).status == 200


def kept(b: Bench) -> list[str]:
    """Ids of the subscriptions that are stored."""
    return [one.id for each in b.store.event_settings.values() for one in each.subscriptions]


async def told(b: Bench, to: Sink) -> None:
    to.got.clear()
    await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
    await b.service.power(b.first.bmc.uuid, PowerCommand.OFF)
    await to.until(lambda: "ResourcePoweredOff" in to.keys)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ([{"Password": "another one"}], {"password": "another one"}),
        ([{"UserName": "rob"}], {"name": "rob"}),
        ([{"Enabled": False}, {"Enabled": True}], {}),
        ([{"Enabled": False}, {"Password": "another one"}, {"Enabled": True}],
         {"password": "another one"}),
        ([{"Password": "another one"}, {"Password": "and another"}], {"password": "and another"}),
        ([{"RoleId": "Administrator"}], {}),
    ],
    ids=["password", "name", "enabled", "while disabled", "twice", "role"],
)  # fmt: skip
async def test_a_user_who_changes_keeps_subscriptions(
    changes: list[dict[str, Any]], line: dict[str, str]
) -> None:
    async with bench(1) as b, sink() as to:
        await create(b)
        place = await subscribed(bob(b), to)
        for each in changes:
            await patch(b, each)
        assert (await bob(b, **line).get(place)).status == 200
        assert kept(b) == [place.rpartition("/")[2]]
        await told(b, to)


async def test_who_is_disabled_is_told_nothing_meanwhile() -> None:
    async with bench(1) as b, sink() as to, sink() as other:
        await create(b)
        await subscribed(bob(b), to)
        await subscribed(client(b.first), other)
        await patch(b, {"Enabled": False})
        await told(b, other)
        await patch(b, {"Enabled": True})
        await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        await to.until(lambda: "ResourcePoweredOn" in to.keys)
        assert "ResourcePoweredOff" not in to.keys


@pytest.mark.parametrize("first", [{}, {"Enabled": False}, {"Password": "another one"}])
async def test_subscriptions_end_with_their_user(first: dict[str, Any]) -> None:
    async with bench(2) as b, sink() as to:
        await create(b)
        await subscribed(bob(b), to)
        if first:
            await patch(b, first)
        assert (await client(b.first).ask("DELETE", BOB)).status == 204
        assert not asked(b)
        assert kept(b) == []


async def test_subscriptions_of_a_node_go_on_when_the_file_has_another_password() -> None:
    async with bench(2) as b, sink() as to:
        place = await subscribed(client(b.first), to)
        await b.service.put(replace(b.configs[1], password="yet another"))
        changed = replace(b.first, password="another")
        await b.service.put(changed)
        assert (await client(changed).get(place)).status == 200
        await told(b, to)
        await b.service.remove(b.first.bmc.uuid)
        assert not asked(b)
        assert kept(b) == []


async def test_an_account_of_many_nodes_keeps_them_until_the_last_knows_it_no_more() -> None:
    """Node by node, as over IPMI."""
    async with bench(2) as b, sink() as to:
        configs = [replace(each, password="the same") for each in b.configs]
        for each in configs:
            await b.service.put(each)
            await set_bob(b, each.bmc.uuid, "hunter2222")
        place = await subscribed(bob(b), to)
        await set_bob(b, configs[0].bmc.uuid, "hunter3333")
        assert (await bob(b).get(place)).status == 200
        await set_bob(b, configs[1].bmc.uuid, "hunter3333")
        assert (await bob(b, "hunter3333").get(place)).status == 200
        assert kept(b) == [place.rpartition("/")[2]]
        assert (await client(configs[0]).ask("DELETE", BOB)).status == 204
        assert kept(b) == []


async def test_nothing_is_kept_of_passwords_that_a_user_had() -> None:
    async with bench(1) as b, sink() as to:
        await create(b)
        await subscribed(bob(b), to)
        for number in range(5):
            await patch(b, {"Password": f"another one {number}"})
        await b.service.events.followed()
        assert len(b.service.events._held) == 1
        await told(b, to)


async def test_accounts_that_become_one_have_no_more_than_one_may_have() -> None:
    """Again and again: every event is compared with each subscription, in one turn of the loop."""
    async with bench(2) as b, sink() as to:
        configs = [replace(each, password="the same") for each in b.configs]
        for each in configs:
            await b.service.put(each)
            await set_bob(b, each.bmc.uuid, "hunter2222")
        places = [await subscribed(bob(b), to) for _ in range(MOST)]
        await set_bob(b, configs[0].bmc.uuid, "hunter3333")
        await subscribed(bob(b, "hunter3333"), to)
        await set_bob(b, configs[0].bmc.uuid, "hunter2222")
        assert kept(b) == [each.rpartition("/")[2] for each in places]
        await told(b, to)


async def test_a_stream_ends_when_its_user_may_log_in_no_more() -> None:
    async with bench(1) as b:
        await create(b)
        async with stream(b, line=bob(b)) as reader:
            await patch(b, {"Password": "another one"})
            async with asyncio.timeout(20):
                assert (await reader.readuntil(b"0\r\n\r\n")).strip(), "the answer's last chunk"


async def set_bob(b: Bench, uuid: Any, password: str) -> None:
    served = b.service.status(uuid)
    assert served is not None
    settings = served.aggregate.runtime.settings
    user = table.User(3, "bob", password, 3, enabled=True, messaging=True)
    changed = replace(settings, users=table.with_user(settings.users, user))
    await b.service.ask(served, lambda ticket: SettingsRequested(changed, ticket))
    await b.service.events.followed()
