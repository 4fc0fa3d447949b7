"""One daemon for one runtime directory: the pid file, locked while we live, and the socket."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from nospoon.errors import Conflict

SOCKET_MODE = 0o666
"""Everybody may connect; who may do what is decided by peer credentials."""


@contextlib.contextmanager
def locked(pid_file: Path) -> Iterator[None]:
    """Hold the pid file's lock. Raises `Conflict` when another daemon does."""
    pid_file.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    descriptor = os.open(pid_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        other = os.read(descriptor, 32).decode(errors="replace").strip()
        os.close(descriptor)
        raise Conflict(f"a daemon runs already, with pid {other}") from None
    os.truncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    try:
        yield
    finally:
        pid_file.unlink(missing_ok=True)
        os.close(descriptor)


@contextlib.contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """The unix socket; a stale one of a dead daemon is replaced (we hold the lock)."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        path.chmod(SOCKET_MODE)
        listener.listen(128)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)
