"""Copies to a host that were cut short: the daemon was killed, or the connection by ssh ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import pytest

from nospoon.daemon import remote
from nospoon.errors import ProviderError
from nospoon.runtime.process import Finished
from nospoon.runtime.runner import LocalRunner
from nospoon.services.netboot.remote import REPLACE


class Cut(LocalRunner):
    """The host gets the first half of what a command reads."""

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        half = stdin[: len(stdin) // 2] if stdin is not None else None
        return await super().run(argv, stdin=half, check=check)


async def test_leases_that_came_by_half_leave_the_former_ones(tmp_path: Path) -> None:
    leases, text = tmp_path / "leases", b"1 52:54:00:00:00:02 10.0.0.2 m *\n"
    leases.write_text("former\n")
    inode = leases.stat().st_ino
    command = ("sh", "-c", REPLACE, "sh", str(leases), str(len(text)))
    with pytest.raises(ProviderError):
        await Cut().run(command, stdin=text)
    assert leases.read_text() == "former\n"
    await LocalRunner().run(command, stdin=text)
    assert leases.read_bytes() == text
    assert leases.stat().st_ino == inode, "it stays dnsmasq's"
    assert list(tmp_path.iterdir()) == [leases]


async def test_a_file_that_came_by_half_is_not_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "STATE", PurePosixPath(tmp_path / "there"))
    kernel = tmp_path / "kernel"
    kernel.write_bytes(b"k" * 4096)
    with pytest.raises(ProviderError):
        async with remote.copied(Cut(), kernel):
            pass
    async with remote.copied(LocalRunner(), kernel) as (path,):
        assert Path(path).read_bytes() == kernel.read_bytes()
    assert not list((tmp_path / "there").iterdir()), "both are removed"
