"""What a machine said before its stream was opened, put before what the stream gives."""

from __future__ import annotations

import asyncio

import pytest

from nospoon.runtime.joined_bytes import JoinedBytes
from nospoon.services.consoles.beginning import MOST, Beginning, beginning


class Stream(JoinedBytes):
    """A `ConsoleStream` that gives what is put into it."""

    async def read(self) -> bytes:
        return await self.take()

    async def write(self, data: bytes) -> None:
        raise NotImplementedError

    async def send_break(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


class Record:
    """A record that gets one more of `said` at each look."""

    def __init__(self, *said: bytes) -> None:
        self.data, self.said = b"", list(said)

    async def size(self) -> int:
        if self.said:
            self.data += self.said.pop(0)
        return len(self.data)

    async def read(self, offset: int, limit: int) -> tuple[int, bytes]:
        return offset, self.data[offset : offset + limit]


async def begun(stream: Stream, record: Record, heard: int = 0) -> Beginning:
    async with asyncio.timeout(20):
        return await beginning(stream, record.read, record.size, heard)


@pytest.mark.parametrize(
    ("given", "recorded", "said"),
    [
        (b"", [b""], b""),
        (b"", [b"earlier, firmware"], b"firmware"),
        (b"ware", [b"earlier, firmware"], b"firmware"),
        (b"firmware", [b"earlier, firmware"], b"firmware"),
        (b"ware", [b"earlier, ", b"firm", b"ware"], b"firmware"),  # the record is the later one
        (b"ware", [b"earlier, firmware, kernel"], b"firmware"),  # the stream gives the rest later
        (b"r", [b"earlier, rer"], b"rer"),  # of several places the last one
        (b"elsewhere", [b"earlier, firmware"], b"elsewhere"),
        (b"elsewhere", [b""], b"elsewhere"),
    ],
)
async def test_the_record_gives_what_the_stream_lacks(
    given: bytes, recorded: list[bytes], said: bytes
) -> None:
    stream, record = Stream(), Record(*recorded)
    stream.put(given)
    assert (await begun(stream, record, len(b"earlier, "))).said == said


async def test_the_offset_is_that_of_what_is_said() -> None:
    stream, record = Stream(), Record(b"earlier, firmware")
    stream.put(b"ware")
    assert (await begun(stream, record, 9)).offset == 9
    long = Record(b"x" * 3 * MOST)
    assert await begun(Stream(), long) == Beginning(b"x" * MOST, 2 * MOST)


async def test_the_end_of_a_stream_is_not_waited_for() -> None:
    stream = Stream()
    stream.put(b"ware")
    stream.end()
    assert (await begun(stream, Record(b"firmware"))).said == b"firmware"
    assert await stream.read() == b""
