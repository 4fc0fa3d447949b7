"""nospoon plan."""

from __future__ import annotations

import json

import click

from nospoon.cli import connect
from nospoon.cli.files import cluster_name, read_request
from nospoon.cli.output import writable

CHANGES = 2


@click.command("plan")
@click.argument("file")
@click.option("-f", "--format", "format_", type=click.Choice(["text", "json"]), default="text")
@click.option("-o", "--out", type=click.Path(dir_okay=False), help="Save it for `nospoon apply`.")
@click.option("--down", "removal", is_flag=True, help="Show what `down` would remove.")
@click.option("--rebalance", is_flag=True, help="Place all nodes anew, also those that are made.")
@click.option("-t", "--target", "targets", multiple=True, help="Only this node; again for more.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 2 when there are changes.")
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
    target = writable(out) if out is not None else None
    client = connect.client()
    if removal:
        answer = client.get(f"/v1/clusters/{cluster_name(file)}/removal")
        body = None
    else:
        body = {**read_request(client, file), "rebalance": rebalance, "targets": targets}
        answer = client.post("/v1/plan", body)
    plan = answer["plan"]
    click.echo(json.dumps(plan, indent=2) if format_ == "json" else answer["text"])
    if target is not None and body is not None:
        saved = {
            **body,
            "cluster_id": plan["cluster_id"],
            "fingerprint": plan["fingerprint"],
        }
        target.write_text(json.dumps({"request": saved, "plan": plan}, indent=2))
    if detailed_exitcode and (plan["steps"] or plan.get("remembered")):
        raise click.exceptions.Exit(CHANGES)
