"""Roots are made of archives of users: nothing of them reaches the host."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest
from tests.lxc.conftest import image_of

from nospoon.errors import ProviderError
from nospoon.model.resources.storage import Volume
from nospoon.providers.lxc import scripts
from nospoon.testing.container_root import busybox_root
from nospoon.testing.racks import MEBI, Bench, Rack, make, observe_all, rack_for

pytestmark = pytest.mark.lxc

Members = Callable[[tarfile.TarFile], None]


def archive(more: Members, *, init: bool = True) -> bytes:
    """A root of busybox with more members."""
    written = io.BytesIO(busybox_root() if init else b"")
    with tarfile.open(fileobj=written, mode="a" if init else "w") as made:
        more(made)
    return written.getvalue()


def add(made: tarfile.TarFile, name: str, kind: bytes, **more: object) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode = kind, 0o755
    for key, value in more.items():
        setattr(member, key, value)
    made.addfile(member, io.BytesIO(b"theirs"[: member.size]))


def rack_of(
    bench: Bench, content: bytes, place: Path, images: dict[str, Path], *, size: int = 16 * MEBI
) -> Rack:
    rack = rack_for(replace(bench, image=image_of(content, place, images)))
    assert isinstance(rack.blank.shape, Volume)
    return replace(rack, blank=replace(rack.blank, shape=replace(rack.blank.shape, size=size)))


def debugfs(bench: Bench, rack: Rack, command: str) -> str:
    """What a root has, read from its file without mounting it."""
    assert isinstance(rack.blank.shape, Volume)
    volume = Path(bench.pool_root, rack.blank.shape.pool, "m0-0.volume")
    return said(["/usr/sbin/debugfs", "-R", command, str(volume)]).decode()


def said(argv: list[str], given: bytes = b"") -> bytes:
    return subprocess.run(argv, input=given, capture_output=True, check=True).stdout


async def test_no_member_leaves_the_root(
    bench: Bench, place: Path, images: dict[str, Path]
) -> None:
    outside = place / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")

    def more(made: tarfile.TarFile) -> None:
        add(made, "../../../../../../up", tarfile.REGTYPE, size=6)
        add(made, f"{outside}/absolute", tarfile.REGTYPE, size=6)
        add(made, "link", tarfile.SYMTYPE, linkname=str(outside))
        add(made, "link/through", tarfile.REGTYPE, size=6)
        add(made, "proc/link", tarfile.SYMTYPE, linkname="/proc/1/root")

    rack = rack_of(bench, archive(more), place, images)
    await make(bench, rack.pool, rack.image, rack.blank)
    assert [each.name for each in outside.iterdir()] == ["kept"]
    assert not Path("/up").exists()
    assert "Type: regular" in debugfs(bench, rack, f"stat {outside}/through")
    assert "Type: regular" in debugfs(bench, rack, "stat /up")


async def test_devices_are_left_out_and_users_are_the_containers_own(
    bench: Bench, place: Path, images: dict[str, Path]
) -> None:
    def more(made: tarfile.TarFile) -> None:
        add(made, "dev/disk", tarfile.BLKTYPE, devmajor=254, devminor=0)
        add(made, "etc/pipe", tarfile.FIFOTYPE)
        add(made, "bin/su", tarfile.REGTYPE, size=6, mode=0o4755)
        add(made, "etc/of-a-user", tarfile.REGTYPE, size=6, uid=1000, gid=100)

    rack = rack_of(bench, archive(more), place, images)
    await make(bench, rack.pool, rack.image, rack.blank)
    for missing in ("dev/disk", "etc/pipe"):
        assert "Type:" not in debugfs(bench, rack, f"stat {missing}")
    first = int(said(["awk", "-F:", '$1 == "root" {print $2; exit}', "/etc/subuid"]))
    su = " ".join(debugfs(bench, rack, "stat bin/su").split())
    assert "Mode: 04755" in su
    assert f"User: {first} Group: {first} " in su
    user = " ".join(debugfs(bench, rack, "stat etc/of-a-user").split())
    assert f"User: {first + 1000} Group: {first + 100} " in user


def of_a_user_of_the_host(made: tarfile.TarFile) -> None:
    add(made, "etc/host", tarfile.REGTYPE, size=6, uid=70_000)


def large(made: tarfile.TarFile) -> None:
    member = tarfile.TarInfo("large")
    member.size = 32 * MEBI
    made.addfile(member, io.BytesIO(bytes(member.size)))


def many(made: tarfile.TarFile) -> None:
    for number in range(20_000):
        add(made, f"tmp/{number}", tarfile.REGTYPE)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (archive(large), "'large': .*No space left"),
        (archive(many), "No space left"),
        (archive(of_a_user_of_the_host), "'etc/host': "),
        (archive(lambda _: None, init=False), "no /sbin/init"),
        (busybox_root()[:100_000], "unexpected end of data"),
        (b"not a tar at all" * 1000, "not a tar|invalid header|could not be opened"),
    ],
)
async def test_what_cannot_be_a_root_is_refused_and_leaves_nothing(
    bench: Bench, place: Path, images: dict[str, Path], content: bytes, why: str
) -> None:
    rack = rack_of(bench, content, place, images)
    await make(bench, rack.pool, rack.image)
    with pytest.raises(ProviderError, match=why):
        await make(bench, rack.blank)
    assert rack.blank.key not in await observe_all(bench)
    assert isinstance(rack.blank.shape, Volume)
    pool = Path(bench.pool_root, rack.blank.shape.pool)
    assert sorted(each.suffix for each in pool.iterdir()) == [".image", ".json", ".json"]
    assert str(place).encode() not in said(["losetup", "-a"])


@pytest.mark.parametrize("packed", [["gzip"], ["xz", "-0"], ["zstd", "-q"]])
async def test_a_compressed_root_is_taken(
    bench: Bench, place: Path, images: dict[str, Path], packed: list[str]
) -> None:
    content = said(packed, busybox_root())
    rack = rack_of(bench, content, place, images)
    await make(bench, rack.pool, rack.image, rack.blank)
    assert "Type: regular" in debugfs(bench, rack, "stat sbin/init")


async def test_an_image_that_is_another_by_now_is_not_kept(
    bench: Bench, place: Path, images: dict[str, Path]
) -> None:
    rack = rack_of(bench, busybox_root(), place, images)
    (path,) = (each for each in images.values() if each.name.startswith(bench.image.sha256))
    path.write_bytes(b"another")
    await make(bench, rack.pool)
    with pytest.raises(ProviderError, match="the copy of an image is damaged"):
        await make(bench, rack.image)
    assert rack.image.key not in await observe_all(bench)


def runs_code(made: tarfile.TarFile) -> None:
    """What Python reads to show a line of source: its encoding is a module."""
    for version in ("3.9", "3.10", "3.11", "3.12", "3.13"):
        for name, text in (
            ("encodings/theirs.py", "open('/ran', 'w')\n"),
            ("tarfile.py", "# -*- coding: theirs -*-\n" + "line\n" * 4000),
        ):
            member = tarfile.TarInfo(f"usr/lib/python{version}/{name}")
            member.size = len(text)
            made.addfile(member, io.BytesIO(text.encode()))
    member = tarfile.TarInfo("late")
    member.pax_headers = {"mtime": "1e400"}
    made.addfile(member)


async def test_nothing_of_an_archive_runs_while_it_is_unpacked(
    bench: Bench, place: Path, images: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = scripts.MAKE_ROOT.replace('rm -rf "$work"\' EXIT', ":' EXIT")
    monkeypatch.setattr(scripts, "MAKE_ROOT", kept)
    rack = rack_of(bench, archive(runs_code), place, images)
    await make(bench, rack.pool, rack.image)
    with pytest.raises(ProviderError, match="'late': timestamp out of range"):
        await make(bench, rack.blank)
    (root,) = Path(bench.pool_root).glob("*/.making-*/root")
    found = said(["/usr/sbin/debugfs", "-R", "ls -p /", str(root)]).decode()
    assert "/late/" in found
    assert "/ran/" not in found


def large_header(mebibytes: int) -> bytes:
    """A root with a PAX header of zeros, of a few kilobytes when it is packed."""
    member = tarfile.TarInfo("././@PaxHeader")
    member.type, member.size = tarfile.XHDTYPE, mebibytes * MEBI
    root = busybox_root().rstrip(b"\0")
    packer = subprocess.Popen(["zstd", "-q", "-1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert packer.stdin is not None

    def feed(to: IO[bytes]) -> None:
        to.write(root + bytes(-len(root) % 512) + member.tobuf(tarfile.GNU_FORMAT))
        for _ in range(mebibytes):
            to.write(bytes(MEBI))
        to.close()

    feeding = threading.Thread(target=feed, args=(packer.stdin,))
    feeding.start()
    with packer:
        assert packer.stdout is not None
        packed = packer.stdout.read()
        feeding.join()
    return packed


async def test_a_header_gets_no_more_than_a_gibibyte_of_memory(
    bench: Bench, place: Path, images: dict[str, Path]
) -> None:
    rack = rack_of(bench, large_header(1200), place, images)
    await make(bench, rack.pool, rack.image)
    with pytest.raises(ProviderError, match="'sbin/init': MemoryError"):
        await make(bench, rack.blank)


async def test_what_is_kept_is_readable_by_root_alone(
    bench: Bench, place: Path, images: dict[str, Path]
) -> None:
    rack = rack_of(bench, busybox_root(), place, images)
    await make(bench, rack.pool, rack.image, rack.blank)
    pool = Path(bench.pool_root, rack.pool.key.name)
    assert {each.name for each in pool.iterdir() if each.stat().st_mode & 0o077} == set()


async def test_a_python_of_roots_own_is_not_what_containers_need(
    bench: Bench, place: Path, images: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyenv's is first in the PATH of who installed it, and runs for nobody else."""
    shims = place / "shims"
    shims.mkdir(mode=0o755)
    for_root = "read -r _ outside _ </proc/self/uid_map; [ $outside = 0 ] || exit 3"
    text = f'#!/bin/sh\n{for_root}\nexec /usr/bin/python3 "$@"\n'
    (shims / "python3").write_text(text)
    (shims / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{shims}:{os.environ['PATH']}")
    rack = rack_of(bench, busybox_root(), place, images)
    await make(bench, rack.pool, rack.image, rack.blank)
    assert "busybox" in debugfs(bench, rack, "ls -p /bin")
