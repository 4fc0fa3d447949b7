"""nospoon apply."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import click

from nospoon import __version__
from nospoon.cli import connect
from nospoon.cli.commands.bmc import COLUMNS
from nospoon.cli.commands.plan import AGREED, PLANNING
from nospoon.cli.commands.up import begin, confirm, show_bmcs
from nospoon.cli.echo import echo, report_if_long
from nospoon.cli.files import read_request
from nospoon.cli.follow import finish, follow
from nospoon.cli.output import check_columns, output_options
from nospoon.errors import UsageError
from nospoon.model.rest.plans import ShownPlan
from nospoon.model.visible import visible

_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


@click.command("apply")
@click.argument("plan", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Undeploy nodes that left its file, too.")
@output_options
def command(
    plan: str,
    yes: bool,  # noqa: FBT001  (click passes options by name)
    force: bool,  # noqa: FBT001
    format_: str,
    columns: tuple[str, ...],
) -> None:
    """Carry out a plan saved with `nospoon plan -o PLAN`; refused when it is stale.

    PLAN may be `-`, with --yes: standard input.
    """
    check_columns(columns, COLUMNS)
    path, agreed = _read(plan)
    client = connect.client()
    body = {**read_request(client, path), **agreed, "force": force}
    shown = ""
    if not yes:
        with report_if_long(PLANNING):
            answer = client.ask(ShownPlan, "POST", "/v1/plan", body)
        shown = answer.text
        echo(shown, err=True)
        confirm("Carry out this plan?")
        body["fingerprint"] = answer.plan.fingerprint
    began = begin(client, body)
    if yes or began.operation is None:
        shown = began.text
        echo(shown, err=True)
    if began.operation is not None:
        finish(follow(client, began.operation.id, shown_plan=shown))
    show_bmcs(client, began.plan.cluster, format_, columns)


def _read(plan: str) -> tuple[str, dict[str, object]]:
    """The path of its file, and what was agreed on. Its text and steps are for people and tools:
    they could say anything, so that the daemon's own plan is shown before it is confirmed.
    """
    try:
        text = sys.stdin.read() if plan == "-" else Path(plan).read_text()
        saved = json.loads(text)
        request, version = saved["request"], saved.get("nospoon", "of an earlier version")
        if version != __version__:
            raise _other_version(plan, version)
        agreed = {name: request[name] for name in AGREED}
        path = request["path"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _no_plan(plan) from error
    if not (isinstance(path, str) and _is_whole(agreed)):
        raise _no_plan(plan)
    return path, agreed


def _is_whole(agreed: dict[str, object]) -> bool:
    """Whether it is what `plan` writes. Without a fingerprint, whatever the file says now would be
    carried out.
    """
    targets, id_, fingerprint = (agreed[n] for n in ("targets", "cluster_id", "fingerprint"))
    return (
        isinstance(agreed["rebalance"], bool)
        and isinstance(targets, list)
        and all(isinstance(each, str) for each in targets)
        and isinstance(id_, str)
        and isinstance(fingerprint, str)
        and bool(_FINGERPRINT.fullmatch(fingerprint))
    )


def _other_version(plan: str, version: object) -> UsageError:
    """Other versions write other plans, and fingerprints that mean something else."""
    return UsageError(
        f"{plan} was saved by nospoon {visible(str(version))[:40]}, and this is {__version__}",
        hint="Save a new one with `nospoon plan FILE -o PLAN`.",
    )


def _no_plan(plan: str) -> UsageError:
    return UsageError(
        f"{plan} is not a saved plan", hint="Save one with `nospoon plan FILE -o PLAN`."
    )
