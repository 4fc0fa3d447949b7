"""Drivers of a cloud that answers something else than its API says: an error, never a crash.

Whoever wrote the file chose the cloud, so what it answers may be anything.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from nospoon.errors import ProviderError
from nospoon.runtime.log_rate import RateLimitedLog

log = RateLimitedLog()

ODD = (
    KeyError,
    IndexError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RecursionError,
)
"""What comes of a value that is missing, of another type, or nested without end."""
P = ParamSpec("P")
T = TypeVar("T")


def understood(kind: type[T]) -> type[T]:
    """The class, whose public calls raise `ProviderError` for odd answers."""
    for name, call in list(vars(kind).items()):
        if name.startswith("_"):
            continue
        if inspect.iscoroutinefunction(call):
            setattr(kind, name, _call(call))
        elif inspect.isasyncgenfunction(call):
            setattr(kind, name, _stream(call))
    return kind


def _call(call: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    @wraps(call)
    async def guarded(*given: P.args, **named: P.kwargs) -> T:
        try:
            return await call(*given, **named)
        except ODD as error:
            raise odd(error) from error

    return guarded


def _stream(call: Callable[P, AsyncIterator[T]]) -> Callable[P, AsyncIterator[T]]:
    @wraps(call)
    async def guarded(*given: P.args, **named: P.kwargs) -> AsyncIterator[T]:
        try:
            async for each in call(*given, **named):
                yield each
        except ODD as error:
            raise odd(error) from error

    return guarded


def odd(error: Exception) -> ProviderError:
    """What one of `ODD` is then. It may be a mistake of nospoon, too: the log has the line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    log.warning("odd answer of a cloud", error=repr(error)[:200], at=f"{frame.name}:{frame.lineno}")
    return ProviderError(
        f"the cloud answers something else than its API says ({type(error).__name__}: "
        f"{str(error)[:100]})",
        hint="Look whether `auth_url` and the catalog lead to an OpenStack.",
    )
