"""nospoon apply."""

from __future__ import annotations

import json
from pathlib import Path

import click

from nospoon.cli import connect
from nospoon.cli.commands.up import confirm
from nospoon.cli.follow import finish, follow
from nospoon.errors import UsageError


@click.command("apply")
@click.argument("plan", type=click.Path(exists=True, dir_okay=False))
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def command(plan: str, yes: bool) -> None:  # noqa: FBT001  (click passes options by name)
    """Carry out a plan saved with `nospoon plan -o PLAN`; refused when it is stale."""
    try:
        request = json.loads(Path(plan).read_text())["request"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{plan} is no saved plan", hint="Make one: `plan -o`.") from error
    if not yes:
        confirm("Carry out the saved plan?")
    client = connect.client()
    began = client.post("/v1/clusters", request)
    if began["operation"] is None:
        click.echo(began["text"], err=True)
        return
    finish(follow(client, began["operation"]))
