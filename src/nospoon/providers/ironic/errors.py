"""What Ironic says when it refuses, in one line."""

from __future__ import annotations

from nospoon.errors import HostUnreachable
from nospoon.providers.answers import MAX_TEXT, MAX_TOLD, said_json

FULL = ("concurrent action limit", "lack of free conductor workers")


class Crowded(HostUnreachable):
    """The conductor has as much to do as it takes on (`conductor.max_concurrent_clean`,
    `max_concurrent_deploy`, `workers_pool_size`): it does more later.
    """


def is_full(status: int, text: str) -> bool:
    """Whether an answer says so."""
    return status == 503 and any(each in text.lower() for each in FULL)


def said(text: str) -> str:
    """The fault's words. Ironic puts JSON in a string in JSON (api-ref, Errors)."""
    told = text[:MAX_TEXT]
    for _ in range(3):
        value = said_json(told)
        if not isinstance(value, dict):
            break
        inner = value.get("error_message", value.get("faultstring", value.get("error", "")))
        if isinstance(inner, dict):
            inner = inner.get("faultstring", inner.get("message", ""))
        told = str(inner)
    return " ".join(told.split())[:MAX_TOLD] or "no reason given"
