"""JSON that is encoded before it comes to the store.

Encoding a value of 50 MB in one piece takes half a second, in which no other thread goes on: Python
has one lock. msgspec takes a tenth of that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value of a JSON column, as its text."""

    text: str


NOTHING = Encoded("{}")


def encoded(value: object) -> Encoded:
    """What `msgspec.to_builtins` makes of it, as JSON. Raises `UnicodeEncodeError` for names of any
    bytes, which `as_json` takes.
    """
    return Encoded(msgspec.json.encode(value).decode())


def as_json(value: object) -> str:
    """What a driver of a database is given for a value of a JSON column."""
    return value.text if isinstance(value, Encoded) else json.dumps(value)
