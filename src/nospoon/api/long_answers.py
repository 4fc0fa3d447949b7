"""Answers with a row for each of ten thousand nodes, encoded while others have their turns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from fastapi import Response

from nospoon.runtime.paced import paced

JSON = "application/json"


async def rows(found: Iterable[object]) -> Response:
    """A list."""
    return Response(await _encoded(found), media_type=JSON)


async def with_rows(answer: Mapping[str, Any], name: str) -> Response:
    """An object with one long list, of that name."""
    parts = [
        msgspec.json.encode(key)
        + b":"
        + (await _encoded(value) if key == name else msgspec.json.encode(value))
        for key, value in answer.items()
    ]
    return Response(b"{" + b",".join(parts) + b"}", media_type=JSON)


async def _encoded(found: Iterable[object]) -> bytes:
    return b"[" + b",".join([msgspec.json.encode(each) async for each in paced(found)]) + b"]"
