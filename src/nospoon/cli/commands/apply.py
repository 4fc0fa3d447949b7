"""nospoon apply."""

from __future__ import annotations

import json
from pathlib import Path

import click

from nospoon.cli import connect
from nospoon.cli.commands.bmc import COLUMNS
from nospoon.cli.commands.up import confirm, show_bmcs
from nospoon.cli.echo import echo
from nospoon.cli.files import read_request
from nospoon.cli.follow import finish, follow
from nospoon.cli.output import check_columns, output_options
from nospoon.errors import UsageError


@click.command("apply")
@click.argument("plan", type=click.Path(exists=True, dir_okay=False))
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Undeploy nodes that left its file, too.")
@output_options
def command(
    plan: str,
    yes: bool,  # noqa: FBT001  (click passes options by name)
    force: bool,  # noqa: FBT001
    format_: str,
    columns: tuple[str, ...],
) -> None:
    """Carry out a plan saved with `nospoon plan -o PLAN`; refused when it is stale."""
    check_columns(columns, COLUMNS)
    try:
        saved = json.loads(Path(plan).read_text())
        text = saved["text"]
        path, request = saved["request"]["path"], {**saved["request"]}
        del request["path"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{plan} is not a saved plan", hint="Save one with `nospoon plan FILE -o PLAN`."
        ) from error
    echo(text, err=True)
    if not yes:
        confirm("Carry out this plan?")
    client = connect.client()
    began = client.post("/v1/clusters", {**read_request(client, path), **request, "force": force})
    if began["operation"] is None:
        echo(began["text"], err=True)
    else:
        finish(follow(client, began["operation"]))
    show_bmcs(client, began["plan"]["cluster"], format_, columns)
