"""Changes of accounts at one endpoint hold up none at another, and few of one account wait."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from uuid import UUID

from nospoon.bmc.runtime import Runtime
from nospoon.model.cluster import BmcProtocol
from nospoon.services.bmcs.account_changes import MOST
from nospoon.services.bmcs.redfish.resources.accounts import AT_ONCE
from nospoon.testing.bench import bench, config, endpoint, free_port
from nospoon.testing.redfish_app import ROOT, Login, Redfish

ACCOUNTS = f"{ROOT}/AccountService/Accounts"
BOB = {"UserName": "bob", "Password": "hunter2222", "RoleId": "Operator"}


async def test_changes_of_one_owner_hold_up_none_of_another_and_few_wait() -> None:
    async with bench(2) as b, asyncio.timeout(30):
        other = replace(b.configs[1], owner=1)
        port = free_port(socket.SOCK_STREAM)
        await b.service.put(other := replace(other, bmc=replace(other.bmc, redfish_port=port)))
        here = Redfish.of(b)
        there = Redfish.of(b, Login("admin", other.password)).at(other)
        for each in (here, there):
            assert (await each.ask("POST", ACCOUNTS, BOB)).status == 201
        accounts, place = b.service.listeners.accounts, endpoint(b.first)
        (account,) = accounts.of(b.first.bmc.uuid)[:1]
        role = {"RoleId": "ReadOnly"}
        async with asyncio.TaskGroup() as group, accounts.changing.turn(place, account):
            waiting = [
                group.create_task(here.ask("PATCH", f"{ACCOUNTS}/3", role)) for _ in range(MOST - 1)
            ]
            assert (await there.ask("PATCH", f"{ACCOUNTS}/3", role)).status == 200
            while accounts.changing._asked[place, account] < MOST:  # noqa: ASYNC110  (nobody tells)
                await asyncio.sleep(0)
            refused = await here.ask("PATCH", f"{ACCOUNTS}/3", role)
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            assert not any(each.done() for each in waiting)
            bob = Redfish.of(b, Login("bob", "hunter2222"))
            own = group.create_task(bob.ask("PATCH", f"{ACCOUNTS}/3", {"Password": "a" * 9}))
        assert {each.result().status for each in [*waiting, own]} == {200}
        assert (await here.ask("DELETE", f"{ACCOUNTS}/3")).status == 204


async def test_of_an_account_on_many_bmcs_few_changes_wait_to_be_stored() -> None:
    """What waits for the store goes on in one turn of the loop, and then nothing else does."""
    async with bench(1) as b, asyncio.timeout(60):
        for number in range(1, 4 * AT_ONCE):
            made = config(number, redfish_port=b.first.bmc.redfish_port)
            bmc = replace(made.bmc, protocols=(BmcProtocol.REDFISH,))
            await b.service.put(replace(made, bmc=bmc, password=b.first.password))
        here, save = Redfish.of(b), b.store.save
        begun, gate = 0, asyncio.Event()

        async def slow(machine: UUID, runtime: Runtime) -> None:
            nonlocal begun
            begun += 1
            await gate.wait()
            await save(machine, runtime)

        b.store.save = slow  # type: ignore[method-assign]
        async with asyncio.TaskGroup() as group:
            creation = group.create_task(here.ask("POST", ACCOUNTS, BOB))
            while begun < AT_ONCE:  # noqa: ASYNC110  (nobody tells)
                await asyncio.sleep(0)
            assert (await here.ask("GET", f"{ROOT}/Systems?$filter=Name eq 'n1'")).status == 200
            waiting = begun
            gate.set()
        assert (waiting, begun) == (AT_ONCE, 4 * AT_ONCE)
        assert creation.result().status == 201
