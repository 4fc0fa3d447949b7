"""Server-sent events on the wire (WHATWG HTML §9.2, DSP0266 §13.5.6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping

import msgspec

from nospoon.runtime.slices import Slices
from nospoon.services.bmcs.redfish.events.events import Stream

HEARTBEAT = 30.0
"""Seconds of silence after which a comment tells both sides whether the other is there."""


async def sent(
    stream: Stream, known: MutableMapping[str, Stream], slices: Slices
) -> AsyncIterator[bytes]:
    """The stream's events as they come; it is among those `known` until it ends, by either side.
    `slices`: hundreds of streams may have one event.
    """
    known[stream.id] = stream
    work = slices.begin(stream.account)
    try:
        yield b": nospoon\n\n"
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT):
                    event = await stream.queue.get()
            except TimeoutError:
                yield b": still here\n\n"
                continue
            if event is None:
                return
            if not work.share():
                await work.rest()
            yield b"id: %s\ndata: %s\n\n" % (str(event["Id"]).encode(), msgspec.json.encode(event))
    finally:
        del known[stream.id]
