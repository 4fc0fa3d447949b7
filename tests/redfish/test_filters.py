"""`$filter`: what is true of which body, what cannot be read, and collections that are filtered."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.model.machine import PowerCommand
from nospoon.services.bmcs.redfish.http.filters import (
    FilterError,
    UnknownFunction,
    comparisons,
    compiled,
    matches,
    parse,
)
from nospoon.testing.bench import bench
from nospoon.testing.redfish import SYSTEMS, client

BODY: dict[str, Any] = {
    "Name": "n'0",
    "PowerState": "On",
    "Count": 4,
    "Half": 0.5,
    "Lit": True,
    "Nothing": None,
    "Status": {"Health": "OK", "Conditions": [{"Severity": "OK"}, {"Severity": "Critical"}]},
    "Modes": ["UEFI", "Legacy"],
    "@odata.type": "#X.v1_0_0.X",
}


@pytest.mark.parametrize(
    ("text", "so"),
    [
        ("PowerState eq 'On'", True),
        ("PowerState ne 'On'", False),
        ("Name eq 'n''0'", True),
        ("Count gt 3", True),
        ("Count ge 4 and Count le 4", True),
        ("Count lt 4", False),
        ("Half eq 0.5", True),
        ("4 eq Count", True),
        ("Lit eq true", True),
        ("Lit eq 1", False),
        ("Nothing eq null", True),
        ("Missing eq null", True),
        ("Missing ne 'x'", True),
        ("Missing gt 1", False),
        ("Count gt '3'", False),
        ("Status/Health eq 'OK'", True),
        ("Status/Conditions/Severity eq 'Critical'", True),
        ("Status/Conditions/Severity eq 'Warning'", False),
        ("Modes eq 'Legacy'", True),
        ("not (PowerState eq 'Off')", True),
        ("not PowerState eq 'On'", False),
        ("PowerState eq 'Off' or Count eq 4 and Lit eq true", True),
        ("(PowerState eq 'Off' or Count eq 4) and Lit eq false", False),
        ("@odata.type eq '#X.v1_0_0.X'", True),
        ("Count eq -4", False),
    ],
)
def test_a_filter_is_true_of_what_it_says(text: str, so: bool) -> None:  # noqa: FBT001
    assert matches(parse(text), BODY) is so
    assert compiled(parse(text))(BODY) is so


@pytest.mark.parametrize(
    "text",
    [
        "", "Name", "Name eq", "Name is 'x'", "eq 'x'", "Name eq 'x", "(Name eq 'x'",
        "Name eq 'x')",
        "Name eq 'x' and", "Name eq 'x' Count eq 4", "not", "Name eq 'x' && Count eq 4",
        "Name eq 12abc", "(" * 99 + "Name eq 'x'" + ")" * 99, "not " * 99 + "A eq 1", "A" * 3000,
    ],
)  # fmt: skip
def test_what_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(FilterError):
        parse(text)


def test_an_error_tells_where_it_is() -> None:
    with pytest.raises(FilterError, match=r"expected one of eq, ne, .* at character 6, got 'is'"):
        parse("Name is 'x'")
    with pytest.raises(UnknownFunction, match="contains"):
        parse("contains(Name, 'x')")


_WORDS = st.sampled_from(
    ["Name", "Status/Health", "eq", "ne", "gt", "and", "or", "not", "(", ")", "'x'", "'", "4",
     "true", "null", " ", "/", "@", "$"]
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(_WORDS).map(" ".join)))
def test_garbage_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(FilterError):
        assert matches(parse(text), BODY) in {True, False}


_NAMES = st.sampled_from(["PowerState", "Count", "Missing", "Status/Health", "Modes", "Lit"])
_VALUES = st.sampled_from(["'On'", "4", "null", "'OK'", "true"])
_PARTS = st.tuples(_NAMES, st.sampled_from(["eq", "ne", "gt", "le"]), _VALUES).map(" ".join)


@given(_PARTS, _PARTS)
def test_and_or_and_not_follow_de_morgan(one: str, other: str) -> None:
    both = matches(parse(f"not ({one} and {other})"), BODY)
    assert both is matches(parse(f"not {one} or not ({other})"), BODY)


@given(_PARTS, _PARTS, st.sampled_from(["and", "or", "and not", "or not"]), st.booleans())
def test_a_compiled_filter_is_the_same(one: str, other: str, word: str, turn: bool) -> None:  # noqa: FBT001
    one = " ".join(reversed(one.split())) if turn else one
    wanted = parse(f"{one} {word} {other}")
    assert compiled(wanted)(BODY) is matches(wanted, BODY)
    assert comparisons(wanted) == 2


async def test_a_collection_is_filtered_counted_and_expanded() -> None:
    async with bench(1) as b:
        await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        place = f"{SYSTEMS}?$filter=PowerState%20eq%20"
        on = (await client(b.first).get(f"{place}'On'&$expand=.")).json
        assert on["Members@odata.count"] == 1
        assert on["Members"][0]["PowerState"] == "On"
        off = (await client(b.first).get(f"{place}'Off'")).json
        assert (off["Members"], off["Members@odata.count"]) == ([], 0)


async def test_entries_of_a_log_are_filtered() -> None:
    async with bench(1) as b:
        await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        path = f"{SYSTEMS}/{b.first.bmc.uuid}/LogServices/SEL/Entries"
        everything = (await client(b.first).get(path)).json["Members"]
        asked = f"{path}?$filter=Id%20eq%20'{everything[0]['Id']}'&$select=Message"
        found = (await client(b.first).get(asked)).json
        assert len(everything) > 1
        assert found["Members@odata.count"] == 1
        assert found["Members"][0]["Message"] == everything[0]["Message"]


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        (f"{SYSTEMS}?$filter=Name%20is%20'x'", 400, "QueryParameterValueFormatError"),
        (f"{SYSTEMS}?$filter=startswith(Name,'x')", 501, "GeneralError"),
        ("/redfish/v1/SessionService?$filter=Name%20eq%20'x'", 400, "QueryNotSupportedOnResource"),
    ],
)
async def test_a_wrong_filter_is_refused_with_the_reason(path: str, status: int, told: str) -> None:
    async with bench(1) as b:
        answer = await client(b.first).get(path)
        assert (answer.status, answer.message) == (status, told)
