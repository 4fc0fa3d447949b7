"""One libvirt, called in bounded threads.

Two pools of threads, so that a machine's slow start does not hold up a question about power. A
function given to `ask` or `work` runs in such a thread with an open `virConnect` that is its own
while it runs; it may make several libvirt calls, and its errors come back as ours. What it found by
that connection (domains, pools, streams) stays in it: the next function may have another one.

A libvirtd that hangs makes `HostUnreachable`: by keepalive in a call, by our patience before one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar
from urllib.parse import urlsplit

import libvirt
import structlog

from nospoon.errors import HostUnreachable
from nospoon.providers.libvirt.bindings import Connect
from nospoon.providers.libvirt.faults import Fault, translate
from nospoon.providers.libvirt.lines import HANGS, Lines, Patience

log = structlog.get_logger()
T = TypeVar("T")
PATIENCE = Patience()
QUICK_THREADS, SLOW_THREADS = 4, 4


def fault_of(error: libvirt.libvirtError) -> Fault:
    return Fault(code=error.get_error_code() or 0, text=error.get_error_message() or str(error))


@contextmanager
def ignoring(*codes: int) -> Iterator[None]:
    """Swallow libvirt errors of these codes: what they tell is what was wanted."""
    try:
        yield
    except libvirt.libvirtError as error:
        if error.get_error_code() not in codes:
            raise


class Hypervisor:
    """The libvirt at `uri`, which the user calls `host`. `refused`: why it must not be opened, ""
    where it may.
    """

    def __init__(
        self, uri: str, host: str, patience: Patience = PATIENCE, *, refused: str = ""
    ) -> None:
        self.uri, self.host, self._patience, self._refused = uri, host, patience, refused
        self._here = not urlsplit(uri).netloc
        self._lines = Lines(uri, host, patience)
        self._quick = ThreadPoolExecutor(QUICK_THREADS, thread_name_prefix=f"libvirt-{host}")
        self._slow = ThreadPoolExecutor(SLOW_THREADS, thread_name_prefix=f"libvirt-slow-{host}")

    async def ask(self, function: Callable[[Connect], T], doing: str) -> T:
        """Run a function that answers soon. Raises what `translate` makes of libvirt's errors, and
        `HostUnreachable` when it does not answer: it is left to itself then.
        """
        try:
            async with asyncio.timeout(self._patience.answer):
                return await self._run(self._quick, partial(self._borrowing, function), doing)
        except TimeoutError:
            raise HostUnreachable(
                f"host {self.host}: cannot {doing}: libvirt has not answered within "
                f"{self._patience.answer:g} s",
                hint=HANGS,
            ) from None

    async def work(self, function: Callable[[Connect], T], doing: str) -> T:
        """Run a function that may take seconds: starting, stopping, copying."""
        return await self._run(self._slow, partial(self._borrowing, function), doing)

    async def keep(self, function: Callable[[Connect], T], doing: str) -> T:
        """Run a function that keeps the connection it is given, and is the one to close it. It
        answers soon.
        """
        return await self._run(self._quick, partial(self._keeping, function), doing)

    async def take(self, function: Callable[[Connect], T], doing: str) -> T:
        """As `keep`, at once on a connection that no one uses, where there is one: a new one takes
        a second by ssh. A function that fails must leave nothing on it.
        """
        return await self._run(self._quick, partial(self._taking, function), doing)

    async def _run(self, threads: ThreadPoolExecutor, call: Callable[[], T], doing: str) -> T:
        if self._refused:
            raise HostUnreachable(self._refused)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(threads, self._in_thread, call, doing)

    def _in_thread(self, call: Callable[[], T], doing: str) -> T:
        try:
            return call()
        except libvirt.libvirtError as error:
            fault = fault_of(error)
            log.debug("libvirt refused", host=self.host, doing=doing, code=fault.code)
            raise translate(fault, host=self.host, doing=doing, here=self._here) from error

    def _borrowing(self, function: Callable[[Connect], T]) -> T:
        with self._lines.borrowed() as connect:
            return function(connect)

    def _keeping(self, function: Callable[[Connect], T]) -> T:
        connect = self._lines.opened()
        try:
            return function(connect)
        except BaseException:
            connect.close()
            raise

    def _taking(self, function: Callable[[Connect], T]) -> T:
        """On a new one after all where that was lost while no one used it."""
        idle = self._lines.idle()
        if idle is None:
            return self._keeping(function)
        try:
            return function(idle)
        except BaseException as error:
            if idle.isAlive() or not isinstance(error, libvirt.libvirtError):
                self._lines.give_back(idle)
                raise
            idle.close()
        return self._keeping(function)

    async def close(self) -> None:
        """Let running calls end, then close."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._quick.shutdown(wait=True)
        self._slow.shutdown(wait=True)
        self._lines.close()
