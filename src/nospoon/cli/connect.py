"""Finding the daemon: the system's when it runs, else the user's own, started when needed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol

from nospoon.api.client import Client
from nospoon.cli.echo import echo
from nospoon.cli.ignored import warn_of_ignored, warn_of_misspelled, warn_of_unknown_group
from nospoon.cli.units import Units, units_for
from nospoon.errors import Forbidden, NospoonError
from nospoon.settings import READY, REFUSED, Settings, make_directory, settings_for

SYSTEM_SOCKET = Path("/run/nospoon/nospoond.sock")
OWN = "Root's daemon runs here, and serves you only with sudo. Starting a daemon of your own."
LOG_TAIL = 15
DAEMON = (sys.executable, "-P", "-m", "nospoon.daemon.main")
"""Its command. -P: Python imports nothing from the working directory, where root's daemon would run
what other users put there.
"""


class Begun(Protocol):
    """A daemon's process. `wait` for its end gives its exit status."""

    def wait(self) -> int: ...


def begin(argv: Sequence[str], log: int, ready: int) -> Begun:
    """Start a daemon in the background; its descriptors are that of its log, and `ready`."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=[ready],
        start_new_session=True,
    )


BEGIN: ContextVar[Callable[[Sequence[str], int, int], Begun]] = ContextVar("BEGIN", default=begin)
"""How a daemon is begun; tests fork most of theirs (`nospoon.testing.daemons`)."""


def client(system: Path = SYSTEM_SOCKET) -> Client:
    """A client of the running daemon that this user may use; starts one when none runs.

    `system`: socket of root's daemon.
    """
    warn_of_misspelled(os.environ)
    warn_of_unknown_group(os.environ)
    found = running_client(system)
    settings = current_settings()
    if found is not None:
        warn_of_ignored(found, os.environ, units_for(settings, os.environ))
        return found
    refused = system in _candidates(settings, system) and _refuses(system)
    if refused and settings.socket != system:
        echo(OWN, err=True)
    start(settings)
    return Client(settings.socket)


def running_client(system: Path = SYSTEM_SOCKET) -> Client | None:
    """A client when a daemon runs that this user may use, else None."""
    settings = current_settings()
    for path in _candidates(settings, system):
        mine = path == settings.socket
        if not answers(path):
            continue
        units = _units_at(path, settings)
        if units.are_installed() and units.manager_runs():
            units.wait_until_started()
        if mine or not _refuses(path):
            return Client(path)
    return None


def _units_at(path: Path, settings: Settings) -> Units:
    """Of the daemon at this socket: this user's own, else root's."""
    if path == settings.socket:
        return units_for(settings, os.environ)
    return units_for(settings_for({}, uid=0), {})


def _refuses(path: Path) -> bool:
    """Whether root's daemon runs and does not serve this user."""
    if os.getuid() == 0 or not answers(path):
        return False
    try:
        Client(path).get("/v1/daemon")
    except Forbidden:
        return True
    return False


def current_settings() -> Settings:
    return settings_for(os.environ, uid=os.getuid())


def _candidates(settings: Settings, system: Path) -> list[Path]:
    explicit = "NOSPOON_RUNTIME_DIR" in os.environ
    return [settings.socket] if explicit else list(dict.fromkeys([system, settings.socket]))


def answers(path: Path) -> bool:
    """Whether a daemon listens there."""
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
    """Start the daemon and wait until it is ready: by systemd where its units are installed, else
    in the background; then a pipe says when.
    """
    units = units_for(settings, os.environ)
    if units.are_installed() and units.manager_runs():
        echo("Starting the daemon.", err=True)
        units.start()
        return
    echo(f"Starting the daemon; its log is {settings.log_file}.", err=True)
    make_directory(settings.state, 0o711)
    reader, writer = os.pipe()
    with open(settings.log_file, "ab", opener=_private) as log, os.fdopen(reader, "rb") as ready:
        daemon = BEGIN.get()([*DAEMON, "--ready-fd", str(writer)], log.fileno(), writer)
        os.close(writer)
        said = ready.read().decode()
    if said.strip() == READY:
        return
    status = daemon.wait()
    if answers(settings.socket):
        return  # another command started one at the same moment
    if said.startswith(REFUSED):
        raise NospoonError(f"the daemon did not start: {said.removeprefix(REFUSED)}")
    raise NospoonError(
        f"the daemon did not start (exit status {status}):\n{_tail(settings.log_file)}",
        hint=f"The whole log is in {settings.log_file}.",
    )


def _tail(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines()[-LOG_TAIL:]
    return "\n".join(f"  {line}" for line in lines)
