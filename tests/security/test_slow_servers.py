"""What cluster files name by URL: one user's slow servers keep nobody else's downloads waiting, and
what waits for them does not keep whole files in memory.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from tests.security.asked import OWNER, a_daemon

from nospoon.clusterfile.fields import MAX_URL
from nospoon.clusterfile.load import load
from nospoon.control.content import files as filed
from nospoon.control.content.fetch import Access, Terms, Transfer
from nospoon.control.content.files import PER_OWNER, THREADS, Files
from nospoon.control.content.pace import Pace
from nospoon.control.operations.operations import MOST_RUNNING, Ended, Running
from nospoon.control.request import Request
from nospoon.errors import Conflict, ProviderError, SpecError
from nospoon.model.principal import Principal
from nospoon.store.operations import OperationState

FILE = "cluster: {}\nhosts: {{s: simulated}}\nnodes: [{{disks: [{{image: '{}'}}]}}]\n"


class Stuck(Files):
    """A server of `slow` says nothing until the transfer is stopped; others answer at once."""

    def fetch_blocking(
        self, url: str, access: Access, transfer: Transfer, terms: Terms, *, checksum: str = ""
    ) -> str:
        del access, terms, checksum
        if "slow" in url:
            gone = threading.Event()
            while not transfer.unwanted:
                gone.wait(0.005)
            raise ProviderError(transfer.why)
        return "ab" * 32


async def test_slow_servers_of_one_user_hold_up_no_other_user(tmp_path: Path) -> None:
    files = Stuck.at(tmp_path)
    async with asyncio.TaskGroup() as group:
        slow = [
            group.create_task(files.fetch(f"http://slow/{n}", owner=1)) for n in range(2 * THREADS)
        ]
        assert await files.fetch("http://h/x", owner=2) == "ab" * 32
        for task in slow:
            task.cancel()
    assert PER_OWNER < THREADS


async def test_a_server_that_is_too_slow_is_given_up(tmp_path: Path) -> None:
    for pace in (Pace(deadline=60.0, window=0.01, rate=1), Pace(0.01, 60.0, 0)):
        files = replace(Stuck.at(tmp_path), pace=pace)
        with pytest.raises(ProviderError, match=r"slower than 1 bytes a second|longer than 0 s"):
            await files.fetch("http://slow/", owner=1)


async def test_urls_that_were_fetched_are_forgotten_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filed, "KNOWN", 3)
    files = Stuck.at(tmp_path)
    for number in range(5):
        await files.fetch_once(f"http://h/{number}", owner=1)
    assert list(files._digests) == ["http://h/2", "http://h/3", "http://h/4"]
    assert not files._fetching._locks


def test_urls_have_a_length() -> None:
    url = "http://h/" + "x" * MAX_URL
    with pytest.raises(SpecError, match=f"more than {MAX_URL} characters"):
        load(FILE.format("c", url), file="f")


async def test_a_fetch_does_not_keep_the_file_and_a_user_has_so_many(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        daemon, begun = asked.daemon, asyncio.Event()
        stuck = Stuck.at(tmp_path / "files")
        daemon.control.controller.files = stuck
        mark = "# a long file"
        text = FILE.format("c", "http://slow/") + mark
        await daemon.control.controller.fetch(
            Request(Principal(OWNER), file="f", text=text, uploads={})
        )
        gc.collect()
        held = [each for each in gc.get_objects() if isinstance(each, Request)]
        assert not [each for each in held if mark in each.text]

        async def wait(running: Running) -> Ended:
            del running
            await begun.wait()
            return Ended(OperationState.DONE, "")

        def start(uid: int) -> Awaitable[object]:
            return daemon.control.operations.start(
                "up", cluster_id=uuid4(), cluster="c", owner=uid, work=wait
            )

        for _ in range(MOST_RUNNING - 1):
            await start(OWNER)
        with pytest.raises(Conflict, match="operations of user"):
            await start(OWNER)
        await start(OWNER + 1)
        begun.set()
