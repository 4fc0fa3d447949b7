"""What an OpenStack service answers, and which error each refusal is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from nospoon.errors import Conflict, Gone, HostUnreachable, NospoonError, ProviderError
from nospoon.providers.answers import judged
from nospoon.providers.ironic.errors import is_full


@dataclass
class Answer:
    status_code: int
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


def test_what_is_answered_is_decoded() -> None:
    assert judged(Answer(200, '{"a": 1}'), "GET /", said=str) == {"a": 1}
    assert judged(Answer(204, ""), "DELETE /", said=str) is None


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        (
            Answer(200, "<html>please\n log in</html>"),
            HostUnreachable,
            "no JSON: '<html>please log",
        ),
        (Answer(404, "none"), Gone, "404: none"),
        (Answer(409, "taken"), Conflict, "409: taken"),
        (Answer(503, "later"), HostUnreachable, "503: later"),
        (Answer(400, "bad"), ProviderError, "400: bad"),
    ],
)
def test_each_refusal_is_an_error(answer: Answer, error: type[NospoonError], told: str) -> None:
    with pytest.raises(error) as raised:
        judged(answer, "GET /", said=str)
    assert type(raised.value) is error
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("status", "text", "full"),
    [
        (503, "The concurrent action limit for cleaning has been reached.", True),
        (503, "cannot be performed due to lack of free conductor workers.", True),
        (503, "down for maintenance", False),
        (400, "concurrent action limit", False),
    ],
)
def test_a_conductor_that_takes_on_no_more_is_known(status: int, text: str, full: bool) -> None:  # noqa: FBT001
    assert is_full(status, text) is full
