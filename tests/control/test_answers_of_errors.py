"""How the API answers errors."""

from __future__ import annotations

import pytest

from nospoon.api.app import answer_of
from nospoon.errors import HostUnreachable, MissingTool, NospoonError, Transient


@pytest.mark.parametrize(
    ("error", "status", "later"),
    [
        (Transient("full", retry_after=2.5), 503, "3"),
        (HostUnreachable("away", retry_after=0.0), 503, "0"),
        (HostUnreachable("away"), 503, None),
        (MissingTool("none"), 502, None),
    ],
)
def test_a_client_is_answered_when_a_host_takes_calls_again(
    error: NospoonError, status: int, later: str | None
) -> None:
    answer = answer_of(error)
    assert answer.status_code == status
    assert answer.headers.get("Retry-After") == later
