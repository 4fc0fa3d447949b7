"""What is imported at a first use is imported where no BMC waits for it."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

import pytest
from tests.security.asked import a_daemon

from nospoon.daemon.connections import Connections


async def test_libvirt_is_imported_in_a_thread_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first host of libvirt stopped all BMCs for a tenth of a second."""
    prepared, where = threading.Event(), list[threading.Thread]()

    def prepare() -> None:
        where.append(threading.current_thread())
        prepared.set()

    monkeypatch.setattr(Connections, "prepare", staticmethod(prepare))
    async with a_daemon(tmp_path):
        await asyncio.to_thread(prepared.wait)
    assert where != [threading.main_thread()]


def test_what_a_host_of_libvirt_needs_is_there_then(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"nospoon.providers.libvirt.{each}" for each in ("connection", "kvm")]
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    Connections.prepare()
    assert all(name in sys.modules for name in names)


def test_without_libvirt_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("nospoon.providers.libvirt")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "libvirt", None)
    Connections.prepare()
