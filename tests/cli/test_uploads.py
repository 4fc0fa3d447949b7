"""Files that a cluster file names are read before they are uploaded."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from nospoon.cli.files import _digest
from nospoon.testing.ironic import until


def test_a_file_that_takes_long_to_read_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "disk.raw"
    os.mkfifo(path)
    digests: list[str] = []
    reading = threading.Thread(target=lambda: digests.append(_digest(path, patience=0.0)))
    reading.start()
    said = ""

    def is_said() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return "Reading disk.raw" in said

    with path.open("wb") as content:
        until(is_said)
        content.write(b"content")
    reading.join(10)
    assert digests == [hashlib.sha256(b"content").hexdigest()]


def test_one_that_is_read_soon_is_not(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kernel").write_bytes(b"content")
    assert _digest(tmp_path / "kernel") == hashlib.sha256(b"content").hexdigest()
    assert capfd.readouterr().err == ""
