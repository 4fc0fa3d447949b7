"""Finding the daemon: the system's when it runs, else the user's own, started when needed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from nospoon.api.client import Client
from nospoon.errors import HostUnreachable, NospoonError
from nospoon.settings import Settings, settings_for

SYSTEM_SOCKET = Path("/run/nospoon/nospoond.sock")
LOG_TAIL = 15


def client() -> Client:
    """A client of the running daemon; starts one when none runs."""
    settings = current_settings()
    for path in _candidates(settings):
        if answers(path):
            return Client(path)
    start(settings)
    return Client(settings.socket)


def running_client() -> Client | None:
    """A client when a daemon runs, else None."""
    for path in _candidates(current_settings()):
        if answers(path):
            return Client(path)
    return None


def current_settings() -> Settings:
    return settings_for(os.environ, uid=os.getuid())


def _candidates(settings: Settings) -> list[Path]:
    explicit = "NOSPOON_RUNTIME_DIR" in os.environ
    return [settings.socket] if explicit else list(dict.fromkeys([SYSTEM_SOCKET, settings.socket]))


def answers(path: Path) -> bool:
    """Whether a daemon that we may use listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _private(path: str, flags: int) -> int:
    """Opens what only its owner may read, also where an earlier version let others."""
    opened = os.open(path, flags, 0o600)
    os.fchmod(opened, 0o600)
    return opened


def start(settings: Settings) -> None:
    """Start the daemon in the background and wait until it is ready, told through a pipe."""
    settings.state.mkdir(parents=True, exist_ok=True, mode=0o711)
    reader, writer = os.pipe()
    with open(settings.log_file, "ab", opener=_private) as log, os.fdopen(reader, "rb") as ready:
        process = subprocess.Popen(
            [sys.executable, "-m", "nospoon.daemon.main", "--ready-fd", str(writer)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[writer],
            start_new_session=True,
        )
        os.close(writer)
        said = ready.readline()
    if said.strip() == b"ready":
        return
    process.wait()
    if answers(settings.socket):
        return  # somebody else started one at the same moment
    raise NospoonError(
        f"the daemon did not start (exit status {process.returncode}):\n{_tail(settings.log_file)}",
        hint=f"The whole log is in {settings.log_file}.",
    )


def _tail(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines()[-LOG_TAIL:]
    return "\n".join(f"  {line}" for line in lines)


def require_running() -> Client:
    """A client of a daemon that runs already."""
    found = running_client()
    if found is None:
        raise HostUnreachable("no daemon runs", hint="Start it with `nospoon daemon start`.")
    return found
