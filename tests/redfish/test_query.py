"""Query parameters: what is expanded, selected and paged, and what is refused."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import pytest
from starlette.datastructures import QueryParams

from nospoon.runtime.slices import Slices
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.redfish.http import query
from nospoon.services.bmcs.redfish.messages.errors import RedfishError
from nospoon.testing.bench import bench
from nospoon.testing.redfish import SYSTEMS, Client, client, system_of


async def test_members_are_expanded_and_selected() -> None:
    async with bench(1) as rack:
        asked = f"{SYSTEMS}?$expand=.&$select=Name,Boot/BootSourceOverrideTarget"
        (member,) = (await client(rack.first).get(asked)).json["Members"]
        assert set(member) == {"@odata.id", "@odata.type", "@odata.etag", "Name", "Boot"}
        assert member["Boot"] == {"BootSourceOverrideTarget": "None"}


async def test_levels_and_links_are_followed_as_asked() -> None:
    async with bench(1) as rack:
        line, place = client(rack.first), system_of(rack.first)
        one = (await line.get(f"{place}?$expand=.")).json
        assert "Members" in one["Processors"]
        assert set(one["Processors"]["Members"][0]) == {"@odata.id"}
        assert set(one["Links"]["Chassis"][0]) == {"@odata.id"}
        two = (await line.get(f"{place}?$expand=.($levels=2)")).json
        assert two["Processors"]["Members"][0]["ProcessorType"] == "CPU"
        links = (await line.get(f"{place}?$expand=~")).json
        assert links["Links"]["Chassis"][0]["ChassisType"] == "StandAlone"
        assert set(links["Processors"]) == {"@odata.id"}


async def test_the_root_tells_of_other_resources_to_who_has_logged_in() -> None:
    async with bench(1) as rack:
        expanded = "/redfish/v1/?$expand=.($levels=2)"
        known = (await client(rack.first).get(expanded)).json
        assert known["Systems"]["Members"][0]["SystemType"] == "Virtual"
        assert known["AccountService"]["Accounts"]["Members@odata.count"] == 1
        stranger = Client(rack.first, {})
        assert (await stranger.get("/redfish/v1/?$select=Name")).status == 200
        for asked in ("$expand=.", "$expand=~", "$filter=Name eq 'x'", "only"):
            refused = await stranger.get(f"/redfish/v1/?{asked}".replace(" ", "%20"))
            assert (refused.status, refused.message) == (401, "ResourceAtUriUnauthorized")


async def test_the_only_member_is_given_itself() -> None:
    async with bench(1) as rack:
        assert (await client(rack.first).get(f"{SYSTEMS}?only")).json["SystemType"] == "Virtual"


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ("$expand=everything", 400),
        ("$expand=.($levels=9)", 400),
        ("$top=-1", 400),
        ("$skip=x", 400),
        ("$search=x", 501),
        ("$select=", 400),
        ("only=1", 400),
        (f"$top={'9' * 5000}", 400),
        (f"$skip={'9' * 5000}", 400),
        (f"$expand=.($levels={'9' * 5000})", 400),
        ("$top=%D9%A3", 400),
    ],
)
async def test_what_cannot_be_asked_is_refused(asked: str, status: int) -> None:
    async with bench(1) as rack:
        path = f"{SYSTEMS}?{asked}".replace(" ", "%20")
        answer = await client(rack.first).get(path)
        assert answer.status == status
        assert answer.message.startswith("QueryParameter")


@pytest.mark.parametrize("other", ["$expand=.", "$select=Name", "$top=1", "$filter=Name eq 'x'"])
async def test_only_is_asked_alone(other: str) -> None:
    async with bench(1) as rack:
        path = f"{SYSTEMS}?only&{other}".replace(" ", "%20")
        answer = await client(rack.first).get(path)
        assert (answer.status, answer.message) == (400, "QueryCombinationInvalid")
        assert (await client(rack.first).get(f"{SYSTEMS}?only&mine=1")).json["SystemType"]


async def test_only_is_for_collections() -> None:
    async with bench(1) as rack:
        answer = await client(rack.first).get(f"{system_of(rack.first)}?only")
        assert (answer.status, answer.message) == (400, "QueryNotSupportedOnResource")


@pytest.mark.parametrize("nic", ["9" * 5000, "1", "٠", "²", "-1", "00"])
async def test_what_is_no_number_of_an_interface_is_missing(nic: str) -> None:
    async with bench(1) as rack:
        path = f"{system_of(rack.first)}/EthernetInterfaces/"
        assert (await client(rack.first).get(f"{path}0")).status == 200
        assert (await client(rack.first).get(path + quote(nic))).status == 404


LIT = {"LocationIndicatorActive": True}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("$expand=.", 200),
        ("only", 200),
        ("$filter=LocationIndicatorActive eq true", 200),
        ("$filter=Name eq 'n0'", 304),
    ],
)
async def test_what_is_asked_of_other_resources_has_an_etag_of_its_own(
    asked: str, told: int
) -> None:
    async with bench(1) as rack:
        line, path = client(rack.first), f"{SYSTEMS}?{asked}".replace(" ", "%20")
        tag = (await line.get(path)).headers["etag"]
        assert (await line.get(path, If_None_Match=tag)).status == 304
        assert (await line.ask("PATCH", system_of(rack.first), LIT)).status == 200
        assert (await line.get(path, If_None_Match=tag)).status == told


async def test_what_is_selected_has_the_etag_of_its_resource() -> None:
    async with bench(1) as rack:
        line, place = client(rack.first), system_of(rack.first)
        path = f"{place}?$select=Boot"
        tag = (await line.get(path)).headers["etag"]
        assert tag == (await line.get(place)).headers["etag"]
        assert (await line.get(path, If_None_Match=tag)).status == 304
        assert (await line.ask("PATCH", place, LIT, If_Match=tag)).status == 200
        assert (await line.get(path, If_None_Match=tag)).status == 200
        assert (await line.ask("PATCH", place, LIT, If_Match=tag)).status == 412


async def test_what_is_changed_is_told_whatever_the_client_has() -> None:
    async with bench(1) as rack:
        line, place = client(rack.first), system_of(rack.first)
        tag = (await line.ask("PATCH", place, LIT)).headers["etag"]
        assert (await line.ask("PATCH", place, LIT, If_None_Match=tag)).status == 200


def members(count: int) -> dict[str, Any]:
    return {"@odata.id": "/s", "Members": [{"@odata.id": f"/s/{n}"} for n in range(count)]}


async def fetch(path: str) -> dict[str, Any]:
    return {"@odata.id": path, "Name": path}


async def asked(text: str, count: int = 500) -> dict[str, Any]:
    return dict(await query.apply(members(count), QueryParams(text), fetch))


async def test_pages_are_as_asked() -> None:
    page = await asked("$top=2&$skip=3")
    assert [each["@odata.id"] for each in page["Members"]] == ["/s/3", "/s/4"]
    assert "Members@odata.nextLink" not in page
    assert (await asked("$skip=600"))["Members"] == []


async def test_what_is_expanded_comes_in_pages_that_link_on_to_the_end() -> None:
    page, names = await asked("$expand=."), []
    for _ in range(9):
        names += [each["Name"] for each in page["Members"]]
        following = page.get("Members@odata.nextLink")
        if following is None:
            break
        page = await asked(following.partition("?")[2])
    assert names == [f"/s/{n}" for n in range(500)]


async def test_a_top_beyond_a_page_is_kept_over_pages() -> None:
    page = await asked("$expand=.&$top=250")
    assert len(page["Members"]) == query.PAGE
    page = await asked(page["Members@odata.nextLink"].partition("?")[2])
    assert len(page["Members"]) == 250 - query.PAGE
    assert "Members@odata.nextLink" not in page


async def test_a_collection_that_is_expanded_inside_of_another_resource_comes_in_pages() -> None:
    async def found(path: str) -> dict[str, Any]:
        return members(500) if path == "/s" else await fetch(path)

    root = {"@odata.id": "/", "Things": {"@odata.id": "/s"}}
    told: Any = (await query.apply(root, QueryParams("$expand=.($levels=2)"), found))["Things"]
    assert [each["Name"] for each in told["Members"]] == [f"/s/{n}" for n in range(query.PAGE)]
    assert told["Members@odata.nextLink"] == f"/s?$expand=.&$skip={query.PAGE}"


async def test_while_much_is_expanded_others_have_their_turns() -> None:
    others = 0
    work = Slices(seconds=0.0).begin()

    async def rest() -> None:
        await work.rest()

    async def another() -> None:
        nonlocal others
        while True:
            await asyncio.sleep(0)
            others += 1

    async with Tasks("test") as tasks:
        tasks.start(another(), name="another")
        await query.apply(members(500), QueryParams("$expand=."), fetch, rest)
        assert others >= query.PAGE


async def test_top_is_for_collections() -> None:
    with pytest.raises(RedfishError):
        await query.apply({"Name": "x"}, QueryParams("$top=1"), fetch)
