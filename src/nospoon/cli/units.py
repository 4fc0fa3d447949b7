"""systemd units of the daemon: a service that watches itself, and a socket that starts it.

The service is enabled, so that BMCs answer after a reboot; the socket lets commands wait for it
while it starts (systemd.socket(5), sd_notify(3)). Where systemd does not run, the units are only
written: `nospoon` starts the daemon itself there.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nospoon.errors import MissingTool, NospoonError, UsageError
from nospoon.settings import TABLE, Settings

SERVICE, SOCKET = "nospoond.service", "nospoond.socket"
WATCHDOG_SECONDS = 60
"""The event loop must report within this time; it does so twice as often."""
START_SECONDS = 300
SOCKETS_DIRECTORY = "NOSPOON_RUNTIME_DIR"
"""The setting that the units themselves have."""
STARTING = ("start-pre", "start", "start-post")
RESTARTS = "auto-restart"
FAILED = (RESTARTS, "failed")
"""States of a service in systemd (`systemctl --state=help`). It may try the first of them again."""
KILLED = ("signal", "core-dump", "watchdog", "oom-kill")
"""Results (systemd.exec(5)) of a daemon that ran, and was ended: it starts again, as it did before.
"""
LOOK_SECONDS = 0.2
RUNNING = Path("/run/systemd/system")
"""Exists exactly where systemd is the init (sd_booted(3))."""

_SOCKET = """\
[Unit]
Description=nospoon: socket of the daemon

[Socket]
ListenStream={socket}
SocketMode=0666
DirectoryMode=0755

[Install]
WantedBy=sockets.target
"""
_SERVICE = """\
[Unit]
Description=nospoon: virtual bare metal
Requires={socket_unit}
After={after}
{wants}
[Service]
Type=notify
ExecStart="{python}" -P -m nospoon.daemon.main
ExecReload=/bin/kill -HUP $MAINPID
Environment="NOSPOON_RUNTIME_DIR={runtime}"
EnvironmentFile=-{environment}
Restart=on-failure
RestartSec=2
WatchdogSec={watchdog}
TimeoutStartSec={start}
# DHCP servers and machines of a session outlive the daemon; it finds them again.
KillMode=process
LimitCORE=0
UMask=0022

[Install]
WantedBy={target}
Also={socket_unit}
"""


@dataclass(frozen=True, slots=True)
class Units:
    """Where the units of one daemon are. `system`: of root's daemon, else of a user's."""

    settings: Settings
    directory: Path
    environment: Path
    system: bool
    python: str

    def texts(self) -> Mapping[str, str]:
        """File name -> content."""
        libvirt = ("libvirtd.service", "virtqemud.service", "libvirt-guests.service")
        after = (SOCKET, *(("network-online.target", *libvirt) if self.system else ()))
        service = _SERVICE.format(
            socket_unit=SOCKET,
            after=" ".join(after),
            wants="Wants=network-online.target\n" if self.system else "",
            python=_escaped(self.python),
            runtime=_escaped(str(self.settings.runtime)),
            environment=_escaped(str(self.environment)),
            watchdog=WATCHDOG_SECONDS,
            start=START_SECONDS,
            target="multi-user.target" if self.system else "default.target",
        )
        socket = _escaped(str(self.settings.socket))
        return {SERVICE: service, SOCKET: _SOCKET.format(socket=socket)}

    def are_installed(self) -> bool:
        return (self.directory / SERVICE).exists()

    def write(self) -> None:
        """Write the units. Raises `NospoonError`."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for name, text in self.texts().items():
                (self.directory / name).write_text(text)
        except OSError as error:
            raise NospoonError(
                f"cannot write units to {self.directory}: {error.strerror}"
            ) from error

    def remove(self) -> None:
        for name in self.texts():
            (self.directory / name).unlink(missing_ok=True)

    def require_settings(self, environment: Mapping[str, str]) -> None:
        """Raises `UsageError` that names settings of this command which the service, whose
        environment systemd makes, would not have.
        """
        given = {
            each.variable: text
            for each in TABLE
            if each.variable != SOCKETS_DIRECTORY and (text := environment.get(each.variable))
        }
        kept = self._kept_settings() if given else {}
        lacking = sorted(name for name, text in given.items() if kept.get(name) != text)
        if lacking:
            raise UsageError(
                f"the service would not have this command's {', '.join(lacking)}",
                hint=f"Write NAME=VALUE for each into {self.environment}, or unset it.",
            )

    def _kept_settings(self) -> Mapping[str, str]:
        """What the environment file gives the service (EnvironmentFile= in systemd.exec(5))."""
        try:
            text = self.environment.read_text(errors="replace")
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise NospoonError(f"cannot read {self.environment}: {error.strerror}") from error
        lines = [each.strip().partition("=") for each in text.splitlines()]
        return {name.strip(): _unquoted(value.strip()) for name, _, value in lines}

    def start(self) -> None:
        """Start the service and wait until it is ready. Raises `NospoonError` with its reason."""
        try:
            self.systemctl("start", SERVICE)
        except MissingTool:
            raise
        except NospoonError as error:
            raise self._failure() from error

    def wait_until_started(self) -> None:
        """Return once the service does not start just now: it runs, or the first request at its
        socket starts it. Raises `NospoonError` when it failed: systemd listens all the same, and no
        request would be answered.
        """
        patience = time.monotonic() + START_SECONDS
        while self._starts() and time.monotonic() < patience:
            time.sleep(LOOK_SECONDS)
        if self._shown("SubState") in FAILED:
            raise self._failure()

    def _starts(self) -> bool:
        state = self._shown("SubState")
        return state in STARTING or (state == RESTARTS and self._shown("Result") in KILLED)

    def _shown(self, name: str) -> str:
        return self.systemctl("show", f"--property={name}", "--value", SERVICE).strip()

    def _failure(self) -> NospoonError:
        journal = f"journalctl{'' if self.system else ' --user'} --unit {SERVICE}"
        reason = self._reason(journal.split())
        return NospoonError(
            f"the daemon does not start{f': {reason}' if reason else ''}",
            hint=f"Its log: `{journal}`. Its settings are in {self.environment}.",
        )

    def _reason(self, journal: list[str]) -> str:
        """What the daemon logged last before it ended, if this user may read that."""
        command = [*journal, "--lines=40", "--output=cat", "--no-pager", "--quiet"]
        try:
            done = subprocess.run(command, text=True, capture_output=True, check=False)
        except OSError:
            return ""
        for line in reversed(done.stdout.splitlines()):
            if line.startswith("nospoond: "):
                return line.removeprefix("nospoond: ")
            if line.startswith("{") and '"cannot start"' in line:
                return str(json.loads(line).get("error", ""))
        return ""

    def systemctl(self, *argv: str) -> str:
        """Run systemctl for this manager; returns its output. Raises `NospoonError` with what it
        says.
        """
        program = shutil.which("systemctl")
        if program is None:
            raise MissingTool("systemctl is not installed", hint="Install the package systemd.")
        command = [program, *([] if self.system else ["--user"]), *argv]
        # The manager's bus is there. Shells of su and `sudo -u` lack the variable.
        environment = {"XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}", **os.environ}
        done = subprocess.run(command, text=True, capture_output=True, check=False, env=environment)
        if done.returncode:
            said = (done.stderr or done.stdout).strip()
            raise NospoonError(f"`{' '.join(command)}` failed: {said}")
        return done.stdout

    def manager_runs(self) -> bool:
        """Whether there is a systemd that these units can be given to."""
        if not RUNNING.is_dir():
            return False
        return self.system or (Path(f"/run/user/{os.getuid()}") / "systemd").is_dir()

    def without_manager(self, running: Path = RUNNING) -> str:
        """Why `manager_runs` says no, and where the units are enabled instead."""
        if not self.system and running.is_dir():
            return (
                "your own systemd does not run, which `su` and `sudo` do not start: log in, or run "
                "`loginctl enable-linger`, then enable it"
            )
        return "systemd does not run here, so enable it where it does"


def _unquoted(value: str) -> str:
    """A value of an environment file, which may stand in quotes as a shell has them."""
    try:
        words = shlex.split(value)
    except ValueError:
        return value
    return words[0] if len(words) == 1 else value


def _escaped(path: str) -> str:
    """As a value of a unit, where `%` begins a specifier (systemd.unit(5))."""
    return path.replace("%", "%%")


def units_for(
    settings: Settings, environment: Mapping[str, str], *, python: str = sys.executable
) -> Units:
    """The units of the daemon with these settings."""
    if settings.privileged:
        places = Path("/etc/systemd/system"), Path("/etc/default/nospoon")
    else:
        home = Path(environment.get("HOME") or Path.home())
        config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
        places = config / "systemd/user", config / "nospoon/environment"
    return Units(settings, *places, system=settings.privileged, python=python)
