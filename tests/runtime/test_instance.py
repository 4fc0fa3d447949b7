"""One daemon for one runtime directory, also while one ends and the next one starts."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from nospoon.daemon.instance import listening, locked
from nospoon.errors import Conflict


@pytest.fixture
def pid_file(tmp_path: Path) -> Path:
    return tmp_path / "nospoond.pid"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nospoond.sock"


def test_a_daemon_that_ends_is_waited_for(pid_file: Path, path: Path) -> None:
    """A command after `systemctl stop`, or after a SIGTERM, found it neither there nor gone."""

    def start() -> bool:
        with locked(pid_file, path), listening(path), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            return pid_file.exists()

    with ThreadPoolExecutor() as other:
        with locked(pid_file, path):
            next_one = other.submit(start)
            with pytest.raises(TimeoutError):
                next_one.result(timeout=0.3)
        assert next_one.result(timeout=60)
    assert not pid_file.exists()


def test_a_daemon_that_answers_is_not_waited_for(pid_file: Path, path: Path) -> None:
    with (
        locked(pid_file, path),
        listening(path),
        pytest.raises(Conflict, match=r"^a daemon runs already, with pid \d+$"),
        locked(pid_file, path, patience=60),
    ):
        pass


def test_a_daemon_that_neither_answers_nor_ends_is_named(pid_file: Path, path: Path) -> None:
    with (
        locked(pid_file, path),
        pytest.raises(Conflict, match=r"with pid \d+, and does not answer"),
        locked(pid_file, path, patience=0.2),
    ):
        pass


def test_of_several_that_wait_one_starts(pid_file: Path, path: Path) -> None:
    """The file is removed with the lock: one that waited for it has the lock of no file."""
    with ExitStack() as first, ThreadPoolExecutor() as others:
        first.enter_context(locked(pid_file, path))
        held: list[int] = []

        def start() -> int:
            with locked(pid_file, path, patience=60):
                held.append(1)
                most = len(held)
                assert pid_file.exists()
                held.pop()
            return most

        waiting = [others.submit(start) for _ in range(4)]
        first.close()
        assert [each.result(timeout=60) for each in waiting] == [1, 1, 1, 1]
