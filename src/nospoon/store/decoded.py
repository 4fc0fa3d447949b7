"""Values of JSON columns, decoded from their text in one step.

Of ten thousand nodes, steps between (lists and dicts, which become values next) take most of the
time. What many of them have in common, as the same text, is decoded once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Generic, TypeVar, get_type_hints

import msgspec
from sqlalchemy import JSON, Select, Table, Text, cast, select

T = TypeVar("T")


def texts(table: Table) -> Select[tuple[object, ...]]:
    """All columns of a table; those of JSON as their text."""
    return select(
        *(
            cast(column, Text).label(column.key) if isinstance(column.type, JSON) else column
            for column in table.c
        )
    )


class Decoder(Generic[T]):
    """Of the values of one type."""

    def __init__(self, of: type[T]) -> None:
        self._of, self._decoder = of, msgspec.json.Decoder(of)

    def __call__(self, text: str) -> T:
        """Raises `msgspec.ValidationError`, and `json.JSONDecodeError` for what is no JSON."""
        try:
            return self._decoder.decode(text)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:  # names of bytes that are no UTF-8 (PEP 383)
            return msgspec.convert(json.loads(text), self._of)


class InParts(Generic[T]):
    """Of the values of a dataclass, whose fields may have megabytes: one at a time, for no other
    thread goes on meanwhile.
    """

    def __init__(self, of: type[T]) -> None:
        self._of, self._whole = of, Decoder(of)
        self._fields = {
            name: msgspec.json.Decoder(each) for name, each in get_type_hints(of).items()
        }

    def __call__(self, text: str) -> T:
        """Raises as `Decoder` does."""
        try:
            raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        except msgspec.DecodeError:
            return self._whole(text)
        known = {name: raw[name] for name in self._fields if name in raw}
        return self._of(**{name: self._fields[name].decode(each) for name, each in known.items()})


class Once(Generic[T]):
    """For as long as something is read: each text is decoded once, and its value is one object."""

    def __init__(self, decode: Callable[[str], T]) -> None:
        self._decode, self._known = decode, dict[str, T]()

    def __call__(self, text: str) -> T:
        if text not in self._known:
            self._known[text] = self._decode(text)
        return self._known[text]
