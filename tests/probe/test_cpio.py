"""The archive writer, judged by GNU cpio's rules and by properties."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.probe import cpio

NAMES = st.text("abcXYZ019._-", min_size=1, max_size=12).filter(lambda name: name.strip("."))
FILES = st.dictionaries(NAMES, st.binary(max_size=300), max_size=8)


def read_back(data: bytes) -> dict[str, tuple[int, bytes]]:
    """A reader written from the format's description, sharing nothing with the writer."""
    found: dict[str, tuple[int, bytes]] = {}
    offset = 0
    while True:
        header = data[offset : offset + 110]
        assert header[:6] == b"070701"
        fields = [int(header[at : at + 8], 16) for at in range(6, 110, 8)]
        name = data[offset + 110 : offset + 110 + fields[11] - 1].decode()
        start = offset + -(-(110 + fields[11]) // 4) * 4
        if name == "TRAILER!!!":
            return found
        found[name] = (fields[1], data[start : start + fields[6]])
        offset = start + -(-fields[6] // 4) * 4


@given(FILES)
def test_what_is_archived_can_be_read_back(files: dict[str, bytes]) -> None:
    data = cpio.archive(cpio.file(name, content) for name, content in files.items())
    assert {name: content for name, (_, content) in read_back(data).items()} == files


def test_directories_come_before_what_is_in_them() -> None:
    names = list(read_back(cpio.archive([cpio.file("a/b/c", b"x"), cpio.file("a/d", b"y")])))
    assert names == ["a", "a/b", "a/b/c", "a/d"]


def test_equal_input_makes_equal_bytes() -> None:
    entries = [cpio.file("a/b", b"x"), cpio.symlink("c", "a/b")]
    assert cpio.archive(entries) == cpio.archive(entries)


def test_kinds_and_modes_are_kept() -> None:
    entries = [
        cpio.directory("d"),
        cpio.file("f", b"x", mode=0o755),
        cpio.symlink("l", "f"),
        cpio.character_device("c", major=5, minor=1),
    ]
    modes = {name: mode for name, (mode, _) in read_back(cpio.archive(entries)).items()}
    assert stat.filemode(modes["d"]) == "drwxr-xr-x"
    assert stat.filemode(modes["f"]) == "-rwxr-xr-x"
    assert stat.filemode(modes["l"]) == "lrwxrwxrwx"
    assert stat.filemode(modes["c"]) == "crw-------"


@pytest.mark.tools
def test_cpio_itself_unpacks_the_archive(tmp_path: Path) -> None:
    data = cpio.archive([cpio.file("a/b", b"content"), cpio.symlink("l", "a/b")])
    busybox = ["busybox", "cpio", "-i", "-d"]
    subprocess.run(busybox, input=data, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "l").read_bytes() == b"content"
