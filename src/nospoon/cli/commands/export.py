"""nospoon export."""

from __future__ import annotations

import click

from nospoon.cli import connect
from nospoon.cli.completion import clusters
from nospoon.cli.echo import echo, echo_file
from nospoon.cli.files import cluster_name
from nospoon.cli.output import STANDARD_OUTPUT, writable, write_private
from nospoon.exports.formats import FORMATS
from nospoon.model.rest.clusters import Exported

LIST = "\n".join(f"  {name:<14} {each.about}" for name, each in FORMATS.items())


@click.command(
    "export",
    help=f"Write CLUSTER, by its name or its file, as what another tool reads.\n\n\b\n{LIST}\n\n"
    "Most have the passwords of BMCs in them; a file is readable by you only.",
)
@click.argument("cluster", shell_complete=clusters)
@click.option("--to", required=True, type=click.Choice(list(FORMATS)), help="Output format.")
@click.option(
    "-o", "--out", type=click.Path(dir_okay=False), help="Output file; -: standard output."
)
def command(cluster: str, to: str, out: str | None) -> None:
    target = writable(out) if out is not None else STANDARD_OUTPUT
    path = f"/v1/clusters/{cluster_name(cluster)}/export/{to}"
    answer = connect.client().ask(Exported, "GET", path)
    for each in answer.left_out:
        echo(f"Left out: {each}", err=True)
    if target == STANDARD_OUTPUT:
        echo_file(answer.text)
    else:
        write_private(target, answer.text.encode())
