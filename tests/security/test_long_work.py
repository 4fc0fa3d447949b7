"""Requests that take long leave the event loop to others, and are bounded before they begin."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import bcrypt
import pytest

from nospoon.runtime.clock import monotonic
from nospoon.runtime.json_depth import DEEPEST
from nospoon.runtime.slices import Slices
from nospoon.services.bmcs.accounts import MOST_SESSIONS, SESSIONS_PER_NODE, Accounts
from nospoon.services.bmcs.redfish.app import MOST_AT_ONCE
from nospoon.services.bmcs.redfish.http import query
from nospoon.services.bmcs.redfish.http.exchange import MAX_BODY
from nospoon.services.bmcs.redfish.http.query import MOST_EXPANDED
from nospoon.services.bmcs.redfish.messages import metadata
from nospoon.services.bmcs.redfish.messages.listings import BATCH
from nospoon.services.bmcs.redfish.resources.sessions import LARGEST
from nospoon.testing.bench import Bench, bench, config, endpoint
from nospoon.testing.redfish_app import Login, Redfish

ROOT = "/redfish/v1"
SESSIONS = f"{ROOT}/SessionService/Sessions"
MANY = 40
"""BMCs; with a slice for each step, so many turns of the loop at least."""


@asynccontextmanager
async def many_bmcs(count: int = MANY) -> AsyncIterator[Bench]:
    """One account may use them all; each slice is over at once."""
    async with bench(count) as b:
        b.service.redfish.slices = Slices(seconds=0.0)
        for each in b.configs[1:]:
            await b.service.put(replace(each, password=b.first.password))
        yield b


async def turns_while(work: Any) -> int:
    """Turns that the loop gives others meanwhile."""
    turns = 0
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
    return turns


async def calls_of(work: Callable[[], Any]) -> int:
    """Calls of Python functions until it is done, at least: now and then others have a turn of the
    loop meanwhile.
    """
    return min([await _calls_of(work()) for _ in range(3)])


async def _calls_of(work: Any) -> int:
    calls = 0

    def called(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        del frame, arg
        calls += event == "call"

    sys.setprofile(called)
    try:
        await work
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"{ROOT}/Systems?$filter=" + " or ".join(["Name eq 'x'"] * 100), None),
        ("GET", f"{ROOT}/Systems?$expand=.", None),
        ("POST", f"{ROOT}/AccountService/Accounts",
         {"UserName": "bob", "Password": "hunter2222", "RoleId": "Operator"}),
        ("GET", f"{ROOT}/Systems", None),
        ("GET", f"{ROOT}/Managers?$top=1", None),
        ("GET", f"{ROOT}/UpdateService/FirmwareInventory", None),
        ("GET", f"{ROOT}/CertificateService/CertificateLocations", None),
    ],
    ids=["filter", "expand", "accounts", "systems", "top", "inventory", "certificates"],
)  # fmt: skip
async def test_long_work_is_done_in_slices(method: str, path: str, body: Any) -> None:
    async with many_bmcs() as b:
        assert await turns_while(Redfish.of(b).ask(method, path, body)) > MANY


async def test_a_list_of_accounts_takes_no_longer_because_bmcs_are_many() -> None:
    """With a slice for each step: a step for each account, and none for each BMC."""
    async with many_bmcs() as b:
        redfish = Redfish.of(b)
        body = {"UserName": "bob", "Password": "hunter2222", "RoleId": "Operator"}
        await redfish.ask("POST", f"{ROOT}/AccountService/Accounts", body)
        assert await turns_while(redfish.ask("GET", f"{ROOT}/AccountService/Accounts")) < MANY // 2
        assert await turns_while(redfish.ask("GET", f"{ROOT}/AccountService/Accounts/3")) > MANY


async def test_a_list_of_accounts_looks_at_no_bmc() -> None:
    """As many calls of Python functions for many BMCs as for few."""
    calls = []
    for count in (2, MANY):
        async with many_bmcs(count) as b:
            redfish = Redfish.of(b)
            await redfish.ask("GET", f"{ROOT}/AccountService/Accounts")  # logs in
            calls.append(
                await calls_of(partial(redfish.ask, "GET", f"{ROOT}/AccountService/Accounts"))
            )
    few, many = calls
    assert 0 < many < few + MANY // 2


async def test_a_session_is_found_without_a_look_at_the_others() -> None:
    """As many calls of Python functions beside many accounts with sessions as beside few."""
    calls = []
    for count in (2, MANY):
        async with bench(count) as b:
            redfish, accounts = Redfish.of(b), b.service.listeners.accounts
            for each in b.configs:
                account = accounts.find(endpoint(each), each.bmc.username, each.password)
                assert account is not None
                made = accounts.log_in(
                    account, each.bmc.username, place=endpoint(each), now=monotonic()
                )
            last = Redfish.of(b, Login(each.bmc.username, each.password))
            await last.ask("GET", f"{SESSIONS}/{made.id}")  # logs in
            calls.append(await calls_of(partial(last.ask, "GET", f"{SESSIONS}/{made.id}")))
            assert (await last.ask("GET", f"{SESSIONS}/{made.id}")).json["Id"] == made.id
            assert (await redfish.ask("GET", f"{SESSIONS}/{made.id}")).status == 404
    few, many = calls
    assert 0 < many < few + MANY // 2


async def test_a_system_is_found_by_its_name_without_a_look_at_the_others() -> None:
    calls = []
    for count in (2, MANY):
        async with many_bmcs(count) as b:
            ask = Redfish.of(b).ask
            await ask("GET", f"{ROOT}/Systems/{b.first.node}")  # logs in
            calls.append(await calls_of(partial(ask, "GET", f"{ROOT}/Systems/{b.first.node}")))
            assert (await ask("GET", f"{ROOT}/Systems/{b.first.node}")).status == 307
            await b.service.put(replace(b.first, node="renamed"))
            assert (await ask("GET", f"{ROOT}/Systems/{b.first.node}")).status == 404
            assert (await ask("GET", f"{ROOT}/Systems/renamed")).status == 307
            await b.service.remove(b.first.bmc.uuid)
            assert list(b.service.registry.named("renamed")) == []
    few, many = calls
    assert 0 < many < few + MANY // 2


async def test_an_account_of_many_bmcs_has_a_bounded_number_of_sessions() -> None:
    """The one that was idle longest ends with one more."""
    accounts, node = Accounts(), config(0, redfish_port=1)
    place = endpoint(node)
    for _ in range(MOST_SESSIONS // SESSIONS_PER_NODE + 1):
        accounts.put(replace(node, bmc=replace(node.bmc, uuid=uuid4())))
    account = accounts.find(place, node.bmc.username, node.password)
    assert account is not None
    made = [accounts.log_in(account, "admin", place=place, now=0.0) for _ in range(MOST_SESSIONS)]
    assert accounts.session(made[0].token, place=place, now=1.0) is made[0]
    accounts.log_in(account, "admin", place=place, now=2.0)
    assert accounts.session(made[1].token, place=place, now=2.0) is None
    assert accounts.find_session(account, made[1].id, place=place, now=2.0) is None
    assert accounts.session(made[0].token, place=place, now=2.0) is made[0]
    assert len(accounts.tokens) == MOST_SESSIONS


async def test_slices_of_several_pieces_of_work_are_one_in_a_turn() -> None:
    slices, order = Slices(seconds=0.0), []

    async def work(name: str) -> None:
        mine = slices.begin()
        for _ in range(3):
            await mine.rest()
            order.append((name, turn))

    turn = 0
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work(name)) for name in "abc"]
        while not all(each.done() for each in tasks):
            turn += 1
            await asyncio.sleep(0)
    at = [turn for _, turn in order]
    assert len(set(at)) == len(at) == 9
    assert "".join(name for name, _ in order) == "abcabcabc"


async def test_a_list_is_made_once_for_all_and_again_when_somebody_sees_something_else() -> None:
    async with many_bmcs() as b:
        ask = Redfish.of(b).ask
        assert await turns_while(ask("GET", f"{ROOT}/Systems")) > MANY
        assert await turns_while(ask("GET", f"{ROOT}/Systems")) < MANY // 2
        await b.service.remove(b.configs[-1].bmc.uuid)
        assert (await ask("GET", f"{ROOT}/Systems")).json["Members@odata.count"] == MANY - 1


async def test_locations_of_certificates_are_made_once_and_again_when_one_comes(
    tmp_path: Path,
) -> None:
    async with bench(MANY, tls=tmp_path) as b:
        b.service.redfish.slices = Slices(seconds=0.0)
        for each in b.configs:
            await b.service.put(replace(each, password=b.first.password))
        last = replace(b.configs[-1], password=b.first.password)
        await b.service.remove(last.bmc.uuid)
        ask, path = Redfish.of(b).ask, f"{ROOT}/CertificateService/CertificateLocations"
        assert await turns_while(ask("GET", path)) > MANY
        assert await turns_while(ask("GET", path)) < MANY // 2
        assert await turns_while(ask("GET", f"{path}?$select=Links/Certificates")) < MANY // 2
        links = (await ask("GET", f"{path}?$select=Links/Certificates")).json["Links"]
        assert links == {"Certificates": (await ask("GET", path)).json["Links"]["Certificates"]}
        assert len(links["Certificates"]) == MANY - 1
        await b.service.put(last)
        found = (await ask("GET", path)).json["Links"]
        assert found["Certificates@odata.count"] == len(found["Certificates"]) == MANY


@pytest.mark.parametrize("asked", ["excerpt", "only", "$select=Members", "$top=2000"])
async def test_long_lists_are_read_and_written_in_slices_with_any_query(asked: str) -> None:
    count = 2 * BATCH + 1
    async with many_bmcs(count) as b:
        ask = Redfish.of(b).ask
        whole = (await ask("GET", f"{ROOT}/Systems")).json["Members"]
        assert await turns_while(ask("GET", f"{ROOT}/Systems?{asked}")) >= 2 * count / BATCH
        assert (await ask("GET", f"{ROOT}/Systems?{asked}")).json["Members"] == whole
        assert len(whole) == count


async def test_a_login_is_compared_with_many_hashes_in_slices_and_remembered_until_a_change() -> (
    None
):
    async with bench(MANY) as b:
        b.service.redfish.slices = Slices(seconds=0.0)
        password = b"one-password"
        for each in b.configs:
            text = bcrypt.hashpw(password, bcrypt.gensalt(4)).decode()
            await b.service.put(replace(each, password=text))
        ask = Redfish.of(b, Login("admin", password.decode())).ask
        path = f"{ROOT}/Systems/{b.configs[1].bmc.uuid}"
        for changed in range(2):
            for _ in range(2 - changed):  # the first one joins them, and the next sees no change
                assert await turns_while(ask("GET", path)) > MANY
            listed = await ask("GET", f"{ROOT}/Systems")
            assert listed.json["Members@odata.count"] == MANY - changed
            assert await turns_while(ask("GET", path)) < MANY // 2
            await b.service.put(replace(b.configs[0], password="another password"))


async def test_what_was_expanded_is_written_in_slices() -> None:
    """A slice for reading and one for writing of each resource, each of two turns."""
    async with many_bmcs() as b:
        ask = Redfish.of(b).ask
        await ask("GET", f"{ROOT}/Systems")  # from now on the list is kept
        assert await turns_while(ask("GET", f"{ROOT}/Systems?$expand=.")) > 3 * MANY


async def test_long_lists_are_made_in_slices_for_what_they_are_expanded_in() -> None:
    async with many_bmcs() as b:
        found = await Redfish.of(b).ask("GET", f"{ROOT}/?$expand=.($levels=2)")
        assert found.status == 200
        assert len(found.json["Systems"]["Members"]) == MANY
        assert found.json["Systems"]["Members"][0]["SystemType"] == "Virtual"


async def test_an_account_has_a_bounded_number_of_requests_at_once_and_others_have_theirs() -> None:
    """Each waits for its slices until the last one has begun."""
    async with bench(2) as b:
        b.service.redfish.slices = Slices(seconds=0.0)
        one, second = Redfish.of(b), b.configs[1]
        other = replace(one, login=Login(second.bmc.username, second.password))
        asked = f"{ROOT}/Systems?$expand=."
        found = await asyncio.gather(
            *(one.ask("GET", asked) for _ in range(MOST_AT_ONCE + 2)), other.ask("GET", asked)
        )
        *first, theirs = found
        assert Counter(each.status for each in first) == {200: MOST_AT_ONCE, 503: 2}
        assert theirs.status == 200
        refused = first[-1]
        assert refused.message == "ServiceTemporarilyUnavailable"
        assert refused.headers["retry-after"] == "1"
        again = await asyncio.gather(*(one.ask("GET", asked) for _ in range(MOST_AT_ONCE)))
        assert {each.status for each in again} == {200}


async def test_a_task_is_found_without_a_look_at_all_bmcs() -> None:
    async with many_bmcs() as b:
        ask = Redfish.of(b).ask
        assert await turns_while(ask("GET", f"{ROOT}/TaskService/Tasks")) < MANY // 2


async def test_the_metadata_document_is_made_once() -> None:
    assert metadata.document() is metadata.document()


async def test_slices_go_round_those_whom_they_are_for() -> None:
    slices, order = Slices(seconds=0.0), []

    async def work(key: str) -> None:
        await slices.begin(key).rest()
        order.append(key)

    async with asyncio.TaskGroup() as group:
        for key in "aaab":
            group.create_task(work(key))
    assert "".join(order) == "abaa"


async def test_short_requests_of_one_moment_share_a_slice_and_wait_when_it_is_over() -> None:
    async def turns(seconds: float) -> int:
        async with bench(1) as b:
            b.service.redfish.slices = Slices(seconds=seconds)
            ask = Redfish.of(b).ask
            work = asyncio.gather(*(ask("GET", f"{ROOT}/Managers") for _ in range(MANY)))
            return await turns_while(asyncio.wait_for(work, None))

    assert await turns(0.0) > MANY > await turns(60.0)


async def test_work_for_a_client_that_has_gone_ends() -> None:
    async with many_bmcs() as b:
        login, sent, asked = Redfish.of(b), [], []
        scope = login._scope("GET", f"{ROOT}/Systems?$expand=.", {})

        async def receive() -> Any:
            asked.append(True)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await login.app(scope, receive, send)
        assert asked
        assert sent == []


async def test_work_that_changes_something_is_finished_though_its_client_has_gone() -> None:
    async with many_bmcs() as b:
        login = Redfish.of(b)
        data = {"UserName": "bob", "Password": "hunter2222", "RoleId": "Operator"}
        scope = login._scope("POST", f"{ROOT}/AccountService/Accounts", {})
        messages = [{"type": "http.request", "body": json.dumps(data).encode()}]

        async def receive() -> Any:
            return messages.pop() if messages else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            del message

        await login.app(scope, receive, send)
        served = [b.service.status(each.bmc.uuid) for each in b.configs]
        assert all(each and each.aggregate.runtime.settings.users for each in served)


async def test_an_expansion_has_an_end() -> None:
    members = [{"@odata.id": f"/x/{number}"} for number in range(200)]

    async def fetch(path: str) -> dict[str, Any]:
        more = [{"@odata.id": f"{path}/{number}"} for number in range(100)]
        return {"@odata.id": path, "Below": more}

    body = {"@odata.id": "/x", "Members": members}
    told = await query.apply(body, {"$expand": ".($levels=3)"}, fetch)
    assert json.dumps(told).count('"Below"') == MOST_EXPANDED


def nested(depth: int) -> bytes:
    return b'{"UserName":' * depth + b'"x"' + b"}" * depth


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (SESSIONS, b" " * (LARGEST + 1), 413),
        (f"{SESSIONS}/Members", b" " * (LARGEST + 1), 413),
        (SESSIONS, nested(DEEPEST + 1), 400),
        (SESSIONS, b"[" * LARGEST, 400),
        (SESSIONS, b'{"UserName": "' + b"[{" * 100 + b'\\"", "Password": "y"}', 401),
        (SESSIONS, b'{"UserName": "' + b'\\"' * 8000, 400),
    ],
    ids=["Sessions", "Members", "deep", "brackets", "brackets in a string", "no end of a string"],
)
async def test_what_a_stranger_sends_to_log_in_is_bounded(
    path: str, body: bytes, status: int
) -> None:
    async with bench(1) as b:
        stranger = Redfish.of(b).without_login()
        assert (await stranger.ask("POST", path, body)).status == status


async def test_bodies_elsewhere_are_bounded_too() -> None:
    async with bench(1) as b:
        place = f"{ROOT}/Systems/{b.first.bmc.uuid}"
        assert (await Redfish.of(b).ask("PATCH", place, b" " * (MAX_BODY + 1))).status == 413
        assert (await Redfish.of(b).ask("PATCH", place, nested(DEEPEST + 1))).status == 400
        wide = json.dumps({"AssetTag": "x", "@odata.x": [[1]] * 200}).encode()
        assert (await Redfish.of(b).ask("PATCH", place, wide)).status == 200
