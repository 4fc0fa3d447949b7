"""A store whose server hangs: it is waited for at the end of the daemon, but not for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event
from typing import cast
from uuid import UUID

import pytest
from sqlalchemy import Connection
from structlog.testing import capture_logs

from nospoon.bmc.log import Kind, Log
from nospoon.daemon import bmc_state, lease
from nospoon.daemon.bmc_state import StoredRuntime
from nospoon.daemon.lease import Lease
from nospoon.runtime.tasks import Tasks
from nospoon.store import database
from nospoon.store.bmc_log import Appended
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database


class Hanging:
    """Answers nothing before `answers`."""

    def __init__(self) -> None:
        self.answers, self.asked = Event(), Event()

    def __call__(self, connection: Connection) -> None:
        del connection
        self.asked.set()
        self.answers.wait(60)


@pytest.mark.parametrize("reads", [False, True])
async def test_a_daemon_ends_while_its_store_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, reads: bool
) -> None:
    """It did not, until it was killed."""
    monkeypatch.setattr(database, "ENDING", 0.2)
    opened, hanging = Database.open(f"sqlite:///{tmp_path}/store.db"), Hanging()
    call = opened.read if reads else opened.call
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(call(hanging))
        try:
            await asyncio.to_thread(hanging.asked.wait, 60)
            with capture_logs() as logs:
                async with asyncio.timeout(30):
                    await asyncio.to_thread(opened.close)
            assert [each["log_level"] for each in logs] == ["error"]
            assert not waiting.done()
        finally:
            hanging.answers.set()


async def test_a_lease_is_not_given_back_to_a_store_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Never:
        async def call(self, *_: object) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(lease, "GIVING_BACK", 0.05)
    own = Lease(cast("Database", Never()), seconds=60, pid_file=tmp_path / "p", lost=print)
    with capture_logs() as logs:
        async with asyncio.timeout(30):
            await own.give_back()
    assert [each["event"] for each in logs] == ["the lease is not given back"]


class Silent:
    """It never answers."""

    async def call(self, *given: object) -> None:
        del given
        await asyncio.Event().wait()


async def test_log_entries_that_wait_for_a_store_that_hangs_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients add some thousand a second, each of which is answered at once."""
    monkeypatch.setattr(bmc_state, "MOST_WAITING", 8)
    cipher, entries = Cipher.from_file(tmp_path / "key"), Log()
    async with Tasks("test") as tasks:
        store = StoredRuntime(cast("Database", Silent()), cipher, tasks)
        for _ in range(100):
            store.append(UUID(int=1), entries.add(Kind.ADDED, 1.0, raw=bytes(16)))
            await asyncio.sleep(0)
        waiting = [each.record for each in store._changes if isinstance(each, Appended)]
        assert waiting == list(entries.records[-len(waiting) :])
        assert 8 <= len(waiting) <= 16
