"""nospoon status."""

from __future__ import annotations

import click

from nospoon.cli import connect
from nospoon.cli.completion import clusters
from nospoon.cli.echo import echo
from nospoon.cli.files import cluster_name
from nospoon.cli.output import output_options, print_rows
from nospoon.model.rest.clusters import ClusterStatus, ClusterSummary

CLUSTER_COLUMNS = ("name", "nodes", "on", "id", "file", "operation")
NODE_COLUMNS = ("node", "host", "state", "power", "boot", "bmc", "drift")
WITH_NESTED = (*NODE_COLUMNS, "portgroups", "floating_ips")
NESTING = frozenset({"json", "yaml"})
"""Formats that have room for what is no single value."""


@click.command("status")
@click.argument("cluster", required=False, shell_complete=clusters)
@output_options
def command(cluster: str | None, format_: str, columns: tuple[str, ...]) -> None:
    """Show desired and observed state, and drift, node by node; without CLUSTER, all clusters."""
    client = connect.client()
    if cluster is None:
        rows = client.ask(list[ClusterSummary], "GET", "/v1/clusters")
        print_rows(rows, format_=format_, columns=columns, names=CLUSTER_COLUMNS, spare=("id",))
        return
    answer = client.ask(ClusterStatus, "GET", f"/v1/clusters/{cluster_name(cluster)}")
    names = NODE_COLUMNS if format_ not in NESTING and not columns else WITH_NESTED
    print_rows(answer.nodes, format_=format_, columns=columns, names=names)
    for line in answer.drift:
        echo(line, err=True)
