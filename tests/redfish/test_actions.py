"""Actions: whatever they are, parameters that do not fit are told in the registry's words."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.services.bmcs.redfish.http.parameters import Action, Parameter
from nospoon.services.bmcs.redfish.messages.errors import RedfishError
from nospoon.testing.bench import Bench
from nospoon.testing.redfish import client, system_of

from .test_rules import furnished, walked
from .test_service import reset

BEND = Action(
    "Spoon.Bend",
    (
        Parameter("How", required=True, allowed=("Left", "Right")),
        Parameter("Times", int),
        Parameter("Really", bool),
        Parameter("Word", secret=True, like=re.compile("[a-z]+"), shape="letters"),
    ),
    frozenset({"Mind"}),
)


@pytest.mark.parametrize(
    ("body", "message", "args"),
    [
        ({}, "Missing", ("Spoon.Bend", "How")),
        ({"How": "Up"}, "ValueNotInList", ("Up", "How", "Spoon.Bend")),
        ({"How": None}, "ValueTypeError", ("null", "How", "Spoon.Bend")),
        ({"How": ["Left"]}, "ValueTypeError", ('["Left"]', "How", "Spoon.Bend")),
        ({"How": "Left", "Times": "1"}, "ValueTypeError", ("1", "Times", "Spoon.Bend")),
        ({"How": "Left", "Times": True}, "ValueTypeError", ("true", "Times", "Spoon.Bend")),
        ({"How": "Left", "Really": 1}, "ValueTypeError", ("1", "Really", "Spoon.Bend")),
        ({"How": "Left", "Word": "S3CRET"}, "ValueFormatError", ("…", "Word", "Spoon.Bend")),
        ({"How": "Left", "Word": "ab\n"}, "ValueFormatError", ("…", "Word", "Spoon.Bend")),
        ({"How": "Left", "Mind": 1}, "NotSupported", ("Mind", "Spoon.Bend")),
        ({"How": "Left", "Fork": 1}, "Unknown", ("Spoon.Bend", "Fork")),
    ],
)
def test_what_does_not_fit_is_told(
    body: dict[str, Any], message: str, args: tuple[str, ...]
) -> None:
    with pytest.raises(RedfishError) as refused:
        BEND.read(body)
    assert refused.value.message_id == f"ActionParameter{message}"
    assert refused.value.message_args == args
    assert all(each in refused.value.message for each in args)
    assert "S3CRET" not in str(refused.value.body())


def test_what_fits_is_read_and_null_is_nothing() -> None:
    body = {"How": "Left", "Times": 2, "Really": None, "@odata.type": "#X"}
    assert BEND.read(body) == {"How": "Left", "Times": 2}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(["How", "Times", "Really", "Word", "Mind"]), _JSON))
def test_any_json_is_read_or_refused(body: dict[str, Any]) -> None:
    with contextlib.suppress(RedfishError):
        assert BEND.read(body)["How"] in {"Left", "Right"}


def targets(body: Any) -> Iterator[str]:
    actions = body.get("Actions", {}) if isinstance(body, dict) else {}
    return (each["target"] for each in actions.values())


async def all_actions(b: Bench) -> set[str]:
    line = client(b.first)
    shown = [(await line.get(path)).json for path in await walked(line)]
    return {target for body in shown for target in targets(body)}


async def test_no_action_takes_what_it_does_not_know() -> None:
    async with furnished() as b:
        found = await all_actions(b)
        assert len(found) > 12
        for target in sorted(found):
            answer = await client(b.first).ask("POST", target, {"Spoon": 1})
            assert (answer.status, target) == (400, target)
            assert (answer.message, target) == ("ActionParameterUnknown", target)


async def test_a_log_is_cleared_only_as_its_client_knows_it() -> None:
    async with furnished() as b:
        line = client(b.first)
        for owner in ("Systems", "Managers"):
            log = f"/redfish/v1/{owner}/{b.first.bmc.uuid}/LogServices/SEL"
            clear = f"{log}/Actions/LogService.ClearLog"
            await reset(b, "On" if owner == "Systems" else "ForceOff")
            before = await line.get(f"{log}/Entries")
            old = {"LogEntriesETag": 'W/"old"'}
            refused = await line.ask("POST", clear, old)
            assert (refused.status, refused.message) == (428, "PreconditionRequired")
            assert (await line.get(f"{log}/Entries")).json == before.json
            known = {"LogEntriesETag": before.headers["etag"]}
            assert before.json["Members"]
            assert (await line.ask("POST", clear, known)).status == 204
            assert (await line.get(f"{log}/Entries")).json["Members"] == []


async def test_a_bios_has_no_passwords_to_change() -> None:
    async with furnished() as b:
        action = f"{system_of(b.first)}/Bios/Actions/Bios.ChangePassword"
        body = {"PasswordName": "Admin", "OldPassword": "", "NewPassword": "x"}
        answer = await client(b.first).ask("POST", action, body)
        assert (answer.status, answer.message) == (501, "ActionNotSupported")
