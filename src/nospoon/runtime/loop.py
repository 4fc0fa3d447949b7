"""The event loop of the daemon: asyncio's, which takes a few events of its sockets at a time.

asyncio itself takes all that are there, and calls what waits for them before it looks again, and
before any timer. A client that closes thousands of connections at one moment would have the loop
for as long as the end of all of them takes. Linux hands out the rest next, in turn (epoll(7)).
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

AT_ONCE = 64
"""Events of one turn of the loop: the end of a connection with TLS takes some 60 µs."""


class _Few:
    """`epoll`, but for how much it reports at once."""

    def __init__(self, epoll: Any) -> None:
        self._epoll = epoll
        self.register, self.unregister = epoll.register, epoll.unregister
        self.modify, self.fileno, self.close = epoll.modify, epoll.fileno, epoll.close

    def poll(self, timeout: float, most: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = self._epoll.poll(timeout, min(most, AT_ONCE))
        return found


class FewAtOnce(selectors.EpollSelector):
    """A selector that reports `AT_ONCE` events at most."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Few(self._selector)  # type: ignore[has-type]  # not in typeshed


def run(main: Coroutine[Any, Any, None]) -> None:
    """As `asyncio.run`, on such a loop."""
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(FewAtOnce())) as runner:
        runner.run(main)
