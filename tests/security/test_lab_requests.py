"""Requests of lab schedulers that would stop labs for all users, or reach what is of others."""

from __future__ import annotations

import asyncio
import json
import pwd
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.security.asked import OTHER, OWNER, Asked, a_daemon

from nospoon.clusterfile.requests import read_request
from nospoon.control.labs import loads, records, service, set_tasks
from nospoon.errors import ProviderError
from nospoon.lab.match import mismatches
from nospoon.model.lab import Registered
from nospoon.store.labs import SetRow

LAB = """cluster: {cluster}
hosts: {{here: {{simulated: {{}}}}}}
flavors: {{small: {{disks: [10GiB]}}}}
labs: {{dev: {{users: ["*"], limits: {{machines: 1}}, machines: {machines}}}}}
nodes: []
"""
ANY = {"text": "<hostRequires/>"}
MACHINE = "{m: {bmc: {address: 192.0.2.1, password: p}, memory: 1GiB, macs: ['52:54:00:00:00:01']}}"


def lab(cluster: str = "owned", machines: str = "{}") -> str:
    return LAB.format(cluster=cluster, machines=machines)


async def submitted(asked: Asked, uid: int, **body: Any) -> list[dict[str, Any]]:
    answer = await asked.ask(uid, "POST", "/v1/requests", {**ANY, **body})
    assert answer.status == 201, answer.body
    found: list[dict[str, Any]] = answer.json
    return found


def keeps() -> bool:
    return any(each.get_name().endswith("keep labs") for each in asyncio.all_tasks())


@pytest.mark.parametrize("wrong", ["\ud800", "a\0b"])
@pytest.mark.parametrize("where", ["role", "kickstart", "whiteboard", "kernel_options"])
async def test_text_that_cannot_be_stored_is_refused(
    tmp_path: Path, wrong: str, where: str
) -> None:
    """One such text kept every later state of every set from being stored, and ended the loop."""
    inner: dict[str, Any] = {"hostRequires": {}} | ({where: wrong} if where != "whiteboard" else {})
    text = json.dumps({"job": {"whiteboard": wrong * (where == "whiteboard"),
                               "recipeSet": {"recipe": inner}}})  # fmt: skip
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, lab())
        answer = await asked.ask(OWNER, "POST", "/v1/requests", {"text": text})
        assert answer.status == 422, answer.body
        assert await submitted(asked, OWNER)
        assert keeps()


async def test_what_a_bmc_says_is_storable() -> None:
    assert set_tasks.storable("a\ud800\0\x1b[2J\x9bb") == "a   [2J b"
    assert len(set_tasks.storable("x" * 10_000)) == set_tasks.MOST_WHY


async def test_the_loop_survives_every_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, lab())
        board = asked.daemon.control.board
        failed, again = asyncio.Event(), asyncio.Event()

        def expire(now: float) -> Sequence[Any]:
            (again if failed.is_set() else failed).set()
            raise ValueError(now)

        with monkeypatch.context() as patched:
            patched.setattr(board.scheduler, "expire", expire)
            board._wake.set()
            await failed.wait()
            await again.wait()
        assert keeps()
        assert await submitted(asked, OWNER)


async def test_a_request_under_a_used_key_is_the_first_whatever_its_lab_is_by_now(
    tmp_path: Path,
) -> None:
    """Who had no answer asks again, and has to hear of the set that waits."""
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, lab())
        two = {"text": "<recipeSet><recipe><hostRequires><memory op='>' value='1'/></hostRequires>"
                       "</recipe></recipeSet>", "key": "k", "lab": "dev"}  # fmt: skip
        (first,) = await submitted(asked, OWNER, **two)
        smaller = lab().replace("limits: {machines: 1}", "dynamic: false")
        await asked.up(OWNER, smaller)
        refused = await asked.ask(OWNER, "POST", "/v1/requests", {**two, "key": "other"})
        assert refused.status == 422, "the lab has no such machines any more"
        (again,) = await submitted(asked, OWNER, **two)
        assert again["set"] == first["set"]


@pytest.mark.parametrize(
    ("path", "header", "first"),
    [
        ("events", b"", 1),
        ("events", b"2", 3),
        ("events?after=2", b"1", 3),
        ("events", b"none", 1),
        ("events", b"9" * 5000, 1),
    ],
)
async def test_who_follows_a_set_and_connects_again_gets_what_is_new(
    tmp_path: Path, path: str, header: bytes, first: int
) -> None:
    """By the id of the last event, as an EventSource sends it (HTML, §9.2.4)."""
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, lab())
        (made,) = await submitted(asked, OWNER)
        await asked.ask(OWNER, "POST", f"/v1/requests/{made['set']}/cancel")
        headers = [(b"last-event-id", header)] if header else []
        url = f"/v1/requests/{made['set']}/{path}"
        answer = await asked.ask(OWNER, "GET", url, headers=headers)
        sent = [each for each in answer.body.decode().split("\n\n") if each]
        assert '"state": "ended"' in sent[-1]
        assert sent[-1].startswith("data: "), "an empty id would make it forget what it has"
        assert sent[0].startswith(f"id: {first}\n")


async def test_sets_that_are_not_stored_keep_their_ids_and_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next user's set had the same id, and took the place of this one."""
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, lab())
        await asked.up(OTHER, lab("others"))
        with monkeypatch.context() as patched:

            def fails(*_: Any) -> None:
                raise ProviderError("the disk is full")

            patched.setattr(records, "save", fails)
            answer = await asked.ask(OWNER, "POST", "/v1/requests", {**ANY, "key": "k"})
            assert answer.status >= 500
        (others,) = await submitted(asked, OTHER)
        (again,) = await submitted(asked, OWNER, key="k")
        assert others["set"] != again["set"]
        assert len((await asked.ask(OWNER, "GET", "/v1/requests")).json) == 1


async def test_a_request_goes_to_no_lab_of_another_user_that_it_does_not_name(
    tmp_path: Path,
) -> None:
    """Any user may make a lab that everyone may use: it got the kickstarts of all others."""
    async with a_daemon(tmp_path) as asked:
        await asked.up(OTHER, lab("aaa"))
        assert (await asked.ask(OWNER, "POST", "/v1/requests", ANY)).status == 403
        await asked.up(OWNER, lab("owned"))
        await submitted(asked, OWNER)
        (waits,) = await submitted(asked, OWNER)
        for path in ("cancel", "release"):
            answer = await asked.ask(OTHER, "POST", f"/v1/requests/{waits['set']}/{path}")
            assert answer.status == 404
        (named,) = await submitted(asked, OWNER, lab="aaa/dev")
        assert named["lab"] == "aaa/dev"


async def test_a_lease_that_is_queued_has_no_console_so_far(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, lab())
        await submitted(asked, OWNER)
        (waits,) = await submitted(asked, OWNER)
        answer = await asked.ask(OWNER, "GET", f"/v1/leases/{waits['set']}.0/console")
        assert answer.status == 404
        said = f"lease {waits['set']}.0 has no machine so far: its set is queued"
        assert answer.json["error"]["message"] == said


async def test_only_operators_go_before_others(tmp_path: Path) -> None:
    urgent = '<recipeSet priority="Urgent"><recipe><hostRequires/></recipe></recipeSet>'
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, lab())
        await submitted(asked, OWNER)
        (waits,) = await submitted(asked, OWNER)
        (other,) = await submitted(asked, OTHER, text=urgent, lab="dev")
        (own,) = await submitted(asked, OWNER, text=urgent)
        assert other["priority"] == waits["priority"] < own["priority"]


ONE_SET: Mapping[tuple[str, str], Any] = {
    ("GET", "/v1/requests/{}"): None,
    ("GET", "/v1/requests/{}/events"): None,
    ("GET", "/v1/leases/{}.0"): None,
    ("GET", "/v1/leases/{}.0/console"): None,
    ("POST", "/v1/leases/{}.0/power"): {"command": "on"},
    ("POST", "/v1/leases/{}.0/extend"): {"seconds": 60},
    ("POST", "/v1/requests/{}/extend"): {"seconds": 60},
    ("POST", "/v1/leases/{}.0/release"): {},
    ("POST", "/v1/requests/{}/release"): {},
    ("POST", "/v1/requests/{}/cancel"): {},
}
"""Route of a set -> the body of a request that it takes."""
THIRD = pwd.getpwnam("_apt").pw_uid


@pytest.mark.parametrize("by", ["submitter", "owner", "other"])
async def test_a_set_is_of_its_submitter_and_its_owner(tmp_path: Path, by: str) -> None:
    """Its lab's operators are in `test_ownership`."""
    users = {"submitter": OWNER, "owner": OTHER, "other": THIRD}
    names = {uid: pwd.getpwuid(uid).pw_name for uid in users.values()}
    may = by != "other"
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, lab())
        for (method, path), body in ONE_SET.items():
            (found,) = await submitted(asked, OWNER, owner=names[OTHER])
            set_id = found["set"]
            assert found["owner"] == names[OTHER]
            if path.endswith("/events"):  # it follows the set until that has ended
                await asked.ask(OWNER, "POST", f"/v1/requests/{set_id}/cancel", {})
            for url in ("/v1/requests", "/v1/requests?everyone=true"):
                listed = await asked.ask(users[by], "GET", url)
                assert (set_id in {each["set"] for each in listed.json}) == may, url
            answer = await asked.ask(users[by], method, path.format(set_id), body)
            refused = answer.status in {403, 404} and f"no recipe set '{set_id}'" in str(
                answer.json
            )
            assert refused != may, (method, path, answer.body)
            await asked.ask(OWNER, "POST", f"/v1/requests/{set_id}/cancel", {})
            await asked.ask(OWNER, "GET", f"/v1/requests/{set_id}/events")  # until it has ended
            shown = (await asked.ask(users[by], "GET", "/v1/requests")).json
            assert (set_id in {each["set"] for each in shown}) == may, "and when it has ended"


async def test_those_who_submit_for_others_take_no_place_in_their_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_LISTED", 3)
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, lab())
        (own,) = await submitted(asked, OTHER, lab="dev")
        for _ in range(5):
            await submitted(asked, OWNER, owner="sync")
        shown = (await asked.ask(OTHER, "GET", "/v1/requests")).json
        assert shown[0]["set"] == own["set"]
        assert len(shown) == 4


async def test_users_reserve_no_more_machines_than_the_limit_of_an_owner(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, lab(machines=MACHINE))
        path = "/v1/labs/dev/machines/m"
        for uid, status in ((OTHER, 403), (OWNER, 200)):
            name = "sync" if uid == OTHER else "nobody"
            answer = await asked.ask(uid, "POST", path, {"reserved": name})
            assert answer.status == status, answer.body


async def test_a_waiting_set_is_not_extended_beyond_the_calendar(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, lab())
        await submitted(asked, OWNER)
        (waits,) = await submitted(asked, OWNER)
        body = {"seconds": 60 * 86400, "add": True}
        answers = [
            (await asked.ask(OWNER, "POST", f"/v1/requests/{waits['set']}/extend", body)).status
            for _ in range(2)
        ]
        assert answers == [200, 400]


async def test_a_users_sets_take_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "MOST_WEIGHT", 20_000)
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, lab())
        text = f"<recipe><kickstart>{'k' * 3000}</kickstart><hostRequires/></recipe>"
        await submitted(asked, OWNER, text=text)
        answer = await asked.ask(OWNER, "POST", "/v1/requests", {"text": text})
        assert answer.status == 409


async def test_a_set_that_ended_has_no_kickstart_in_the_store(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, lab())
        await submitted(asked, OWNER)
        (waits,) = await submitted(
            asked, OWNER, text="<recipe><kickstart>pa55</kickstart><hostRequires/></recipe>"
        )
        await asked.ask(OWNER, "POST", f"/v1/requests/{waits['set']}/cancel")
        board = asked.daemon.control.board
        from nospoon.store import labs as stored  # noqa: PLC0415

        row = await asked.daemon.parts.database.read(stored.find, waits["set"])
        assert isinstance(row, SetRow)
        assert "pa55" not in asked.daemon.parts.cipher.decrypt(row.record)
        assert not board.scheduler.sets.get(waits["set"])


async def test_a_request_that_would_take_minutes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nospoon.control.labs import requests  # noqa: PLC0415

    monkeypatch.setattr(requests, "MOST_COMPARED", 5)
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, lab())
        many = "<recipe><hostRequires/></recipe>" * 3
        answer = await asked.ask(
            OWNER, "POST", "/v1/requests/check", {"text": f"<recipeSet>{many}</recipeSet>"}
        )
        assert answer.status in {400, 413}, answer.body


def test_numbers_and_texts_of_filters_are_bounded() -> None:
    found = read_request(
        b"<hostRequires><device op='&gt;' value='9'/><hostname op='&gt;' value='"
        + b"9" * 4000 + b"'/></hostRequires>", file="r",
    )  # fmt: skip
    machine = Registered("m", values={"hostname": ("9" * 5000,)})
    assert mismatches(found[0].requires, machine, "dev")


async def test_a_mac_address_is_registered_in_one_cluster(tmp_path: Path) -> None:
    """Another user's lab with the same MAC served that machine its own kernel."""
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, lab(machines=MACHINE))
        answer = await asked.up(OTHER, lab("others", machines=MACHINE))
        assert answer.status == 409, answer.body
        assert b"52:54:00:00:00:01" in answer.body


async def test_sets_of_a_lab_that_is_gone_end(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, lab())
        (runs,) = await submitted(asked, OWNER)
        (waits,) = await submitted(asked, OWNER)
        board = asked.daemon.control.board
        board.labs.drop(next(iter(board.labs.clusters.values())))
        for each in (runs, waits):
            await asked.ask(OWNER, "GET", f"/v1/requests/{each['set']}/events")
            found = (await asked.ask(OWNER, "GET", f"/v1/requests/{each['set']}")).json
            assert (found["state"], found["result"]) == ("ended", "cancelled"), found
