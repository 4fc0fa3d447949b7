"""One daemon for one runtime directory: the pid file, locked while we live, and the socket."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from nospoon.errors import Conflict
from nospoon.runtime import clock
from nospoon.settings import make_directory

SOCKET_MODE = 0o666
"""Everybody may connect; who may do what is decided by peer credentials."""

PID_FILE_MODE = 0o600
"""Who can open a file, if only to read it, can lock it (flock(2)), and would keep the next daemon
from starting where this one dies.
"""


END_SECONDS = 30.0
"""Longer than a daemon takes to end."""
LOOK_SECONDS = 0.1


@contextlib.contextmanager
def locked(pid_file: Path, path: Path, *, patience: float = END_SECONDS) -> Iterator[None]:
    """Hold the pid file's lock. One that ends, and does not listen at this socket any more, is
    waited for so many seconds. Raises `Conflict` when another daemon has it.
    """
    make_directory(pid_file.parent, 0o755)
    until = clock.monotonic() + patience
    while (descriptor := _locked(pid_file)) is None:
        if _answers(path):
            raise Conflict(f"a daemon runs already, with pid {_pid(pid_file)}")
        if clock.monotonic() >= until:
            raise Conflict(
                f"a daemon runs already, with pid {_pid(pid_file)}, and does not answer",
                hint="If it does not end by itself, end it: machines continue to run.",
            )
        time.sleep(LOOK_SECONDS)
    os.truncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    try:
        yield
    finally:
        pid_file.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(pid_file: Path) -> int | None:
    """A descriptor of the file with its lock; None where another process has it."""
    descriptor = os.open(pid_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PID_FILE_MODE)
    os.fchmod(descriptor, PID_FILE_MODE)  # earlier versions let others read it
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), pid_file.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    # another has the lock, or the one that ended has removed the file since it was opened
    os.close(descriptor)
    return None


def _pid(pid_file: Path) -> str:
    """What the other daemon wrote."""
    try:
        return pid_file.read_text(errors="replace").strip()
    except FileNotFoundError:
        return "unknown"


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


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
