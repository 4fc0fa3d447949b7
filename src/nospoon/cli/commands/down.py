"""nospoon down."""

from __future__ import annotations

import click

from nospoon.cli import connect
from nospoon.cli.commands.up import confirm
from nospoon.cli.completion import clusters
from nospoon.cli.echo import echo
from nospoon.cli.files import cluster_name
from nospoon.cli.follow import beginning, finish, follow
from nospoon.cli.numbers import FiniteRange
from nospoon.errors import UsageError
from nospoon.model.rest.operations import OperationDetails
from nospoon.model.rest.plans import ShownPlan


@click.command("down")
@click.argument("cluster", shell_complete=clusters)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--purge", is_flag=True, help="Remove console records and uploads too.")
@click.option("--force", is_flag=True, help="Also nodes that are in use in Ironic.")
@click.option("--keep-enrolment", is_flag=True, help="Leave in Ironic what is there.")
@click.option("--forget-enrolment", is_flag=True, help="Ironic is gone for good: do not ask it.")
@click.option("--wait/--no-wait", default=True, help="Wait for the end.", show_default=True)
@click.option("--timeout", type=FiniteRange(0), help="Seconds to wait at most.")
def command(
    cluster: str,
    yes: bool,  # noqa: FBT001  (click passes options by name)
    purge: bool,  # noqa: FBT001
    force: bool,  # noqa: FBT001
    keep_enrolment: bool,  # noqa: FBT001
    forget_enrolment: bool,  # noqa: FBT001
    wait: bool,  # noqa: FBT001
    timeout: float | None,
) -> None:
    """Remove everything of CLUSTER (its name, or its file). Harmless when repeated."""
    if keep_enrolment and forget_enrolment:
        raise UsageError("`--keep-enrolment` and `--forget-enrolment` do not go together: use one")
    enrolment = "keep" if keep_enrolment else "forget" if forget_enrolment else "remove"
    client, name = connect.client(), cluster_name(cluster)
    how = {"force": str(force).lower(), "enrolment": enrolment}
    answer = client.ask(ShownPlan, "GET", f"/v1/clusters/{name}/removal", **how)
    shown = ""
    if answer.plan.steps and not yes:
        shown = answer.text
        echo(shown, err=True)
        confirm("Remove all of this?")
    body = {"purge": purge, "force": force, "enrolment": enrolment}
    with beginning():
        operation = client.ask(OperationDetails, "POST", f"/v1/clusters/{name}/down", body)
    if not wait:
        echo(operation.id)
        return
    finish(follow(client, operation.id, timeout=timeout, shown_plan=shown))
