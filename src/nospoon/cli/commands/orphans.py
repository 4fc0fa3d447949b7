"""nospoon orphans."""

from __future__ import annotations

import click

from nospoon.cli import connect
from nospoon.cli.commands.up import confirm
from nospoon.cli.completion import files
from nospoon.cli.echo import echo
from nospoon.cli.files import hosts_request
from nospoon.cli.follow import beginning, finish, follow
from nospoon.cli.output import output_options, print_rows
from nospoon.model.rest.operations import OperationDetails
from nospoon.model.rest.upkeep import OrphanReport
from nospoon.plan.words import counted

COLUMNS = ("host", "kind", "name", "cluster", "owner", "running", "cluster_id")


@click.command("orphans")
@click.argument("file", required=False, shell_complete=files)
@click.option("--host", "hosts", multiple=True, help="Look at this one: [NAME=]URI; repeatable.")
@click.option("--reap", is_flag=True, help="Remove them.")
@click.option(
    "--grace", type=click.FloatRange(0), default=60.0, show_default=True,
    help="Seconds until they are removed; what is not an orphan by then is kept.",
)  # fmt: skip
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_options
def command(
    file: str | None,
    hosts: tuple[str, ...],
    reap: bool,  # noqa: FBT001  (click passes options by name)
    grace: float,
    yes: bool,  # noqa: FBT001
    format_: str,
    columns: tuple[str, ...],
) -> None:
    """List what nospoon made here and no cluster of it knows any more.

    Looks at all hosts that it knows, at those of FILE, or at those given. What other deployments
    of nospoon made is counted, and never touched.
    """
    client = connect.client()
    body = hosts_request(file, hosts)
    found = client.ask(OrphanReport, "POST", "/v1/orphans", body)
    print_rows(
        found.orphans, format_=format_, columns=columns, names=COLUMNS, spare=("cluster_id",)
    )
    _tell(found)
    if reap and found.orphans:
        if not yes:
            confirm("Remove all of this?")
        with beginning():
            given = {**body, "grace": grace}
            operation = client.ask(OperationDetails, "POST", "/v1/orphans/reap", given)
        finish(follow(client, operation.id))
    elif found.away:
        raise click.exceptions.Exit(3)


def _tell(found: OrphanReport) -> None:
    for host, others in found.others.items():
        for deployment, count in others.items():
            what = f"{counted(count, 'resource')} of deployment {deployment}"
            echo(f"host {host}: {what}: left unchanged", err=True)
    for host, reason in found.away.items():
        echo(f"host {host} is not looked at: {reason}", err=True)
