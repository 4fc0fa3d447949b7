"""Accounts of which the cluster file gives a bcrypt hash alone, as an htpasswd file has it."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import bcrypt

from nospoon.protocols.failures import Failures
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.testing.bench import Bench, bench, free_port
from nospoon.testing.redfish import SYSTEMS, Client, basic, system_of

SESSIONS = "/redfish/v1/SessionService/Sessions"
PASSWORD = "correct horse battery staple"
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()


async def hashed(b: Bench, config: BmcConfig, text: str = HASH) -> BmcConfig:
    changed = replace(config, password=text)
    await b.service.put(changed)
    return changed


async def status(config: BmcConfig, password: str) -> int:
    return (await Client(config, basic(config, password)).get(system_of(config))).status


async def test_the_password_that_fits_the_hash_logs_in_and_no_other() -> None:
    async with bench(2) as b:
        config = await hashed(b, b.first)
        for password, expected in (
            ("wrong", 401),
            (HASH, 401),  # whoever read the file cannot log in with what is in it
            (PASSWORD, 200),
            ("wrong", 401),
            (PASSWORD, 200),
            (PASSWORD + "\0", 401),
            ("x" * 100, 401),
        ):
            b.service.listeners.accounts.failures = Failures()  # no waits here
            assert await status(config, password) == expected, password
        listed = await Client(config, basic(config, PASSWORD)).get(SYSTEMS)
        assert [each["@odata.id"] for each in listed.json["Members"]] == [system_of(config)]
        other = await Client(config, basic(config, PASSWORD)).get(system_of(b.configs[1]))
        assert other.status == 404


async def test_a_session_is_opened_with_it() -> None:
    async with bench(1) as b:
        config = await hashed(b, b.first)
        given = {"UserName": config.bmc.username, "Password": PASSWORD}
        session = await Client(config, {}).ask("POST", SESSIONS, given)
        assert session.status == 201
        by_token = Client(config, {"X-Auth-Token": session.headers["x-auth-token"]})
        assert (await by_token.get(system_of(config))).status == 200


async def test_another_hash_ends_what_the_first_password_opened() -> None:
    async with bench(1) as b:
        config = await hashed(b, b.first)
        assert await status(config, PASSWORD) == 200
        other = bcrypt.hashpw(b"another", bcrypt.gensalt(4)).decode()
        config = await hashed(b, config, other)
        assert await status(config, PASSWORD) == 401
        assert await status(config, "another") == 200
        await b.service.remove(config.bmc.uuid)
        accounts = b.service.listeners.accounts
        assert accounts.hashes(config.bmc.username) == {}


async def test_many_clients_at_once_are_checked_once() -> None:
    async with bench(1) as b:
        config = await hashed(b, b.first)
        found = await asyncio.gather(*(status(config, PASSWORD) for _ in range(12)))
        assert set(found) == {200}


async def test_the_same_name_and_password_at_another_port_is_another_account() -> None:
    """Another BMC's own, by its password or by another hash of it, is no hindrance here."""
    async with bench(2) as b:
        other = replace(b.configs[1], password=PASSWORD)
        port = free_port(socket.SOCK_STREAM)
        other = replace(other, bmc=replace(other.bmc, redfish_port=port))
        await b.service.put(other)
        here = await hashed(b, b.first)
        for _ in range(2):
            assert await status(other, PASSWORD) == 200
            assert await status(here, PASSWORD) == 200
        await hashed(b, other, bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode())
        for _ in range(2):
            assert await status(other, PASSWORD) == 200
            assert await status(here, PASSWORD) == 200
