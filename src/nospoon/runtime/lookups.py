"""Names of hosts, looked up in threads of their own (getaddrinfo(3), resolver(5)).

Who names a host chooses the servers that are asked for its address, and those may be silent for
half a minute, in which nothing ends the call. So no owner has more than `OF_ONE` such calls under
way, the others of this owner wait, and nothing else of the daemon waits for these threads.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from threading import Thread
from weakref import WeakValueDictionary

OF_ONE, OF_ALL = 4, 64
"""Calls under way of one owner, and of all together."""
Place = tuple[
    socket.AddressFamily,
    socket.SocketKind,
    int,
    str,
    tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes],
]
"""As `socket.getaddrinfo` returns them."""
Resolve = Callable[[str, int], Sequence[Place]]
"""Blocks. Raises `OSError`, and `UnicodeError` for what no name can be."""


def resolve(host: str, port: int) -> Sequence[Place]:
    """Addresses of a name for connections, as `socket.getaddrinfo` returns them. Blocks."""
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def begin(work: Callable[[], None]) -> None:
    """In a daemon thread: a silent server must not keep the process from its end. Raises
    `RuntimeError` where the system has no thread left.
    """
    Thread(target=work, name="lookup", daemon=True).start()


class Lookups:
    """`resolve`: what is called in the threads, which `begin` starts."""

    def __init__(
        self, resolve: Resolve = resolve, begin: Callable[[Callable[[], None]], None] = begin
    ) -> None:
        self._resolve, self._begin = resolve, begin
        self._owners: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()
        self._all = asyncio.Semaphore(OF_ALL)

    async def __call__(self, host: str, port: int, owner: Hashable) -> Sequence[Place]:
        """What `resolve` returns. `owner`: who named the host. Raises `OSError`, `UnicodeError`.

        A call counts until its thread has ended, even if its caller no longer waits.
        """
        own = self._owners.setdefault(owner, asyncio.Semaphore(OF_ONE))
        await own.acquire()
        try:
            await self._all.acquire()
        except BaseException:
            own.release()
            raise
        loop = asyncio.get_running_loop()
        found: asyncio.Future[Sequence[Place]] = loop.create_future()

        def ended(settle: Callable[[], None]) -> None:
            own.release()
            self._all.release()
            if not found.done():  # else its caller has left
                settle()

        def work() -> None:
            try:
                settle = partial(found.set_result, self._resolve(host, port))
            except Exception as error:  # noqa: BLE001  (the thread's outermost loop: its caller raises it)
                settle = partial(found.set_exception, error)
            with suppress(RuntimeError):  # the daemon has ended meanwhile
                loop.call_soon_threadsafe(ended, settle)

        try:
            self._begin(work)
        except RuntimeError as error:
            own.release()
            self._all.release()
            raise OSError(f"{host} cannot be looked up: too many threads run") from error
        return await found
