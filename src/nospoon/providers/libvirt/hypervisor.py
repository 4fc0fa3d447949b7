"""One libvirt connection: opened when needed, called in bounded threads, dropped when it is dead.

Two pools of threads, so that a machine's slow start does not hold up a question about power. A
function given to `ask` or `work` runs in such a thread with the open `virConnect`; it may make
several libvirt calls, and its errors come back as ours.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import libvirt
import structlog

from nospoon.providers.libvirt import event_loop
from nospoon.providers.libvirt.faults import Fault, translate

log = structlog.get_logger()
T = TypeVar("T")
Connect = Any
"""A `libvirt.virConnect`: libvirt-python has no types."""

KEEPALIVE_SECONDS, KEEPALIVE_COUNT = 5, 3
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
    """A connection to the libvirt at `uri`, which the user calls `host`."""

    def __init__(self, uri: str, host: str) -> None:
        self.uri, self.host = uri, host
        self._connect: Connect = None
        self._opening = threading.Lock()
        self._quick = ThreadPoolExecutor(QUICK_THREADS, thread_name_prefix=f"libvirt-{host}")
        self._slow = ThreadPoolExecutor(SLOW_THREADS, thread_name_prefix=f"libvirt-slow-{host}")

    async def ask(self, function: Callable[[Connect], T], doing: str) -> T:
        """Run a function that answers soon. Raises what `translate` makes of libvirt's errors."""
        return await self._run(self._quick, function, doing)

    async def work(self, function: Callable[[Connect], T], doing: str) -> T:
        """Run a function that may take seconds: starting, stopping, copying."""
        return await self._run(self._slow, function, doing)

    async def _run(
        self, threads: ThreadPoolExecutor, function: Callable[[Connect], T], doing: str
    ) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(threads, self._in_thread, function, doing)

    def _in_thread(self, function: Callable[[Connect], T], doing: str) -> T:
        try:
            return function(self._opened())
        except libvirt.libvirtError as error:
            fault = fault_of(error)
            log.debug("libvirt refused", host=self.host, doing=doing, code=fault.code)
            raise translate(fault, host=self.host, doing=doing) from error

    def _opened(self) -> Connect:
        """The connection; a new one when there is none, or when the last one is dead."""
        with self._opening:
            if self._connect is None or not self._connect.isAlive():
                event_loop.ensure_started()
                self._connect = libvirt.open(self.uri)
                self._connect.setKeepAlive(KEEPALIVE_SECONDS, KEEPALIVE_COUNT)
            return self._connect

    async def close(self) -> None:
        """Let running calls end, then close."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._quick.shutdown(wait=True)
        self._slow.shutdown(wait=True)
        with self._opening:
            connect, self._connect = self._connect, None
        if connect is not None:
            connect.close()
