"""Answers with a row for each of ten thousand nodes, encoded while others have their turns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

import msgspec
from fastapi import Response

from nospoon.model.rest.clusters import ClusterStatus
from nospoon.model.rest.labs import LabDetails
from nospoon.runtime.paced import paced

JSON = "application/json"


async def rows(found: Iterable[object]) -> Response:
    """A list."""
    return Response(await _encoded(found), media_type=JSON)


async def status(answer: ClusterStatus) -> Response:
    """Its nodes are a long list."""
    return await _with_rows(answer, answer.nodes)


async def lab(answer: LabDetails) -> Response:
    """Its registered machines are one."""
    return await _with_rows(answer, answer.machines)


async def _with_rows(answer: ClusterStatus | LabDetails, long: Iterable[object]) -> Response:
    values = {each.name: getattr(answer, each.name) for each in fields(answer)}
    parts = [
        msgspec.json.encode(name)
        + b":"
        + (await _encoded(value) if value is long else msgspec.json.encode(value))
        for name, value in values.items()
    ]
    return Response(b"{" + b",".join(parts) + b"}", media_type=JSON)


async def _encoded(found: Iterable[object]) -> bytes:
    return b"[" + b",".join([msgspec.json.encode(each) async for each in paced(found)]) + b"]"
