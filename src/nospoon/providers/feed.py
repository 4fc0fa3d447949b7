"""One source of events, many listeners: each hears everything from when it began to listen."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from nospoon.model.machine import MachineEvent


class EventFeed:
    """Hands each published event to every listener's queue; never waits for a listener."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[MachineEvent]] = set()

    def publish(self, event: MachineEvent) -> None:
        for queue in self._queues:
            queue.put_nowait(event)

    @contextmanager
    def listen(self) -> Iterator[asyncio.Queue[MachineEvent]]:
        """A queue that gets what is published while the context is open."""
        queue: asyncio.Queue[MachineEvent] = asyncio.Queue()
        self._queues.add(queue)
        try:
            yield queue
        finally:
            self._queues.discard(queue)
