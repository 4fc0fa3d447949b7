"""nospoon recover."""

from __future__ import annotations

import os
import select
from collections.abc import Sequence

import click

from nospoon.api.client import Client
from nospoon.cli import connect
from nospoon.cli.completion import files
from nospoon.cli.echo import echo
from nospoon.cli.files import hosts_request
from nospoon.cli.output import output_options, print_rows
from nospoon.errors import NospoonError
from nospoon.model.rest.daemon import DaemonStatus
from nospoon.model.rest.upkeep import RecoveryReport
from nospoon.plan.words import counted

COLUMNS = (
    "cluster",
    "owner",
    "nodes",
    "hosts",
    "ironic",
    "bmcs",
    "snapshots",
    "said",
    "cluster_id",
)
END_TIMEOUT = 30.0
NO_FILE = (
    "Without FILE, other hosts of a cluster are not known: `nospoon recover FILE`, "
    "or one with `--host` for each, takes in what is there."
)


@click.command("recover")
@click.argument("file", required=False, shell_complete=files)
@click.option("--host", "hosts", multiple=True, help="Look at this one: [NAME=]URI; repeatable.")
@click.option("--deployment", default="", help="Become this deployment, whose state is lost.")
@output_options
def command(
    file: str | None,
    hosts: tuple[str, ...],
    deployment: str,
    format_: str,
    columns: tuple[str, ...],
) -> None:
    """Rebuild a lost store from what is on the hosts: of FILE, those given, or this machine.

    With FILE, only the cluster that it names. Of a known cluster, what is missing in the store is
    added. Nothing on a host is changed; the next `up` serves BMCs again, with new passwords where
    FILE gives none, and replaces no node.
    """
    client = connect.client()
    body = hosts_request(file, hosts)
    if deployment and client.ask(DaemonStatus, "GET", "/v1/daemon").deployment != deployment:
        client = _become(client, {**body, "deployment": deployment})
    found = client.ask(RecoveryReport, "POST", "/v1/recover", body)
    print_rows(found.clusters, format_=format_, columns=columns, names=COLUMNS)
    _tell(found)
    if not file and any(row.said == "recovered" for row in found.clusters):
        echo(NO_FILE, err=True)
    if found.away:
        raise click.exceptions.Exit(3)


def _become(client: Client, body: dict[str, object]) -> Client:
    """The daemon ends and starts again as the deployment that it is from now on."""
    pid = client.ask(DaemonStatus, "GET", "/v1/daemon").pid
    watched = os.pidfd_open(pid)
    client.post("/v1/recover/deployment", body)
    ended, _, _ = select.select([watched], [], [], END_TIMEOUT)
    os.close(watched)
    if not ended:
        raise NospoonError(f"the daemon (pid {pid}) did not end within {END_TIMEOUT:.0f} s")
    return connect.client()


def _tell(found: RecoveryReport) -> None:
    if not found.clusters:
        echo("Nothing to recover: no cluster was found that the store lacks.", err=True)
    for host, reason in found.away.items():
        echo(f"host {host} is not looked at: {reason}", err=True)
    for host, others in found.others.items():
        for deployment, count in others.items():
            echo(describe_others(host, deployment, count, found.running), err=True)
    if any(row.said.startswith(("recovered", "completed")) for row in found.clusters):
        echo(
            "BMCs have new passwords, except where the cluster file gives them, and are served "
            "again by `nospoon up FILE`.",
            err=True,
        )


def describe_others(host: str, deployment: str, count: int, running: Sequence[str]) -> str:
    """What another deployment has on a host. `running`: those with a daemon on this machine."""
    there = f"host {host}: {counted(count, 'resource')} of deployment {deployment}"
    if deployment in running:
        return f"{there}, whose daemon runs on this machine"
    return f"{there}. If it has no daemon any more: nospoon recover --deployment {deployment}"
