"""nospoon daemon."""

from __future__ import annotations

import os
import select
from dataclasses import asdict

import click

from nospoon.api.client import Client
from nospoon.cli import connect
from nospoon.cli.echo import echo
from nospoon.cli.ignored import warn_of_ignored, warn_of_misspelled, warn_of_unknown_group
from nospoon.cli.output import output_options, print_record
from nospoon.cli.units import SERVICE, SOCKET, units_for
from nospoon.errors import HostUnreachable, NospoonError
from nospoon.model.rest.daemon import DaemonStatus

STOP_TIMEOUT = 30.0


@click.group("daemon")
def command() -> None:
    """Start, stop and look at the daemon."""


@command.command("start")
@click.option("--foreground", is_flag=True, help="Stay in the foreground, log to stderr.")
def start(foreground: bool) -> None:  # noqa: FBT001  (click passes options by name)
    """Start the daemon; does nothing when it runs."""
    warn_of_misspelled(os.environ)
    warn_of_unknown_group(os.environ)
    settings = connect.current_settings()
    if foreground:
        os.execv(connect.DAEMON[0], connect.DAEMON)  # noqa: S606  (becomes the daemon)
    if connect.answers(settings.socket):
        echo(f"runs already: {settings.socket}", err=True)
        units = units_for(settings, os.environ)
        warn_of_ignored(Client(settings.socket), os.environ, units)
        return
    connect.start(settings)
    echo(f"listens on {settings.socket}", err=True)


@command.command("stop")
def stop() -> None:
    """Stop the daemon. Machines go on; BMCs are silent until it runs again."""
    settings = connect.current_settings()
    units = units_for(settings, os.environ)
    try:
        client = connect.running_client()
    except NospoonError:
        if units.are_installed() and units.manager_runs():  # it fails again and again
            units.systemctl("stop", SOCKET, SERVICE)
            return
        raise
    if client is None:
        echo("no daemon runs", err=True)
        return
    if client.socket_path == settings.socket and units.are_installed() and units.manager_runs():
        units.systemctl("stop", SOCKET, SERVICE)  # else its socket would start it again
        return
    _stop(client)


def _stop(client: Client) -> None:
    pid = client.ask(DaemonStatus, "GET", "/v1/daemon").pid
    watched = os.pidfd_open(pid)
    client.post("/v1/daemon/stop")
    ended, _, _ = select.select([watched], [], [], STOP_TIMEOUT)
    os.close(watched)
    if not ended:
        raise NospoonError(f"the daemon (pid {pid}) did not end within {STOP_TIMEOUT:.0f} s")


@command.command("install")
def install() -> None:
    """Install systemd units: the daemon starts with the machine, and again after a crash.

    For root the system's, for a user their own.
    """
    units = units_for(connect.current_settings(), os.environ)
    units.require_settings(os.environ)
    units.write()
    if not units.manager_runs():
        echo(
            f"wrote {units.directory}/{SERVICE}; {units.without_manager()}: "
            f"systemctl {'' if units.system else '--user '}enable --now {SERVICE}",
            err=True,
        )
        return
    units.systemctl("daemon-reload")
    units.systemctl("stop", SOCKET, SERVICE)
    if connect.answers(units.settings.socket):  # a daemon that a command started
        _stop(Client(units.settings.socket))
    units.systemctl("enable", SOCKET, SERVICE)
    units.systemctl("start", SOCKET)
    units.start()
    if units.system:
        echo(f"{SERVICE} runs, and starts with the machine", err=True)
        return
    echo(f"{SERVICE} runs, starts when you log in and stops when you log out", err=True)
    echo("To have it run all the time: loginctl enable-linger", err=True)


@command.command("uninstall")
def uninstall() -> None:
    """Stop the daemon and remove its systemd units. Machines go on."""
    units = units_for(connect.current_settings(), os.environ)
    if not units.are_installed():
        echo(f"no units in {units.directory}", err=True)
        return
    if units.manager_runs():
        units.systemctl("disable", "--now", SOCKET, SERVICE)
    units.remove()
    if units.manager_runs():
        units.systemctl("daemon-reload")
    echo(f"removed {units.directory}/{SERVICE} and {SOCKET}", err=True)


@command.command("status")
@output_options
def status(format_: str, columns: tuple[str, ...]) -> None:
    """Show whether the daemon runs; exit status 1 when it does not."""
    client = connect.running_client()
    if client is None:
        raise HostUnreachable("no daemon runs", hint="Start it with `nospoon daemon start`.")
    found = client.ask(DaemonStatus, "GET", "/v1/daemon")
    record = {**asdict(found), "socket": str(client.socket_path)}
    print_record(record, format_=format_, columns=columns)
