"""Files that a cluster file names are read before they are uploaded."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pty
import subprocess
import sys
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
    reading.join(20)
    assert digests == [hashlib.sha256(b"content").hexdigest()]


def test_one_that_is_read_soon_is_not(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kernel").write_bytes(b"content")
    assert _digest(tmp_path / "kernel") == hashlib.sha256(b"content").hexdigest()
    assert capfd.readouterr().err == ""


SENDS = """
import io, sys
from nospoon.cli.follow import sent
with sent(io.BytesIO(bytes(100 << 10)), 100 << 10) as shown:
    while shown.read(20 << 10):
        sys.stdin.readline()
"""


@pytest.mark.parametrize(("kind", "shown"), [("xterm", True), ("dumb", False)])
def test_a_terminal_shows_how_much_was_sent(kind: str, *, shown: bool) -> None:
    terminal, theirs = pty.openpty()
    environment, wanted, said = {**os.environ, "TERM": kind}, b"60.0/100.0 KiB", b""
    with subprocess.Popen(
        [sys.executable, "-c", SENDS], stdin=subprocess.PIPE, stderr=theirs, env=environment
    ) as sending:
        os.close(theirs)
        assert sending.stdin is not None
        sending.stdin.write(b"\n\n")
        sending.stdin.flush()
        with contextlib.suppress(OSError):  # EIO: its end (pty(7))
            while shown and wanted not in said:  # it reads no more until it is told to
                said += os.read(terminal, 4096)
            sending.stdin.close()
            while piece := os.read(terminal, 4096):
                said += piece
        os.close(terminal)
    assert sending.returncode == 0, said
    assert (wanted in said) is shown
