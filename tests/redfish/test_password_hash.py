"""Accounts of which the cluster file gives a bcrypt hash alone, as an htpasswd file has it."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import bcrypt

from nospoon.protocols.failures import Failures
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.testing.bench import Bench, bench, endpoint, free_port
from nospoon.testing.redfish import SYSTEMS, Client, basic, system_of

SESSIONS = "/redfish/v1/SessionService/Sessions"
PASSWORD = "correct horse battery staple"
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
OTHER_HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()


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
        assert accounts.hashes(endpoint(config), config.bmc.username) == {}


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


async def test_a_login_reaches_every_bmc_here_that_has_the_password_or_any_hash_of_it() -> None:
    """With the one that has it as it is, and with two hashes; whichever was first."""
    for passwords in ((HASH, PASSWORD), (HASH, OTHER_HASH), (HASH, OTHER_HASH, PASSWORD)):
        async with bench(len(passwords)) as b:
            for config, password in zip(b.configs, passwords, strict=True):
                await hashed(b, config, password)
            admin = Client(b.first, basic(b.first, PASSWORD))
            for _ in range(2):
                listed = (await admin.get(SYSTEMS)).json["Members"]
                assert len(listed) == len(passwords)
            given = {"UserName": "admin", "Password": PASSWORD}
            token = (await admin.ask("POST", SESSIONS, given)).headers["x-auth-token"]
            await b.service.put(replace(b.configs[1], password="another"))
            by_token = Client(b.first, {"X-Auth-Token": token})
            listed = (await by_token.get(SYSTEMS)).json["Members"]
            assert len(listed) == len(passwords) - 1
            assert system_of(b.configs[1]) not in {each["@odata.id"] for each in listed}


async def test_a_login_beside_a_hash_that_it_does_not_fit_is_checked_once() -> None:
    async with bench(2) as b:
        await hashed(b, b.first)
        other = b.configs[1]
        assert await status(other, other.password) == 200
        checked = b.service.listeners.accounts.checked
        checked.worker.close()
        assert await status(other, other.password) == 200
        assert await status(b.first, PASSWORD) == 503
