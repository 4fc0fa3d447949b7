"""What an OpenStack service answers, and which error each refusal is."""

from __future__ import annotations

import pytest
import requests

from nospoon.errors import Conflict, Gone, HostUnreachable, NospoonError, ProviderError
from nospoon.providers.answers import Answered, decoded, judged
from nospoon.providers.ironic.errors import is_full


def answer(status: int, text: str) -> Answered:
    found = requests.Response()
    found.status_code, found._content = status, text.encode()
    return decoded(found)


def test_what_is_answered_is_decoded() -> None:
    assert judged(answer(200, '{"a": 1}'), "GET /", said=str) == {"a": 1}
    assert judged(answer(204, ""), "DELETE /", said=str) is None


@pytest.mark.parametrize(
    ("answered", "error", "told"),
    [
        (
            answer(200, "<html>please\n log in</html>"),
            HostUnreachable,
            "no JSON: '<html>please log",
        ),
        (answer(404, "none"), Gone, "404: none"),
        (answer(409, "taken"), Conflict, "409: taken"),
        (answer(503, "later"), HostUnreachable, "503: later"),
        (answer(400, "bad"), ProviderError, "400: bad"),
    ],
)
def test_each_refusal_is_an_error(answered: Answered, error: type[NospoonError], told: str) -> None:
    with pytest.raises(error) as raised:
        judged(answered, "GET /", said=str)
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
