"""Debian packages, as this machine's sources have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nospoon.model.cluster import Arch
from nospoon.probe.packages import find_sources


@pytest.mark.tools
async def test_lists_are_parsed_once(tmp_path: Path) -> None:
    """Also where the system's apt keeps nothing, as in images of containers."""
    found = await find_sources(Arch.X86_64, directory=tmp_path)
    (kept,) = tmp_path.rglob("pkgcache.bin")
    before = (kept.stat().st_ino, kept.stat().st_mtime_ns)
    assert await find_sources(Arch.X86_64, directory=tmp_path) == found
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == before
