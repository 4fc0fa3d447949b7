"""What a member has built keeps no other user's builds waiting."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nospoon.daemon import builds
from nospoon.daemon.builds import Builds
from nospoon.model.cluster import Arch
from nospoon.probe.build import Probe
from nospoon.runtime.tasks import Tasks


async def test_a_large_installer_keeps_no_probe_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its image takes as long as it is large: up to a minute for each command."""
    begun, probe = asyncio.Event(), Probe(Arch.X86_64, tmp_path / "kernel", tmp_path / "initrd")

    async def make(*given: Path) -> None:
        del given
        begun.set()
        await asyncio.Event().wait()

    async def build(cache: Path, *, arch: Arch) -> Probe:
        del cache, arch
        return probe

    monkeypatch.setattr("nospoon.services.netboot.installer_image.make", make)
    monkeypatch.setattr(builds, "build", build)
    made = Builds(tmp_path, tmp_path / "iso", lambda: 80)
    async with Tasks("test") as tasks:
        tasks.start(made.installer(tmp_path, tmp_path, tmp_path), name="installer")
        await begun.wait()
        async with asyncio.timeout(5):
            assert await made.probe(Arch.X86_64) is probe
