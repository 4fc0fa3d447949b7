"""nospoon host."""

from __future__ import annotations

import click

from nospoon.cli import connect
from nospoon.cli.files import read_request
from nospoon.cli.output import output_options, print_rows

COLUMNS = ("host", "what", "verdict", "detail")


@click.group("host")
def command() -> None:
    """Hosts: check what they have of what is needed there."""


@command.command("check")
@click.argument("file")
@output_options
def check(file: str, format_: str, columns: tuple[str, ...]) -> None:
    """Look at the hosts of FILE: programs, KVM, room, bridges, clock. Changes nothing.

    Fails when something that FILE needs is missing.
    """
    rows = connect.client().post("/v1/hosts/check", read_request(None, file))
    print_rows(rows, format_=format_, columns=columns, names=COLUMNS)
    if any(row["verdict"] == "missing" for row in rows):
        raise click.exceptions.Exit(1)
