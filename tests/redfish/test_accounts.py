"""AccountService: accounts are made, changed and deleted, and IPMI knows them, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from nospoon.bmc import users as table
from nospoon.bmc.messages import AcLost, SettingsRequested
from nospoon.bmc.users import LAST, OWNER, User
from nospoon.runtime import process
from nospoon.services.bmcs.accounts import OPERATOR
from nospoon.testing import dmtf_tools
from nospoon.testing.bench import Bench, bench
from nospoon.testing.redfish import SYSTEMS, Answer, Client, client, system_of

ACCOUNTS = "/redfish/v1/AccountService/Accounts"
BOB = {"UserName": "bob", "Password": "hunter2222", "RoleId": "Operator"}


async def create(b: Bench, **body: Any) -> Answer:
    return await client(b.first).ask("POST", ACCOUNTS, {**BOB, **body})


def bob(b: Bench, password: str = "hunter2222", name: str = "bob") -> Client:
    bmc = replace(b.first.bmc, username=name)
    return client(replace(b.first, bmc=bmc, password=password))


@asynccontextmanager
async def with_bob(**body: Any) -> AsyncIterator[Bench]:
    async with bench(1) as b:
        made = await create(b, **body)
        assert (made.status, made.headers["location"]) == (201, f"{ACCOUNTS}/3")
        assert b"hunter2222" not in made.data
        yield b


@pytest.mark.tools
async def test_rows_of_ipmi_without_a_name_leave_their_numbers_free() -> None:
    async with bench(1) as b:
        bmc = b.first.bmc
        line = ["ipmitool", "-I", "lanplus", "-H", bmc.address, "-p", str(bmc.ipmi_port)]
        line += ["-U", "admin", "-P", b.first.password, "raw", "6", "0x43", "0x91"]
        for number in range(OWNER + 1, LAST + 1):
            await process.run([*line, hex(number), "4"], timeout=60)
        made = await create(b)
        assert (made.status, made.headers["location"]) == (201, f"{ACCOUNTS}/3")
        assert (await bob(b).get(system_of(b.first))).status == 200


async def test_an_account_is_made_and_may_do_what_its_role_says() -> None:
    async with with_bob() as b:
        assert (await bob(b).get(system_of(b.first))).status == 200
        lit = {"LocationIndicatorActive": True}
        assert (await bob(b).ask("PATCH", system_of(b.first), lit)).status == 200
        assert (await bob(b).ask("POST", ACCOUNTS, {**BOB, "UserName": "eve"})).status == 403
        role = {"RoleId": "ReadOnly"}
        changed = await client(b.first).ask("PATCH", f"{ACCOUNTS}/3", role)
        assert changed.json["RoleId"] == "ReadOnly"
        assert (await bob(b).ask("PATCH", system_of(b.first), lit)).status == 403


@pytest.mark.tools
async def test_a_password_of_redfish_has_the_size_that_it_needs_whatever_ipmitool_set() -> None:
    async with with_bob() as b:
        bmc = b.first.bmc
        line = ["ipmitool", "-I", "lanplus", "-H", bmc.address, "-p", str(bmc.ipmi_port)]
        line += ["-U", "admin", "-P", b.first.password, "user"]
        await process.run([*line, "set", "password", "3", "hunter2222", "20"], timeout=60)
        await process.run([*line, "test", "3", "20", "hunter2222"], timeout=60)
        await client(b.first).ask("PATCH", f"{ACCOUNTS}/3", {"Password": "another one"})
        await process.run([*line, "test", "3", "16", "another one"], timeout=60)


@pytest.mark.tools
async def test_ipmitool_logs_in_with_an_account_that_redfish_made() -> None:
    async with with_bob() as b:
        bmc = b.first.bmc
        line = ["ipmitool", "-I", "lanplus", "-H", bmc.address, "-p", str(bmc.ipmi_port)]
        line += ["-U", "bob", "-P", "hunter2222", "-L", "OPERATOR"]
        assert "off" in (await process.run([*line, "power", "status"])).stdout
        listed = await process.run([*line, "user", "list", "1"])
        assert "bob" in listed.stdout


async def test_an_account_is_renamed_disabled_and_deleted() -> None:
    async with with_bob() as b:
        line = client(b.first)
        await line.ask("PATCH", f"{ACCOUNTS}/3", {"UserName": "rob", "Password": "another one"})
        assert (await bob(b).get(SYSTEMS)).status == 401
        assert (await bob(b, "another one", "rob").get(SYSTEMS)).status == 200
        off = await line.ask("PATCH", f"{ACCOUNTS}/3", {"Enabled": False})
        assert off.json["Enabled"] is False
        assert (await bob(b, "another one", "rob").get(SYSTEMS)).status == 401
        await line.ask("PATCH", f"{ACCOUNTS}/3", {"Enabled": True, "Locked": False})
        assert (await bob(b, "another one", "rob").get(SYSTEMS)).status == 200
        assert (await line.ask("DELETE", f"{ACCOUNTS}/3")).status == 204
        assert (await line.get(f"{ACCOUNTS}/3")).status == 404
        assert (await bob(b, "another one", "rob").get(SYSTEMS)).status == 401


async def test_one_sees_oneself_and_may_change_the_password_only() -> None:
    async with with_bob(RoleId="ReadOnly") as b:
        members = (await bob(b).get(ACCOUNTS)).json["Members"]
        assert members == [{"@odata.id": f"{ACCOUNTS}/3"}]
        assert (await bob(b).get(f"{ACCOUNTS}/{OWNER}")).status == 404
        assert (await bob(b).ask("PATCH", f"{ACCOUNTS}/3", {"RoleId": "Operator"})).status == 403
        fresh = {"Password": "better one"}
        assert (await bob(b).ask("PATCH", f"{ACCOUNTS}/3", fresh)).status == 200
        assert (await bob(b, "better one").get(SYSTEMS)).status == 200


async def test_the_nodes_own_account_is_the_cluster_files() -> None:
    async with bench(1) as b:
        own = (await client(b.first).get(f"{ACCOUNTS}/{OWNER}")).json
        assert (own["UserName"], own["RoleId"], own["Password"]) == ("admin", "Administrator", None)
        refused = await client(b.first).ask("PATCH", f"{ACCOUNTS}/{OWNER}", {"Password": "x" * 9})
        assert (refused.status, refused.message) == (400, "PropertyNotWritable")
        kept = await client(b.first).ask("DELETE", f"{ACCOUNTS}/{OWNER}")
        assert (kept.status, kept.message) == (403, "ResourceCannotBeDeleted")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"Password": "short"}, "PropertyValueFormatError"),
        ({"Password": "x" * 21}, "PropertyValueFormatError"),
        ({"Password": "tab\tinside"}, "PropertyValueFormatError"),
        ({"Password": 12345678}, "PropertyValueTypeError"),
        ({"UserName": "a:b"}, "PropertyValueFormatError"),
        ({"UserName": "x" * 17}, "PropertyValueFormatError"),
        ({"UserName": ""}, "PropertyValueFormatError"),
        ({"UserName": "admin"}, "ResourceAlreadyExists"),
        ({"RoleId": "King"}, "PropertyValueNotInList"),
        ({"RoleId": ["ReadOnly"]}, "PropertyValueNotInList"),
        ({"Enabled": "yes"}, "PropertyValueTypeError"),
        ({"Locked": True}, "PropertyValueNotInList"),
        ({"AccountTypes": ["SNMP"]}, "PropertyValueNotInList"),
        ({"Id": "7"}, "PropertyNotWritable"),
        ({"Spoon": 1}, "PropertyUnknown"),
    ],
)
async def test_what_breaks_the_rules_is_refused(body: dict[str, Any], told: str) -> None:
    async with bench(1) as b:
        answer = await create(b, **body)
        assert (answer.status, answer.message) == (400, told)
        assert len((await client(b.first).get(ACCOUNTS)).json["Members"]) == 1


async def test_what_is_missing_is_named_and_the_table_is_full_some_time() -> None:
    async with bench(1) as b:
        line = client(b.first)
        missing = await line.ask("POST", ACCOUNTS, {"UserName": "bob", "Password": "hunter2222"})
        assert (missing.status, missing.message) == (400, "PropertyMissing")
        for number in range(OWNER + 1, LAST + 1):
            assert (await create(b, UserName=f"u{number}")).status == 201
        full = await create(b, UserName="more")
        assert (full.status, full.message) == (400, "CreateLimitReachedForResource")


async def test_etags_guard_against_lost_updates() -> None:
    async with with_bob() as b:
        line, place = client(b.first), f"{ACCOUNTS}/3"
        tag = (await line.get(place)).headers["etag"]
        first = await line.ask("PATCH", place, {"Enabled": False}, If_Match=tag)
        assert first.status == 200
        assert first.headers["etag"] != tag
        assert (await line.ask("PATCH", place, {"Enabled": True}, If_Match=tag)).status == 412
        assert (await line.ask("DELETE", place, If_Match=tag)).status == 412
        assert (await line.ask("DELETE", place, If_Match=first.headers["etag"])).status == 204


async def test_where_an_endpoint_serves_several_systems_an_account_is_on_all_of_them() -> None:
    async with bench(2) as b:
        shared = replace(b.configs[1], password=b.first.password)
        await b.service.put(shared)
        assert (await create(b)).status == 201
        assert len((await bob(b).get(SYSTEMS)).json["Members"]) == 2
        assert (await client(b.first).ask("DELETE", f"{ACCOUNTS}/3")).status == 204
        assert (await bob(b).get(SYSTEMS)).status == 401


def rows(b: Bench, *users: User) -> None:
    """These users are on the nodes, one on each; User(3) stands for none."""
    for each, user in zip(b.configs, users, strict=True):
        served = b.service.status(each.bmc.uuid)
        assert served is not None
        settings = served.aggregate.runtime.settings
        changed = replace(settings, users=table.with_user(settings.users, user))
        b.service.feed(served, SettingsRequested(changed))


def kept(b: Bench) -> list[User]:
    """User 3 of each node."""
    found = [b.service.status(each.bmc.uuid) for each in b.configs]
    return [table.user(s.aggregate.runtime.settings.users, 3) for s in found if s is not None]


@asynccontextmanager
async def many() -> AsyncIterator[Bench]:
    """Three nodes with one account at one endpoint."""
    async with bench(3) as apart:
        configs = [replace(each, password="shared") for each in apart.configs]
        for each in configs:
            await apart.service.put(each)
        yield replace(apart, configs=configs)


ROW = User(3, "bob", "hunter2222", OPERATOR, enabled=True, messaging=True)


@pytest.mark.parametrize(
    ("other", "role", "enabled"),
    [
        (replace(ROW, privilege=2), "ReadOnly", True),
        (replace(ROW, password="another one"), "Operator", True),
        (replace(ROW, enabled=False), "Operator", False),
        (replace(ROW, privilege=15), "ReadOnly", False),
        (replace(ROW, privilege=1), "ReadOnly", False),
        (User(3), "Operator", True),
    ],
    ids=["role", "password", "disabled", "no access", "callback", "away"],
)
async def test_an_account_that_differs_by_node_is_seen_changed_and_removed(
    other: User,
    role: str,
    enabled: bool,  # noqa: FBT001
) -> None:
    async with many() as b:
        rows(b, ROW, other, ROW)
        line, place = client(b.first), f"{ACCOUNTS}/3"
        members = (await line.get(ACCOUNTS)).json["Members"]
        assert [each["@odata.id"] for each in members] == [f"{ACCOUNTS}/2", place]
        shown = (await line.get(place)).json
        assert (shown["UserName"], shown["RoleId"], shown["Enabled"]) == ("bob", role, enabled)
        body = {"RoleId": "Administrator", "Enabled": True, "Password": "hunter3333"}
        changed = await line.ask("PATCH", place, body)
        assert (changed.json["RoleId"], changed.json["Enabled"]) == ("Administrator", True)
        assert (await line.get(place)).json == changed.json
        wanted = replace(ROW, privilege=4, password="hunter3333")
        assert kept(b) == [wanted, wanted if other.name else other, wanted]
        assert (await line.ask("DELETE", place)).status == 204
        assert kept(b) == [User(3)] * 3
        assert (await bob(b).get(SYSTEMS)).status == 401


async def test_a_change_of_one_property_leaves_the_others_of_each_node() -> None:
    async with many() as b:
        rows(b, ROW, replace(ROW, privilege=2), replace(ROW, enabled=False))
        changed = await client(b.first).ask("PATCH", f"{ACCOUNTS}/3", {"Password": "hunter3333"})
        assert (changed.json["RoleId"], changed.json["Enabled"]) == ("ReadOnly", False)
        assert [each.password for each in kept(b)] == ["hunter3333"] * 3
        assert [each.privilege for each in kept(b)] == [3, 2, 3]
        assert [each.enabled for each in kept(b)] == [True, True, False]


@pytest.mark.parametrize(
    ("name", "tail"), [("eve", "eve"), ("a/b c", "-612f622063"), ("é", "-c3a9")]
)
async def test_two_names_with_one_number_are_two_accounts(name: str, tail: str) -> None:
    async with many() as b:
        eve = replace(ROW, name=name)
        rows(b, eve, ROW, ROW)
        line = client(b.first)
        places = [each["@odata.id"] for each in (await line.get(ACCOUNTS)).json["Members"]]
        assert sorted(places[1:]) == sorted([f"{ACCOUNTS}/3-bob", f"{ACCOUNTS}/3-{tail}"])
        places = [places[0], f"{ACCOUNTS}/3-bob", f"{ACCOUNTS}/3-{tail}"]
        shown = [(await line.get(each)).json for each in places]
        assert [each["UserName"] for each in shown] == ["admin", "bob", name]
        assert [each["Id"] for each in shown] == ["2", "3-bob", f"3-{tail}"]
        assert (await line.ask("PATCH", places[1], {"Enabled": False})).status == 200
        assert [each.enabled for each in kept(b)] == [True, False, False]
        assert (await line.ask("DELETE", places[2])).status == 204
        assert [each.name for each in kept(b)] == ["", "bob", "bob"]


async def darken(b: Bench, number: int) -> None:
    """The node has no AC power."""
    served = b.service.status(b.configs[number].bmc.uuid)
    assert served is not None
    await b.service.ask(served, AcLost)


async def test_an_account_has_one_uri_for_all_who_see_it_with_power_or_without() -> None:
    async with many() as b:
        rows(b, ROW, ROW, replace(ROW, name="carol"))
        line, carol = client(b.first), bob(b, name="carol")
        seen = [each["@odata.id"] for each in (await carol.get(ACCOUNTS)).json["Members"]]
        assert seen == [f"{ACCOUNTS}/3-carol"]
        for number in (0, 1):
            await darken(b, number)
        assert (await line.get(seen[0])).json["UserName"] == "carol"
        assert (await line.get(f"{ACCOUNTS}/3")).status == 404
        assert (await line.get(f"{ACCOUNTS}/3-bob")).status == 404


async def test_who_is_made_where_another_has_his_number_without_power_is_told_his_own_uri() -> None:
    async with many() as b:
        rows(b, User(3), User(3), replace(ROW, name="carol"))
        await darken(b, 2)
        made = await create(b)
        assert (made.status, made.headers["location"]) == (201, f"{ACCOUNTS}/3-bob")
        assert made.json["Id"] == "3-bob"
        assert (await client(b.first).get(f"{ACCOUNTS}/3-bob")).json["UserName"] == "bob"


async def test_whoever_is_enabled_without_a_role_may_look() -> None:
    """IPMI's users have no access until somebody gives it to them."""
    async with bench(1) as b:
        rows(b, replace(ROW, privilege=15, messaging=False))
        line, place = client(b.first), f"{ACCOUNTS}/3"
        assert (await line.get(place)).json["Enabled"] is False
        assert (await bob(b).get(SYSTEMS)).status == 401
        enabled = await line.ask("PATCH", place, {"Enabled": True})
        assert (enabled.status, enabled.json["Enabled"]) == (200, True)
        assert enabled.json["RoleId"] == "ReadOnly"
        assert (await bob(b).get(SYSTEMS)).status == 200


@pytest.mark.parametrize(
    ("row", "other"),
    [(replace(ROW, password=""), "Password"), (replace(ROW, name="admin"), "UserName")],
)
async def test_what_cannot_log_in_is_not_enabled_without_a_word(row: User, other: str) -> None:
    async with bench(1) as b:
        rows(b, replace(row, enabled=False))
        line, place = client(b.first), f"{ACCOUNTS}/3"
        refused = await line.ask("PATCH", place, {"Enabled": True})
        assert (refused.status, refused.message) == (400, "PropertyValueConflict")
        (info,) = refused.json["error"]["@Message.ExtendedInfo"]
        assert info["MessageArgs"] == ["Enabled", other]
        mended = {"Enabled": True, "UserName": "bob", "Password": "hunter2222"}
        assert (await line.ask("PATCH", place, mended)).json["Enabled"] is True
        assert (await bob(b).get(SYSTEMS)).status == 200


@pytest.mark.tools
async def test_dmtfs_tool_adds_lists_and_deletes_accounts() -> None:
    async with bench(1) as b:
        run = partial(dmtf_tools.run, b, "rf_accounts.py")
        await run("--add", "bob", "hunter2222", "Operator")
        assert (await bob(b).get(SYSTEMS)).status == 200
        assert "bob" in await run()
        await run("--setpassword", "bob", "better one")
        assert (await bob(b, "better one").get(SYSTEMS)).status == 200
        await run("--delete", "bob")
        assert (await bob(b, "better one").get(SYSTEMS)).status == 401


async def test_of_changes_at_once_with_one_etag_one_wins() -> None:
    async with with_bob() as b:
        line, place = client(b.first), f"{ACCOUNTS}/3"
        tag = (await line.get(place)).headers["etag"]
        body = {"RoleId": "ReadOnly"}
        told = await asyncio.gather(
            *(line.ask("PATCH", place, body, If_Match=tag) for _ in range(5))
        )
        assert sorted(each.status for each in told) == [200, 412, 412, 412, 412]


async def test_who_has_the_name_that_the_file_gives_the_nodes_account_may_not_log_in() -> None:
    async with with_bob() as b:
        assert (await bob(b).get(system_of(b.first))).status == 200
        named = replace(b.first, bmc=replace(b.first.bmc, username="bob"), password="of the file")
        await b.service.put(named)
        assert (await bob(b).get(system_of(b.first))).status == 401
        assert (await bob(b, "of the file").get(system_of(b.first))).status == 200
