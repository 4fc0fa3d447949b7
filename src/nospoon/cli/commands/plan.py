"""nospoon plan."""

from __future__ import annotations

import json
from pathlib import Path

import click
import msgspec

from nospoon import __version__
from nospoon.cli import connect
from nospoon.cli.completion import files
from nospoon.cli.echo import echo, report_if_long
from nospoon.cli.files import cluster_name, read_request
from nospoon.cli.output import STANDARD_OUTPUT, report, writable, write_private
from nospoon.errors import NospoonError, UsageError
from nospoon.model.rest.plans import ShownPlan

FAILED, CHANGES = 1, 2
"""Exit codes with --detailed-exitcode, as Terraform has them; 0: no changes."""
AGREED = ("rebalance", "targets", "cluster_id", "fingerprint")
"""What a saved plan has of its request, beside the path of its file."""
PLANNING = "Planning: the hosts, and Ironic where the file names one, are asked for their state."


@click.command("plan")
@click.argument("file", shell_complete=files)
@click.option("-f", "--format", "format_", type=click.Choice(["text", "json"]), default="text")
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False),
    help="Save it for `nospoon apply`; -: on standard output.",
)
@click.option("--down", "removal", is_flag=True, help="Show what `down` would remove.")
@click.option("--rebalance", is_flag=True, help="Place all nodes again, existing ones too.")
@click.option("-t", "--target", "targets", multiple=True, help="Only this node; again for more.")
@click.option(
    "--detailed-exitcode",
    is_flag=True,
    help="Exit with 0 for no changes, 1 for an error, 2 for changes.",
)
def command(
    file: str,
    format_: str,
    out: str | None,
    removal: bool,  # noqa: FBT001  (click passes options by name)
    rebalance: bool,  # noqa: FBT001
    targets: tuple[str, ...],
    detailed_exitcode: bool,  # noqa: FBT001
) -> None:
    """Show what `up FILE` would do, and why. Changes nothing."""
    if removal and out is not None:
        raise UsageError(
            "--down and --out cannot be combined: only plans of `up` are saved",
            hint="`nospoon down` shows the plan and asks before it removes anything.",
        )
    try:
        changes = _show(file, format_, out, removal=removal, rebalance=rebalance, targets=targets)
    except NospoonError as error:
        if not detailed_exitcode:
            raise
        report(error)
        raise click.exceptions.Exit(FAILED) from error
    if detailed_exitcode and changes:
        raise click.exceptions.Exit(CHANGES)


def _show(
    file: str,
    format_: str,
    out: str | None,
    *,
    removal: bool,
    rebalance: bool,
    targets: tuple[str, ...],
) -> bool:
    """Whether there are changes. A saved plan names the file, which may hold passwords, and has
    nothing of it.
    """
    if out is not None and file == "-":
        raise UsageError("a plan of standard input cannot be saved", hint="Write it to a file.")
    target = writable(out) if out is not None else None
    client = connect.client()
    if removal:
        answer = client.ask(ShownPlan, "GET", f"/v1/clusters/{cluster_name(file)}/removal")
        body = None
    else:
        body = {**read_request(client, file), "rebalance": rebalance, "targets": targets}
        with report_if_long(PLANNING):
            answer = client.ask(ShownPlan, "POST", "/v1/plan", body)
    plan: dict[str, object] = msgspec.to_builtins(answer.plan)
    shown = json.dumps(plan, indent=2) if format_ == "json" else answer.text
    echo(shown, err=target == STANDARD_OUTPUT)
    if target is not None and body is not None:
        saved = {
            "path": str(Path(file).resolve()),
            "rebalance": rebalance,
            "targets": targets,
            "cluster_id": answer.plan.cluster_id,
            "fingerprint": answer.plan.fingerprint,
        }
        content = {
            "nospoon": __version__,
            "request": saved,
            "plan": plan,
            "text": answer.text,
        }
        write_private(target, json.dumps(content, indent=2).encode())
    return bool(answer.plan.steps or answer.plan.remembered)
