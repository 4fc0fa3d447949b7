"""nospoon verify."""

from __future__ import annotations

import click

from nospoon.cli import connect
from nospoon.cli.completion import clusters
from nospoon.cli.files import cluster_name
from nospoon.cli.follow import beginning, finish, follow
from nospoon.cli.numbers import FiniteRange
from nospoon.cli.output import output_options, print_rows
from nospoon.model.rest.operations import OperationDetails

COLUMNS = (
    "node",
    "verdict",
    "firmware",
    "cpus",
    "memory",
    "disks",
    "nics",
    "ipv6",
    "seconds",
    "problems",
)


@click.command("verify")
@click.argument("cluster", shell_complete=clusters)
@click.option("-n", "--node", "nodes", multiple=True, help="Only this node; again for more.")
@click.option("--reboot-running", is_flag=True, help="Also nodes that are on: they are reset.")
@click.option(
    "--timeout",
    type=FiniteRange(0, 3600, min_open=True),
    default=240.0,
    show_default=True,
    help="Seconds a node.",
)
@output_options
def command(
    cluster: str,
    nodes: tuple[str, ...],
    reboot_running: bool,  # noqa: FBT001  (click passes options by name)
    timeout: float,
    format_: str,
    columns: tuple[str, ...],
) -> None:
    """Boot a probe on every node through its BMC and compare its hardware with the file."""
    client = connect.client()
    body = {"nodes": list(nodes), "reboot_running": reboot_running, "timeout": timeout}
    with beginning():
        path = f"/v1/clusters/{cluster_name(cluster)}/verify"
        operation = client.ask(OperationDetails, "POST", path, body)
    final = follow(client, operation.id)
    rows = final.result.nodes
    if rows or format_ != "table":
        print_rows(rows, format_=format_, columns=columns, names=COLUMNS)
    finish(final)
