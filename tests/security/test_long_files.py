"""Cluster files of megabytes, a hundred of which a member may keep: one is held at a time."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.security.asked import OWNER, a_daemon

from nospoon.store.crypt import Cipher

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


async def test_files_are_decrypted_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at a cluster with a file of 16 MiB, and each plan, took 0.1 s of it."""
    decrypted: list[int] = []
    decrypt = Cipher.decrypt

    def noted(cipher: Cipher, data: bytes) -> str:
        if len(data) > LONG:
            decrypted.append(threading.get_ident())
        return decrypt(cipher, data)

    monkeypatch.setattr(Cipher, "decrypt", noted)
    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OWNER, long_file("c"))).status == 202
        for method, path, body in (
            ("GET", "/v1/clusters/c", None),
            ("POST", "/v1/plan", {"file": "f", "text": long_file("c")}),
            ("GET", "/v1/support-bundle?cluster=c", None),
        ):
            before = len(decrypted)
            answer = await asked.ask(OWNER, method, path, body)
            assert (answer.status, len(decrypted) > before) == (200, True), path
    assert threading.get_ident() not in decrypted
