"""nospoon bmc."""

from __future__ import annotations

import click

from nospoon.cli import connect
from nospoon.cli.completion import clusters
from nospoon.cli.output import check_columns, output_options, print_rows
from nospoon.model.rest.nodes import BmcAccess

COLUMNS = (
    *("node", "cluster", "power", "ipmi", "redfish", "username", "password"),
    *("pdu", "pdu_secret", "pdu_community", "uuid"),
)
SECRET = ("password", "pdu_secret", "pdu_community")
"""Columns that are shown on request only: tables end up in logs."""
SPARE = ("uuid", "pdu", "redfish")
"""Columns that narrow terminals do without."""


@click.group("bmc")
def command() -> None:
    """BMCs: where they answer, and who may log in."""


@command.command("list")
@click.option("--cluster", default="", help="Only of this cluster.", shell_complete=clusters)
@click.option("--show-secrets", is_flag=True, help="Show passwords, too.")
@output_options
def list_(
    cluster: str,
    show_secrets: bool,  # noqa: FBT001  (click passes options by name)
    format_: str,
    columns: tuple[str, ...],
) -> None:
    """List your BMCs: addresses, ports and accounts; passwords with --show-secrets."""
    check_columns(columns, COLUMNS)
    rows = connect.client().ask(list[BmcAccess], "GET", "/v1/bmcs", cluster=cluster)
    secret = () if show_secrets else SECRET
    print_rows(rows, format_=format_, columns=columns, names=COLUMNS, secret=secret, spare=SPARE)
