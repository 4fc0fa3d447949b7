"""nospoon support-bundle."""

from __future__ import annotations

import click

from nospoon.cli import connect
from nospoon.cli.completion import clusters
from nospoon.cli.echo import echo
from nospoon.cli.files import cluster_name
from nospoon.cli.output import STANDARD_OUTPUT, writable, write_private


@click.command("support-bundle")
@click.argument("cluster", required=False, default="", shell_complete=clusters)
@click.option(
    "-o", "--out", default="nospoon-support.tar.gz", show_default=True,
    help="Output file; -: standard output.",
)  # fmt: skip
def command(cluster: str, out: str) -> None:
    """Pack file, plan, logs, consoles and versions for a bug report; secrets are masked."""
    name = cluster_name(cluster) if cluster else ""
    target = writable(out)
    data = connect.client().text("/v1/support-bundle", cluster=name)
    write_private(target, data)
    if target != STANDARD_OUTPUT:
        echo(out)
