"""Whoever asks for console records again and again has only his own requests wait."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

from nospoon.services.consoles.records import Records
from nospoon.services.consoles.service import ConsoleService, Source

MACHINE, OWNER, OTHER = UUID(int=1), 1001, 1002


class Unlisted(Records):
    """Those of ten thousand other machines are not looked at."""

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        raise AssertionError


def test_a_record_is_read_without_a_look_at_all_others(tmp_path: Path) -> None:
    (tmp_path / f"{MACHINE}.log.1").write_text("first ")
    (tmp_path / f"{MACHINE}.log").write_text("last")
    records = Unlisted(tmp_path)
    records.keep(MACHINE, group=f"{OWNER}/c", node="n")
    assert records.tail(MACHINE, 100) == b"first last"
    assert records.read(MACHINE, 0, 5) == (0, b"first")
    assert records.end(MACHINE, 1) == "first last"
    records.keep(MACHINE, group=f"{OTHER}/c", node="n")
    assert records.tail(MACHINE, 100) == b""


class Held(Records):
    """The search for a record of `OWNER` lasts until the event."""

    go_on = threading.Event()

    def find(self, group: str, node: str) -> UUID | None:
        if group.startswith(str(OWNER)):
            assert self.go_on.wait(60)
        return super().find(group, node)


async def test_records_are_read_in_threads_of_their_own_for_each_user(tmp_path: Path) -> None:
    """A member's 200 requests for logs of no node held up everybody's work for 40 seconds."""
    loop, records = asyncio.get_running_loop(), Held(tmp_path)
    loop.set_default_executor(ThreadPoolExecutor(1))
    records.keep(MACHINE, group=f"{OTHER}/c", node="n")
    (tmp_path / f"{MACHINE}.log").write_text("said")
    service = ConsoleService(_no_source, records)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        asked = [group.create_task(service.kept(f"{OWNER}/c", "n", user=OWNER)) for _ in range(20)]
        assert await asyncio.to_thread(lambda: "everybody's") == "everybody's"
        assert await service.kept(f"{OTHER}/c", "n", user=OTHER) == MACHINE
        assert await service.size(MACHINE, user=OTHER) == 4
        assert await service.tail(MACHINE, 2, user=OTHER) == b"id"
        read = service.read(MACHINE, follow=False, user=OTHER)
        assert [each async for each in read] == [b"said"]
        assert not any(each.done() for each in asked)
        records.go_on.set()
    assert [each.result() for each in asked] == [None] * 20
    await service.close()


def _no_source(machine: UUID) -> Source:
    raise AssertionError(machine)
