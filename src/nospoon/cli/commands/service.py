"""nospoon service."""

from __future__ import annotations

import subprocess
import time

import click

from nospoon.api.client import Client
from nospoon.cli import connect
from nospoon.cli.commands import up
from nospoon.cli.commands.plan import PLANNING
from nospoon.cli.completion import clusters, files
from nospoon.cli.echo import echo, report_if_long
from nospoon.cli.files import cluster_name, read_request
from nospoon.cli.output import output_options, print_rows
from nospoon.cli.ssh import run_ssh, ssh_argv, user_name
from nospoon.errors import NospoonError, NotFound, UsageError
from nospoon.model.rest.nodes import NodeLogin
from nospoon.model.rest.plans import ShownPlan
from nospoon.model.rest.services import ServiceStatus
from nospoon.model.service import ROLE_UNIT

COLUMNS = (
    "service", "cluster", "node", "kind", "power", "health", "unit", "address", "after", "why",
)  # fmt: skip
AS_ROOT = 'if [ "$(id -u)" = 0 ]; then exec "$@"; else exec sudo -n "$@"; fi'
NO_LOGIN = 255
"""Status of ssh(1) where it got no session."""
BETWEEN = 1.0
"""Seconds between two looks."""
SETTLES = 3
"""Looks at a node whose service has no `health`: an init that cannot go on ends at once, which the
daemon sees within a second or so.
"""


@click.group("service")
def command() -> None:
    """Services of VMs and containers: list, logs, restart, upgrade, rollback."""


_CLUSTER = click.option(
    "--cluster", default="", help="Only of this cluster.", shell_complete=clusters
)
_NODE = click.option("--node", default="", help="Only on this node.")
_USER = click.option(
    "-l", "--user", default="", callback=lambda _, __, value: user_name(value),
    help="User there; default: as ssh_config(5) says, else yours here.",
)  # fmt: skip


@command.command("list")
@_CLUSTER
@output_options
def list_(cluster: str, format_: str, columns: tuple[str, ...]) -> None:
    """List your services, and whether they answer now."""
    rows = connect.client().ask(list[ServiceStatus], "GET", "/v1/services", cluster=cluster)
    print_rows(rows, format_=format_, columns=columns, names=COLUMNS, spare=("unit", "after"))


@command.command("logs")
@click.argument("service")
@_CLUSTER
@_NODE
@_USER
@click.option(
    "-n", "--lines", type=click.IntRange(0), default=None, help="The last ones; default: all."
)
@click.option("-f", "--follow", is_flag=True, help="Wait for more.")
def logs(
    service: str, cluster: str, node: str, user: str, lines: int | None, *, follow: bool
) -> None:
    """Print the journal of SERVICE and of its role with ssh (journalctl(1) there)."""
    client = connect.client()
    rows = _rows(client, service, cluster, node)
    if len(rows) > 1:
        nodes = ", ".join(row.node for row in rows)
        raise UsageError(f"service {service} is on several nodes: {nodes}", hint="Give --node.")
    units = (rows[0].unit, ROLE_UNIT.format(service))
    argv = ["journalctl", "--no-pager", "--quiet", *(f"--unit={each}" for each in units)]
    argv += [f"--lines={lines}"] if lines is not None else []
    argv += ["--follow"] if follow else []
    run_ssh(ssh_argv(_login(client, rows[0]), user, argv))


@command.command("restart")
@click.argument("service")
@_CLUSTER
@_NODE
@_USER
def restart(service: str, cluster: str, node: str, user: str) -> None:
    """Restart the unit of SERVICE with ssh: on one node after the other, each when it is healthy on
    the one before.

    A user other than root needs sudo(8) there, without a password; in a container it gives no
    rights, unless the file has `new_privileges`.
    """
    client = connect.client()
    for row in _rows(client, service, cluster, node):
        argv = ["sh", "-c", AS_ROOT, "sh", "systemctl", "restart", row.unit]
        done = subprocess.run(ssh_argv(_login(client, row), user, argv), check=False)
        if done.returncode:
            raise _not_restarted(row, done.returncode)
        until_healthy(client, row)
        echo(f"{row.cluster}/{row.node}: {row.unit} restarted", err=True)


@command.command("upgrade")
@click.argument("service")
@click.argument("file", shell_complete=files)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def upgrade(context: click.Context, service: str, file: str, *, yes: bool) -> None:
    """Bring the nodes of SERVICE to what FILE says, such as another image or role: one after the
    other, each when the service is healthy on the one before.

    Their former roots are kept, but those of containers in a cloud: `nospoon service rollback` is
    the way back. In a cloud a node is off while its root is stored as an image.
    """
    client = connect.client()
    _bring(context, client, _rows(client, service, cluster_name(file), ""), file, yes=yes)


@command.command("rollback")
@click.argument("service")
@click.argument("file", shell_complete=files)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def rollback(context: click.Context, service: str, file: str, *, yes: bool) -> None:
    """Bring the nodes of SERVICE back to the roots that they had of the former image, which FILE
    names again: one after the other, each when the service is healthy on the one before.

    As `upgrade`, but that nothing is done where a node would get a new root.
    """
    client = connect.client()
    rows = _rows(client, service, cluster_name(file), "")
    nodes = [row.node for row in rows]
    with report_if_long(PLANNING):
        body = {**read_request(client, file), "targets": nodes}
        plan = client.ask(ShownPlan, "POST", "/v1/plan", body).plan
    leaving = {step.node for step in plan.steps if step.kind == "machine"} - {*plan.returns}
    without = [node for node in nodes if node in leaving]
    if without or not plan.returns:
        why = f"none is of the image and roles that {file} names"
        if not without:
            why = f"{file} names the image and roles that they have now"
        raise NospoonError(
            f"{', '.join(without or nodes)} would not return to a former root: {why}",
            hint="Name the image and roles that were there before. "
            f"`nospoon plan {file}` shows what changes, and which roots are kept.",
        )
    _bring(context, client, rows, file, yes=yes)


def _bring(
    context: click.Context, client: Client, rows: list[ServiceStatus], file: str, *, yes: bool
) -> None:
    """One node after the other to what the file says."""
    for row in rows:
        echo(f"== {row.node}", err=True)
        context.invoke(up.command, file=file, yes=yes, targets=(row.node,))
        node = f"{row.cluster}/{row.node}"
        try:
            now = until_healthy(client, row, looks=SETTLES)
        except NotFound:
            echo(f"{node} runs service {row.service} no more", err=True)
            continue
        if now.power == "off":
            echo(
                f"{node} was off, and stays off: `nospoon node power {node} on` starts it", err=True
            )


def _rows(client: Client, service: str, cluster: str, node: str) -> list[ServiceStatus]:
    """Where a service is. Raises `NotFound`, and `UsageError` for one of several clusters."""
    found = [
        row
        for row in client.ask(list[ServiceStatus], "GET", "/v1/services", cluster=cluster)
        if row.service == service and node in ("", row.node)
    ]
    if not found:
        where = f" on node {node}" if node else ""
        raise NotFound(f"no service {service}{where}", hint="`nospoon service list` shows all.")
    names = sorted({row.cluster for row in found})
    if len(names) > 1:
        raise UsageError(
            f"there is a service {service} in each of {', '.join(names)}", hint="Give --cluster."
        )
    return found


def until_healthy(client: Client, row: ServiceStatus, *, looks: int = 1) -> ServiceStatus:
    """The service once it is healthy, or once its node was seen to run so many times where nothing
    else is looked at. Raises `NospoonError` after the time that its file gives it, and where its
    node ran before and does not now.
    """
    began = time.monotonic()
    while True:
        now = _rows(client, row.service, row.cluster, row.node)[0]
        if row.power == "on" and now.power == "off":
            raise NospoonError(
                f"service {row.service} is not healthy: node {row.node} was on, and is off now",
                hint=f"`nospoon node console --log {row.cluster}/{row.node}` shows what it said.",
            )
        if now.health != "unhealthy":
            looks -= 1
            if now.health or now.power != "on" or looks <= 0:
                return now
        elif time.monotonic() > began + now.timeout:
            raise NospoonError(f"service {row.service} is not healthy: {now.why}")
        time.sleep(BETWEEN)


def _not_restarted(row: ServiceStatus, status: int) -> NospoonError:
    hint = "Name a user who may with -l: root, or, in a VM, one with sudo without a password."
    if status == NO_LOGIN:
        hint = "ssh did not log in: its node needs an sshd that takes your key for the user (-l)."
    what = f"unit {row.unit} was not restarted on {row.node}"
    return NospoonError(f"{what}: status {status}", hint=hint)


def _login(client: Client, row: ServiceStatus) -> NodeLogin:
    return client.ask(NodeLogin, "GET", f"/v1/nodes/{row.cluster}/{row.node}/login")
