"""One daemon for one runtime directory: the pid file, locked while we live, and the socket."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from nospoon.errors import Conflict
from nospoon.settings import make_directory

SOCKET_MODE = 0o666
"""Everybody may connect; who may do what is decided by peer credentials."""

PID_FILE_MODE = 0o600
"""Who can open a file, if only to read it, can lock it (flock(2)), and would keep the next daemon
from starting where this one dies.
"""


@contextlib.contextmanager
def locked(pid_file: Path) -> Iterator[None]:
    """Hold the pid file's lock. Raises `Conflict` when another daemon does."""
    make_directory(pid_file.parent, 0o755)
    descriptor = os.open(pid_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PID_FILE_MODE)
    os.fchmod(descriptor, PID_FILE_MODE)  # earlier versions let others read it
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
    """The unix socket: systemd's, where it passes one, which stays when the daemon ends; else one
    of our own, in place of a stale one of a dead daemon (we hold the lock).
    """
    passed = _passed(path)
    if passed is not None:
        with passed:
            yield passed
        return
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        path.chmod(SOCKET_MODE)
        listener.listen(128)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _passed(path: Path) -> socket.socket | None:
    """The socket at this path that systemd listens on for us (sd_listen_fds(3)), if it does."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    for descriptor in range(_FIRST_PASSED, _FIRST_PASSED + int(os.environ.get("LISTEN_FDS", "0"))):
        os.set_inheritable(descriptor, False)  # noqa: FBT003  (os has no other signature)
        listener = socket.socket(fileno=descriptor)
        if listener.family == socket.AF_UNIX and listener.getsockname() == str(path):
            return listener
        listener.close()
    return None


_FIRST_PASSED = 3
"""SD_LISTEN_FDS_START."""
