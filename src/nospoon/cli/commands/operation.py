"""nospoon operation."""

from __future__ import annotations

from uuid import UUID

import click

from nospoon.cli import connect
from nospoon.cli.echo import echo
from nospoon.cli.follow import finish, follow
from nospoon.cli.output import output_options, print_record, print_rows
from nospoon.model.rest.operations import OperationDetails, OperationSummary

COLUMNS = ("id", "kind", "cluster", "state", "created", "finished", "message")


@click.group("operation")
def command() -> None:
    """Long work: list, show, watch, cancel."""


@command.command("list")
@output_options
def list_(format_: str, columns: tuple[str, ...]) -> None:
    """List your operations, newest first."""
    rows = connect.client().ask(list[OperationSummary], "GET", "/v1/operations")
    print_rows(rows, format_=format_, columns=columns, names=COLUMNS)


@command.command("show")
@click.argument("operation", type=click.UUID)
@output_options
def show(operation: UUID, format_: str, columns: tuple[str, ...]) -> None:
    """Show one operation."""
    record = connect.client().ask(OperationDetails, "GET", f"/v1/operations/{operation}")
    print_record(record, format_=format_, columns=columns)


@command.command("watch")
@click.argument("operation", type=click.UUID)
def watch(operation: UUID) -> None:
    """Follow an operation to its end; exits as the command that began it would."""
    client = connect.client()
    finish(follow(client, str(operation)))


@command.command("cancel")
@click.argument("operation", type=click.UUID)
def cancel(operation: UUID) -> None:
    """Stop an operation. What it made stays; `up` or `down` goes on from there."""
    path = f"/v1/operations/{operation}/cancel"
    record = connect.client().ask(OperationDetails, "POST", path)
    echo(f"{record.kind} {record.cluster}: {record.state}", err=True)
