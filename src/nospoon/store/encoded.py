"""JSON that is encoded before it comes to the store.

Encoding a value of 50 MB in one piece takes half a second, in which no other thread goes on: Python
has one lock.
"""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value of a JSON column, as its text."""

    text: str


NOTHING = Encoded("{}")


def as_json(value: object) -> str:
    """What a driver of a database is given for a value of a JSON column."""
    return value.text if isinstance(value, Encoded) else json.dumps(value)
