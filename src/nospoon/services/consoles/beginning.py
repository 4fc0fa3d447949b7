"""What a machine said before its stream was opened.

A stream is opened once it is known that its machine runs, and QEMU drops what a serial port says
while nothing reads it (chardev/char-pty.c). The record has all that a stream has, in the same order
and some moments later: what it has up to the stream's first bytes is what the stream lacks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from nospoon.providers.base import ConsoleStream
from nospoon.runtime.clock import monotonic

MOST = 1 << 16
"""Bytes that are shown of what a machine said before; those before them are in its record."""
SILENT_SECONDS = 0.3
"""A stream that gives nothing for so long is of a machine that says nothing for now."""
MORE_SECONDS = 0.05
"""For how long its first bytes are gathered: few of them may be anywhere in the record."""
LATE_SECONDS = 1.0
"""For how long they are looked for in the record."""
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Beginning:
    """What is heard first. `said`: what the stream lacked, then what it gave; `offset`: of that in
    the record.
    """

    said: bytes
    offset: int


async def beginning(
    stream: ConsoleStream,
    read: Callable[[int, int], Awaitable[tuple[int, bytes]]],
    size: Callable[[], Awaitable[int]],
    heard: int,
) -> Beginning:
    """The beginning of a stream that was just opened. `heard`: up to which offset of its record the
    machine was heard; `size`, `read`: of the record, as `Records` has them.
    """

    async def unheard() -> tuple[int, bytes]:
        end = await size()
        if end <= heard:
            return heard, b""
        return await read(max(heard, end - MOST), MOST)

    first = await _given(stream, SILENT_SECONDS)
    at, said = await unheard()
    if said and not first:  # the stream may be the slower one
        first = await _given(stream, SILENT_SECONDS)
    if not first:
        return Beginning(said, at)
    late = monotonic() + LATE_SECONDS
    while first not in said and monotonic() < late:
        await asyncio.sleep(LOOK_SECONDS)
        at, said = await unheard()
    if first not in said:
        return Beginning(first, at + len(said))
    return Beginning(said[: said.rfind(first)] + first, at)


async def _given(stream: ConsoleStream, seconds: float) -> bytes:
    """What a stream gives first, b"" for nothing in this time or its end."""
    given = b""
    with suppress(TimeoutError):
        while len(given) < MOST:
            async with asyncio.timeout(MORE_SECONDS if given else seconds):
                data = await stream.read()
            if not data:
                break
            given += data
    return given
