"""Lines to one libvirt: open connections, of which each is used by one thread at a time.

libvirt's client lets several threads call on one connection, but before 10.4 that is not safe: who
interrupts a thread that waits for its answer leaves behind a source of events that points into that
thread's stack (`virNetClientIOEventLoop`, CVE-2024-4418). With a libvirtd that hangs and wakes that
crashes the process. So each call has a line of its own while it lasts.

`libvirt.open` waits for ever on a libvirtd that hangs. So it runs in a thread of its own, which is
left behind when it takes too long; until it comes back no one else waits for the same, but for a
try now and then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

import libvirt

from nospoon.errors import HostUnreachable
from nospoon.providers.libvirt import event_loop
from nospoon.providers.libvirt.bindings import Connect
from nospoon.runtime import clock as clocks

HANGS = "Does libvirtd hang there? Restart it: `systemctl restart libvirtd`; machines go on."


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a libvirtd may take, in seconds."""

    opening: float = 30
    retry: float = 60
    """After an opening that hangs, for how long not to try another; longer after each more."""
    answer: float = 60
    """To a question that is answered soon."""
    idle: float = 60
    """For how long a line is kept that no one used."""
    keepalive: int = 5
    missed: int = 3


class Lines:
    """Opened when needed, kept for the next, dropped when dead or not needed any more."""

    def __init__(
        self, uri: str, host: str, patience: Patience, clock: Callable[[], float] = clocks.monotonic
    ) -> None:
        self._uri, self._host, self._patience, self._clock = uri, host, patience, clock
        self._lock = threading.Lock()
        self._idle: list[tuple[float, Connect]] = []
        """Since when; the last one used comes last, and is used next."""
        self._hanging: set[Future[Connect]] = set()
        """Openings that took too long."""
        self._tries, self._seen = 0, -inf
        """How many of them came one after the other, and when the last was seen to hang."""

    @contextmanager
    def borrowed(self) -> Iterator[Connect]:
        """A line that no one else uses meanwhile. Raises what `opened` does."""
        connect = self.idle() or self.opened()
        try:
            yield connect
        finally:
            self.give_back(connect)

    def idle(self) -> Connect | None:
        """A line that no one uses, which the caller closes; None where there is none."""
        with self._lock:
            while self._idle:
                _, connect = self._idle.pop()
                if connect.isAlive():
                    return connect
        return None

    def give_back(self, connect: Connect) -> None:
        """No one uses it now."""
        now = self._clock()
        with self._lock:
            self._idle.append((now, connect))
            old = [each for each in self._idle if now - each[0] > self._patience.idle]
            self._idle = self._idle[len(old) :]
        for _, unused in old:
            unused.close()

    def opened(self) -> Connect:
        """A new line, which the caller closes. Raises `libvirtError`, `HostUnreachable`."""
        self._refuse_what_hangs()
        began = self._clock()
        event_loop.ensure_started()
        opening: Future[Connect] = Future()
        args = (self._uri, self._patience, opening)
        name = f"libvirt-open-{self._host}"
        threading.Thread(target=_open, args=args, name=name, daemon=True).start()
        if wait([opening], self._patience.opening).not_done:
            self._leave(opening, began)
            raise self._hangs()
        connect = opening.result()
        with self._lock:
            self._tries, self._seen = 0, -inf
        return connect

    def _refuse_what_hangs(self) -> None:
        with self._lock:
            until = self._seen + self._patience.retry * self._tries
        if self._clock() < until:
            raise self._hangs()

    def _leave(self, opening: Future[Connect], began: float) -> None:
        """Those that are opened side by side are one try."""
        with self._lock:
            self._hanging.add(opening)
            self._tries += began > self._seen
            self._seen = self._clock()
        opening.add_done_callback(self._came_late)

    def _came_late(self, opening: Future[Connect]) -> None:
        """At once, when it came while we left."""
        with self._lock:
            self._hanging.discard(opening)
            if not self._hanging:
                self._tries, self._seen = 0, -inf
        if opening.exception() is None:
            self.give_back(opening.result())

    def _hangs(self) -> HostUnreachable:
        seconds = f"{self._patience.opening:g} s"
        return HostUnreachable(
            f"host {self._host}: libvirt at {self._uri} has not answered within {seconds}",
            hint=HANGS,
        )

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connect in idle:
            connect.close()


def _open(uri: str, patience: Patience, opening: Future[Connect]) -> None:
    try:
        opening.set_result(_opened(uri, patience))
    except libvirt.libvirtError as error:
        opening.set_exception(error)


def _opened(uri: str, patience: Patience) -> Connect:
    connect: Connect = libvirt.open(uri)
    try:
        connect.setKeepAlive(patience.keepalive, patience.missed)
    except libvirt.libvirtError:
        connect.close()
        raise
    return connect
