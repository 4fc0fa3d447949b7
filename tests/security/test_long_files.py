"""Cluster files of megabytes, a hundred of which a member may keep: one is held at a time."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.security.asked import OWNER, a_daemon

COUNT, LONG = 12, 2 << 20
MOST = COUNT * LONG // 2
"""Bytes: of half of the files."""


def long_file(name: str) -> str:
    text = f"cluster: {name}\nhosts: {{here: simulated}}\nnodes: [{{name: n}}]\n# "
    return text + "x" * (LONG - len(text))


@contextmanager
def bounded(what: str) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST, f"{what} took {peak >> 20} MiB"


async def test_lists_and_a_start_hold_one_file_at_a_time(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        for number in range(COUNT):
            assert (await asked.up(OWNER, long_file(f"c-{number}"))).status == 202
        for path in ("/v1/services", "/v1/hosts"):
            with bounded(path):
                answer = await asked.ask(OWNER, "GET", path)
            assert answer.status == 200, f"{path}: {answer.body!r}"
        with bounded("recover"):
            assert (await asked.ask(0, "POST", "/v1/recover", {})).status == 200
    with bounded("a start"):
        async with a_daemon(tmp_path) as asked:
            there = (await asked.ask(OWNER, "GET", "/v1/clusters")).json
    assert len(there) == COUNT
