"""Files of UEFI variables by commands: only regular ones, wholly or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from nospoon.errors import ProviderError
from nospoon.providers.libvirt.flash import MOST_CODED, Flash, NotRegular
from nospoon.providers.libvirt.varstore import LARGEST
from nospoon.runtime.process import Finished
from nospoon.runtime.runner import LocalRunner, SshRunner

LOCAL = Flash("here", LocalRunner())
SSH = """#!/bin/sh
for last; do :; done
exec sh -c "$last"
"""
"""Runs here what ssh(1) would give to the shell of another host."""


@pytest.fixture(params=["here", "over ssh"])
def flash(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flash:
    if request.param == "here":
        return LOCAL
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text(SSH)
    (tmp_path / "bin/ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return Flash("far", SshRunner("root@far"))


async def test_what_is_not_there_is_none_and_of_what_is_the_beginning_is_read(
    flash: Flash, tmp_path: Path
) -> None:
    file = tmp_path / "it's a $(file)"
    assert await flash.read(str(file)) is None
    content = os.urandom(LARGEST)
    file.write_bytes(content + b"more")
    assert await flash.read(str(file)) == content
    file.write_bytes(b"few")
    assert await flash.read(str(file)) == b"few"


async def test_what_differs_is_written_and_no_file_is_made(flash: Flash, tmp_path: Path) -> None:
    file = tmp_path / "file"
    content = bytes(200_000)
    file.write_bytes(content + b"end")
    after = bytearray(content)
    after[70_000:140_000] = b"x" * 70_000
    await flash.write(str(file), content, bytes(after))
    assert file.read_bytes() == after + b"end"
    file.unlink()
    with pytest.raises(ProviderError, match="cannot write"):
        await flash.write(str(file), content, bytes(after))
    assert not file.exists()


@pytest.mark.parametrize("kind", ["link", "broken link", "fifo", "directory", "device"])
async def test_what_is_not_a_regular_file_is_neither_read_nor_written(
    tmp_path: Path, kind: str
) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    other.write_bytes(b"secret")
    match kind:
        case "link":
            file.symlink_to(other)
        case "broken link":
            file.symlink_to(tmp_path / "none")
        case "fifo":
            os.mkfifo(file)
        case "directory":
            file.mkdir()
        case "device":
            file = Path("/dev/zero")
    with pytest.raises(NotRegular, match="not a regular file"):
        await LOCAL.read(str(file))
    with pytest.raises(NotRegular, match="not a regular file"):
        await LOCAL.write(str(file), b"secret", b"public")
    assert other.read_bytes() == b"secret"


async def test_only_the_nodes_own_files_move_and_none_takes_the_place_of_another(
    flash: Flash, tmp_path: Path
) -> None:
    (tmp_path / "nvram").mkdir()
    for name in ("m.uefi.nvram", "m.uefi.nvram.a.snapshot", "n-m.uefi.nvram", "m1.uefi.nvram"):
        (tmp_path / name).write_text("earlier")
    (tmp_path / "m.uefi-secure.nvram").symlink_to("/etc/passwd")
    (tmp_path / "nvram/m.uefi.nvram").write_text("later")
    (tmp_path / "nvram/m.uefi-secure.nvram").write_text("former")
    await flash.settle(str(tmp_path), "m", ["m.uefi-secure.nvram", "m.bios.nvram"])
    found = {str(each.relative_to(tmp_path)): each for each in tmp_path.rglob("*.nvram*")}
    assert set(found) == {
        "m.uefi-secure.nvram", "m1.uefi.nvram", "n-m.uefi.nvram",
        "nvram/m.uefi.nvram", "nvram/m.uefi.nvram.a.snapshot",
    }  # fmt: skip
    assert found["nvram/m.uefi.nvram"].read_text() == "later"


async def test_where_no_commands_run_it_is_said_what_is_missing() -> None:
    away = Flash("far", None)
    with pytest.raises(ProviderError, match=r"host far: no commands run there.*`ssh: root@"):
        await away.read("/pool/nvram/m.uefi.nvram")
    await away.clear("/pool")


class Odd:
    """A host that answers as none does."""

    def __init__(self, done: tuple[int, str, str]) -> None:
        self.done = done

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        del stdin, check
        return Finished(tuple(argv), *self.done)


@pytest.mark.parametrize(
    ("done", "why"),
    [
        ((0, "QUJD", ""), "cannot read"),
        ((0, "QUJD", "dd: error reading '/f': Input/output error\n"), "Input/output error"),
        ((1, "", "Permission denied"), "Permission denied"),
        ((0, "***", "whole\n"), "cannot read /f"),
        ((0, "A" * (MOST_CODED + 4), "whole\n"), "too much"),
        ((0, "é", "whole\n"), "cannot read /f"),
    ],
)
async def test_odd_answers_are_errors_of_the_host(done: tuple[int, str, str], why: str) -> None:
    with pytest.raises(ProviderError, match=why):
        await Flash("far", Odd(done)).read("/f")
