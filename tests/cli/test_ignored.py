"""Settings that a daemon ignores are named, and a daemon that cannot say which hinders nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nospoon.api.client import Client
from nospoon.cli.ignored import warn_of_ignored
from nospoon.cli.units import units_for
from nospoon.settings import settings_for

GIVEN = {"HOME": "/home/me", "NOSPOON_LOG": "debug"}
NOT_FOUND = (
    b"HTTP/1.1 404 Not Found\r\nContent-Length: 22\r\nConnection: close\r\n\r\n"
    b'{"detail":"Not Found"}'
)
FORBIDDEN = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Length: 53\r\nConnection: close\r\n\r\n"
    b'{"error": {"type": "Forbidden", "message": "no way"}}'
)


@contextmanager
def answering(path: Path, answer: bytes) -> Iterator[None]:
    """A daemon that gives this answer to each request."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    ending = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async def run() -> None:
        async with await asyncio.start_unix_server(serve, path):
            ready.set()
            await ending.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    assert ready.wait(20)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join(20)
        loop.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (NOT_FOUND, ""),  # of a version before that could be asked
        (FORBIDDEN, "ignores NOSPOON_LOG: it belongs to another user."),
    ],
)
def test_a_daemon_that_does_not_say_hinders_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: bytes, said: str
) -> None:
    units = units_for(settings_for(GIVEN, uid=1000), GIVEN)
    with answering(tmp_path / "socket", answer):
        warn_of_ignored(Client(tmp_path / "socket"), GIVEN, units)
    shown = capsys.readouterr().err
    assert said in shown
    assert bool(shown) is bool(said)
