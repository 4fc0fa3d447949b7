"""What /openapi.json has of the API's answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nospoon.api.app import create_app
from nospoon.api.peer import Members
from nospoon.model.principal import Administrators

PLAIN = {
    ("get", "/v1/daemon/settings"),  # digests by the names of variables
    ("get", "/v1/support-bundle"),
    ("post", "/v1/files/missing"),  # a list of digests
    ("get", "/v1/operations/{id}/events"),  # server-sent events
    ("get", "/v1/requests/{set_id}/events"),
    ("get", "/v1/nodes/{node}/log"),  # what a console printed
    ("get", "/v1/leases/{lease}/console"),
    ("get", "/v1/metrics"),  # Prometheus' text
}
"""Answers that are no model's JSON."""


def _answers() -> Iterator[tuple[str, str, dict[str, Any]]]:
    application = create_app(None, members=Members("", Administrators()))  # type: ignore[arg-type]
    for path, operations in application.openapi()["paths"].items():
        for method, operation in operations.items():
            yield method, path, operation["responses"]


@pytest.mark.parametrize(("method", "path", "answers"), list(_answers()))
def test_an_answer_has_a_model(method: str, path: str, answers: dict[str, Any]) -> None:
    found = [
        content.get("schema", {})
        for status, answer in answers.items()
        if status.startswith("2")
        for content in answer.get("content", {}).values()
    ]
    is_named = any("$ref" in str(schema) for schema in found)
    assert is_named or not found or (method, path) in PLAIN, found
