"""What a long call says of how far it is, to whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

Tell = Callable[[str], None]


def _ignored(text: str) -> None:
    del text


_listener: ContextVar[Tell] = ContextVar("listener", default=_ignored)


def listen(tell: Tell) -> None:
    """From now on this task's calls, and those of tasks that it begins, tell this listener."""
    _listener.set(tell)


def is_heard() -> bool:
    """Whether someone listens: an operation does, who only asks for a plan does not."""
    return _listener.get() is not _ignored


def tell(text: str) -> None:
    """Say how far the call is, in a few words."""
    _listener.get()(text)
