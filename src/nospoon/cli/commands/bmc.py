"""nospoon bmc."""

from __future__ import annotations

import click

from nospoon.cli import connect
from nospoon.cli.output import output_options, print_rows

COLUMNS = ("node", "power", "ipmi", "redfish", "username", "password", "pdu", "pdu_secret", "uuid")


@click.group("bmc")
def command() -> None:
    """BMCs: where they answer, and who may log in."""


@command.command("list")
@click.option("--cluster", default="", help="Only of this cluster.")
@output_options
def list_(cluster: str, format_: str, columns: tuple[str, ...]) -> None:
    """List your BMCs with their credentials."""
    rows = connect.client().get("/v1/bmcs", cluster=cluster)
    print_rows(rows, format_=format_, columns=columns, names=COLUMNS)
