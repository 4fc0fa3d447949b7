"""Equal parts of many values as one object.

What is decoded of ten thousand nodes has the same words ten thousand times ("virtio", the name of
a pool, of a host): most of what a node takes of the daemon's memory.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeVar

H = TypeVar("H", bound=Hashable)


class Shared:
    """For as long as something is read; what is kept of it keeps the shared parts."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def one(self, value: H) -> H:
        """The first of all values that are equal to this."""
        found: H = self._known.setdefault(value, value)
        return found

    def text(self, value: Any) -> Any:
        """Decoded JSON, whose equal texts are one."""
        match value:
            case str():
                return self._known.setdefault(value, value)
            case dict():
                return {key: self.text(each) for key, each in value.items()}
            case list():
                return [self.text(each) for each in value]
        return value
