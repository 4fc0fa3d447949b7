"""What Ironic says when it refuses, in one line."""

from __future__ import annotations

import json


def said(text: str) -> str:
    """The fault's words. Ironic puts JSON in a string in JSON (api-ref, Errors)."""
    told = text
    for _ in range(3):
        try:
            value = json.loads(told)
        except ValueError:
            break
        if not isinstance(value, dict):
            break
        inner = value.get("error_message", value.get("faultstring", value.get("error", "")))
        if isinstance(inner, dict):
            inner = inner.get("faultstring", inner.get("message", ""))
        told = str(inner)
    return " ".join(told.split())[:500] or "no reason given"
