"""A command whose daemon or reader closes its end shows an error, and does not end silently."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

COMMAND = [sys.executable, "-m", "nospoon.cli.main"]
REFUSED = b'{"error": {"type": "Forbidden", "message": "user 7 may not use this daemon"}}'
ANSWER = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(REFUSED), REFUSED)
)


def refuse(listener: socket.socket) -> None:
    """As the daemon does with who may not use it: an answer without a look at the request."""
    while True:
        try:
            line, _ = listener.accept()
        except OSError:
            return
        with line, contextlib.suppress(OSError):  # who only looks whether it listens has gone
            line.sendall(ANSWER)


def test_who_is_refused_before_the_request_was_sent_is_shown_why(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    padding = "# more than a socket's buffer takes\n" * (1 << 15)
    file.write_text(f"cluster: c\nhosts: {{here: simulated}}\nnodes: [{{count: 1}}]\n{padding}")
    environment = {**os.environ, "NOSPOON_RUNTIME_DIR": str(tmp_path)}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "nospoond.sock"))
        listener.listen()
        server = Thread(target=refuse, args=(listener,))
        server.start()
        done = subprocess.run(
            [*COMMAND, "plan", str(file)],
            env=environment, text=True, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        listener.shutdown(socket.SHUT_RDWR)
        server.join()
    assert "user 7 may not use this daemon" in done.stderr
    assert done.returncode == 1


def test_output_that_is_no_longer_read_ends_a_command_without_a_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as output:
        done = subprocess.run(
            [*COMMAND, "schema"], stdout=output, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("argv", ["--help", "--version", "up --help", "schema"])
def test_output_to_a_full_disk_is_an_error_without_a_traceback(argv: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, *argv.split()], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False
        )
    expected = b"Error: cannot write the output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, expected)


@pytest.mark.parametrize("argv", ["no-such-command", "vbmc list --no-such-option"])
def test_an_error_that_a_full_disk_does_not_take_keeps_its_exit_code(argv: str) -> None:
    with Path("/dev/full").open("wb") as full:
        words = [*COMMAND, *argv.split()]
        done = subprocess.run(words, stdout=full, stderr=full, timeout=60, check=False)
    assert done.returncode == 2


def test_an_error_that_is_no_longer_read_keeps_its_exit_code() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as output:
        argv = [*COMMAND, "no-such-command"]
        done = subprocess.run(argv, stderr=output, timeout=60, check=False)
    assert done.returncode == 2


def test_a_command_without_standard_output_does_its_work() -> None:
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, "--version"]
    done = subprocess.run(closed, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
