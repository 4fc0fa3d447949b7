"""nospoon daemon."""

from __future__ import annotations

import os
import select
import sys

import click

from nospoon.cli import connect
from nospoon.cli.output import output_options, print_record
from nospoon.errors import HostUnreachable, NospoonError

STOP_TIMEOUT = 30.0


@click.group("daemon")
def command() -> None:
    """Start, stop and look at the daemon."""


@command.command("start")
@click.option("--foreground", is_flag=True, help="Stay in the foreground, log to stderr.")
def start(foreground: bool) -> None:  # noqa: FBT001  (click passes options by name)
    """Start the daemon; does nothing when it runs."""
    settings = connect.current_settings()
    if foreground:
        os.execv(sys.executable, [sys.executable, "-m", "nospoon.daemon.main"])  # noqa: S606  (becomes the daemon)
    if connect.answers(settings.socket):
        click.echo(f"runs already: {settings.socket}", err=True)
        return
    connect.start(settings)
    click.echo(f"listens on {settings.socket}", err=True)


@command.command("stop")
def stop() -> None:
    """Stop the daemon. Machines go on; BMCs are silent until it runs again."""
    client = connect.running_client()
    if client is None:
        click.echo("no daemon runs", err=True)
        return
    pid = client.get("/v1/daemon")["pid"]
    watched = os.pidfd_open(pid)
    client.post("/v1/daemon/stop")
    ended, _, _ = select.select([watched], [], [], STOP_TIMEOUT)
    os.close(watched)
    if not ended:
        raise NospoonError(f"the daemon (pid {pid}) did not end within {STOP_TIMEOUT:.0f} s")


@command.command("status")
@output_options
def status(format_: str, columns: tuple[str, ...]) -> None:
    """Show whether the daemon runs; exit status 1 when it does not."""
    client = connect.running_client()
    if client is None:
        raise HostUnreachable("no daemon runs", hint="Start it with `nospoon daemon start`.")
    print_record(client.get("/v1/daemon"), format_=format_, columns=columns)
