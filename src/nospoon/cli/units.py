"""systemd units of the daemon: a service that watches itself, and a socket that starts it.

The service is enabled, so that BMCs answer after a reboot; the socket lets commands wait for it
while it starts (systemd.socket(5), sd_notify(3)). Where systemd does not run, the units are only
written: `nospoon` starts the daemon itself there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nospoon.errors import MissingTool, NospoonError
from nospoon.settings import Settings

SERVICE, SOCKET = "nospoond.service", "nospoond.socket"
WATCHDOG_SECONDS = 60
"""The event loop must report within this time; it does so twice as often."""
START_SECONDS = 300
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
ExecStart="{python}" -m nospoon.daemon.main
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

    def systemctl(self, *argv: str) -> None:
        """Run systemctl for this manager. Raises `NospoonError` with what it says."""
        program = shutil.which("systemctl")
        if program is None:
            raise MissingTool("systemctl is not installed", hint="Install the package systemd.")
        command = [program, *([] if self.system else ["--user"]), *argv]
        done = subprocess.run(command, text=True, capture_output=True, check=False)
        if done.returncode:
            said = (done.stderr or done.stdout).strip()
            raise NospoonError(f"`{' '.join(command)}` failed: {said}")

    def manager_runs(self) -> bool:
        """Whether there is a systemd that these units can be given to."""
        if not RUNNING.is_dir():
            return False
        return self.system or (Path(f"/run/user/{os.getuid()}") / "systemd").is_dir()


def _escaped(path: str) -> str:
    """As a value of a unit, in quotes or without: `%` begins a specifier there (systemd.unit(5))."""
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
