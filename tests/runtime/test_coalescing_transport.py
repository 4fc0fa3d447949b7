"""What is written in one turn of the loop is sent at once, in order, and never lost."""

from __future__ import annotations

import asyncio

from nospoon.runtime.coalescing_transport import CoalescingTransport


class Remembering(asyncio.Transport):
    """Remembers each write, and that it was closed or cut off."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent.append(bytes(data))

    def close(self) -> None:
        self.sent.append(b"<closed>")

    def abort(self) -> None:
        self.sent.append(b"<aborted>")


async def test_parts_of_one_turn_are_one_write_and_turns_are_not_mixed() -> None:
    under = Remembering()
    joined = CoalescingTransport(under)
    joined.write(b"head ")
    joined.write(b"body")
    assert under.sent == []
    await asyncio.sleep(0)
    assert under.sent == [b"head body"]
    joined.write(b"more")
    await asyncio.sleep(0)
    assert under.sent == [b"head body", b"more"]


async def test_closing_sends_what_waits_and_aborting_does_not() -> None:
    under = Remembering()
    joined = CoalescingTransport(under)
    joined.write(b"last words")
    joined.close()
    await asyncio.sleep(0)
    assert under.sent == [b"last words", b"<closed>"]
    joined.write(b"lost")
    joined.abort()
    await asyncio.sleep(0)
    assert under.sent[2:] == [b"<aborted>"]
