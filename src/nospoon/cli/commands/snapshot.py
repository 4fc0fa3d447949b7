"""nospoon snapshot."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from nospoon.cli import connect
from nospoon.cli.commands.up import confirm
from nospoon.cli.completion import clusters
from nospoon.cli.echo import echo
from nospoon.cli.files import cluster_name
from nospoon.cli.follow import beginning, finish, follow
from nospoon.cli.output import output_options, print_rows, row_of
from nospoon.model.rest.clusters import SnapshotSummary
from nospoon.model.rest.operations import OperationDetails

COLUMNS = ("name", "state", "created", "nodes", "on")


@click.group("snapshot")
def command() -> None:
    """Snapshots of a whole cluster: create, list, restore, delete."""


@command.command("create")
@click.argument("cluster", shell_complete=clusters)
@click.argument("name", required=False)
def create(cluster: str, name: str | None) -> None:
    """Keep disks and firmware variables of all nodes of CLUSTER, as they are now, as NAME.

    Running nodes are paused meanwhile. The default NAME is the current time.
    """
    client = connect.client()
    name = name or datetime.now(UTC).strftime("%Y%m%d-%H%M%S")  # noqa: TID251  (for people)
    path = f"/v1/clusters/{cluster_name(cluster)}/snapshots"
    with beginning():
        operation = client.ask(OperationDetails, "POST", path, {"name": name})
    finish(follow(client, operation.id))
    echo(name)


@command.command("list")
@click.argument("cluster", shell_complete=clusters)
@output_options
def list_(cluster: str, format_: str, columns: tuple[str, ...]) -> None:
    """List the snapshots of CLUSTER, oldest first."""
    path = f"/v1/clusters/{cluster_name(cluster)}/snapshots"
    found = connect.client().ask(list[SnapshotSummary], "GET", path)
    rows = [{**row_of(each), "created": _time(each.created)} for each in found]
    print_rows(rows, format_=format_, columns=columns, names=COLUMNS)


def _time(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).isoformat(timespec="seconds")


@command.command("restore")
@click.argument("cluster", shell_complete=clusters)
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def restore(cluster: str, name: str, yes: bool) -> None:  # noqa: FBT001  (click passes by name)
    """Bring all nodes of CLUSTER back to NAME: disks, firmware variables, power."""
    client = connect.client()
    if not yes:
        confirm(f"Switch off all nodes of {cluster}, and give up what is on their disks now?")
    path = f"/v1/clusters/{cluster_name(cluster)}/snapshots/{name}/restore"
    with beginning():
        operation = client.ask(OperationDetails, "POST", path)
    finish(follow(client, operation.id))


@command.command("delete")
@click.argument("cluster", shell_complete=clusters)
@click.argument("name")
def delete(cluster: str, name: str) -> None:
    """Delete the snapshot NAME of CLUSTER."""
    client = connect.client()
    path = f"/v1/clusters/{cluster_name(cluster)}/snapshots/{name}"
    with beginning():
        operation = client.ask(OperationDetails, "DELETE", path)
    finish(follow(client, operation.id))
