"""The event loop of the daemon: asyncio's, which takes a few events of its sockets at a time.

asyncio itself takes all that are there, and calls what waits for them before it looks again, and
before any timer. A client that closes thousands of connections at one moment would have the loop
for as long as the end of all of them takes. Linux hands out the rest next, in turn (epoll(7)).
"""

from __future__ import annotations

import asyncio
import select
import selectors
from collections.abc import Coroutine

AT_ONCE = 64
"""Events of one turn of the loop: the end of a connection with TLS takes some 60 µs."""


class _Few:
    """`epoll`, but for how much it reports at once."""

    def __init__(self, epoll: select.epoll) -> None:
        self._epoll = epoll
        self.register, self.unregister = epoll.register, epoll.unregister
        self.modify, self.fileno, self.close = epoll.modify, epoll.fileno, epoll.close

    def poll(self, timeout: float, most: int) -> list[tuple[int, int]]:
        return self._epoll.poll(timeout, min(most, AT_ONCE))


class FewAtOnce(selectors.EpollSelector):
    """A selector that reports `AT_ONCE` events at most."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Few(self._selector)  # type: ignore[has-type, arg-type]  # not in typeshed


def run(main: Coroutine[object, object, None]) -> None:
    """As `asyncio.run`, on such a loop."""
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(FewAtOnce())) as runner:
        runner.run(main)
