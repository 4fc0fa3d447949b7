"""Connections and drivers that ask whether this daemon still leads before they change anything."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from nospoon.model.resources.keys import Kind
from nospoon.providers.base import LOOKS

Require = Callable[[], Awaitable[None]]
"""Returns while we are in control; raises `Superseded` else."""
PORTS = frozenset(
    {"machine_driver", "boot_order", "drives", "snapshots", "firmware_keys", "adoption"}
)
T = TypeVar("T")


def fenced(inner: T, require: Require) -> T:
    """The same connection, driver or port: looking is free, every other call is asked for.

    What the contract does not list among `LOOKS` counts as a change, so that a new call is fenced
    from the beginning.
    """
    return cast("T", _Fenced(inner, require))


class _Fenced:
    def __init__(self, inner: object, require: Require) -> None:
        self._inner, self._require = inner, require
        self._wrapped: dict[str, object] = {}

    @property
    def drivers(self) -> dict[Kind, object]:
        """Of a connection. The machine driver among them is `machine_driver`, once."""
        if "drivers" not in self._wrapped:
            inner: Any = self._inner
            self._wrapped["drivers"] = {
                kind: self.machine_driver if kind is Kind.MACHINE else fenced(driver, self._require)
                for kind, driver in inner.drivers.items()
            }
        return cast("dict[Kind, object]", self._wrapped["drivers"])

    def __getattr__(self, name: str) -> object:
        if name in self._wrapped:
            return self._wrapped[name]
        found = getattr(self._inner, name)
        if name in PORTS:
            found = fenced(found, self._require) if found is not None else None
        elif inspect.iscoroutinefunction(found) and name not in LOOKS:
            found = self._asked_for(found)
        else:
            return found
        self._wrapped[name] = found
        return found

    def _asked_for(
        self, call: Callable[..., Awaitable[object]]
    ) -> Callable[..., Awaitable[object]]:
        async def change(*given: object, **named: object) -> object:
            await self._require()
            return await call(*given, **named)

        return change
