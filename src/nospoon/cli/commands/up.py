"""nospoon up: plan, confirm, apply, wait."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import click

from nospoon.api.client import Client
from nospoon.cli import connect
from nospoon.cli.commands.bmc import COLUMNS, SECRET, SPARE
from nospoon.cli.commands.plan import PLANNING
from nospoon.cli.completion import files
from nospoon.cli.echo import echo, report_if_long
from nospoon.cli.files import read_request
from nospoon.cli.follow import beginning, finish, follow
from nospoon.cli.numbers import FiniteRange
from nospoon.cli.output import check_columns, output_options, print_rows
from nospoon.errors import UsageError
from nospoon.model.rest.nodes import BmcAccess
from nospoon.model.rest.plans import BegunPlan, ShownPlan


@click.command("up")
@click.argument("file", shell_complete=files)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Undeploy nodes that left FILE, too.")
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@click.option("--rebalance", is_flag=True, help="Place all nodes again, existing ones too.")
@click.option("-t", "--target", "targets", multiple=True, help="Only this node; again for more.")
@click.option(
    "--parallel",
    type=click.IntRange(1, 1000),
    help="Calls at once on one host, and nodes that Ironic works on at once.",
)
@click.option("--wait/--no-wait", default=True, help="Wait for the end.", show_default=True)
@click.option("--timeout", type=FiniteRange(0), help="Seconds to wait at most.")
@output_options
def command(
    file: str,
    yes: bool,  # noqa: FBT001  (click passes options by name)
    force: bool,  # noqa: FBT001
    dry_run: bool,  # noqa: FBT001
    rebalance: bool,  # noqa: FBT001
    targets: tuple[str, ...],
    parallel: int | None,
    wait: bool,  # noqa: FBT001
    timeout: float | None,
    format_: str,
    columns: tuple[str, ...],
) -> None:
    """Bring a cluster to what FILE says: plan, confirm, apply, wait."""
    check_columns(columns, COLUMNS)
    client = connect.client()
    chosen = {"rebalance": rebalance, "targets": targets, "parallel": parallel, "force": force}
    body = {**read_request(client, file), **chosen}
    if yes and not dry_run:
        answer: ShownPlan = begin(client, body)
        echo(answer.text, err=True)
    else:
        with report_if_long(PLANNING):
            answer = client.ask(ShownPlan, "POST", "/v1/plan", body)
        echo(answer.text, err=True)
        plan = answer.plan
        if not dry_run and (plan.steps or plan.remembers):
            confirm("Carry out this plan?")
            agreed = {"cluster_id": plan.cluster_id, "fingerprint": plan.fingerprint}
            answer = begin(client, {**body, **agreed})
    operation = answer.operation if isinstance(answer, BegunPlan) else None
    if operation is not None and not wait:
        echo(operation.id)
        return
    if operation is not None:
        finish(follow(client, operation.id, timeout=timeout, shown_plan=answer.text))
    if not dry_run:
        show_bmcs(client, answer.plan.cluster, format_, columns)


def begin(client: Client, body: Mapping[str, object]) -> BegunPlan:
    """Begin what the plan says."""
    with beginning(), report_if_long(PLANNING):
        return client.ask(BegunPlan, "POST", "/v1/clusters", body)


def confirm(question: str) -> None:
    """Ask on a terminal; elsewhere --yes is required."""
    if not sys.stdin.isatty():
        raise UsageError("Cannot ask for confirmation without a terminal", hint="Use --yes.")
    click.confirm(question, abort=True, err=True)


def show_bmcs(client: Client, cluster: str, format_: str, columns: tuple[str, ...]) -> None:
    rows = client.ask(list[BmcAccess], "GET", "/v1/bmcs", cluster=cluster)
    print_rows(rows, format_=format_, columns=columns, names=COLUMNS, secret=SECRET, spare=SPARE)
    if rows and format_ == "table" and not columns:
        echo(f"Passwords: nospoon bmc list --cluster {cluster} --show-secrets", err=True)
