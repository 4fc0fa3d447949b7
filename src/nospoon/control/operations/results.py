"""Results of operations, in JSON: that of `verify` of 20,000 nodes has 50 MB."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from nospoon.runtime.paced import paced
from nospoon.store.encoded import Encoded


async def encoded(result: Mapping[str, object]) -> Encoded:
    """Entry by entry of its lists; others have their turns meanwhile."""
    return Encoded("".join([piece async for piece in paced(_pieces(result))]))


def _pieces(result: Mapping[str, object]) -> Iterator[str]:
    yield "{"
    for number, (name, value) in enumerate(result.items()):
        yield f"{', ' if number else ''}{json.dumps(name)}: "
        if isinstance(value, list):
            yield from _entries(value)
        else:
            yield json.dumps(value)
    yield "}"


def _entries(values: list[object]) -> Iterator[str]:
    yield "["
    for number, value in enumerate(values):
        yield f"{', ' if number else ''}{json.dumps(value)}"
    yield "]"
