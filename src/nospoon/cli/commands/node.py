"""nospoon node."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO

import click

from nospoon.bmc.faults import Kind
from nospoon.cli import connect
from nospoon.cli.completion import clusters, files, nodes
from nospoon.cli.echo import echo
from nospoon.cli.files import upload
from nospoon.cli.numbers import FINITE, FiniteRange
from nospoon.cli.output import output_options, print_record, print_rows
from nospoon.cli.ssh import run_ssh, ssh_argv, user_name
from nospoon.model.boot import OTHER_DEVICES, BootDevice, BootMode, OverrideEnabled
from nospoon.model.machine import PowerCommand
from nospoon.model.rest.nodes import (
    BootSetting,
    InjectedFault,
    MediaSetting,
    NodeDetails,
    NodeLogin,
    NodeSummary,
    PowerResult,
)

COLUMNS = ("node", "cluster", "host", "power", "fault", "boot", "uuid")


class _BootTarget(click.Choice[str]):
    """Boot devices, also by the words of ipmitool and Redfish."""

    def __init__(self) -> None:
        super().__init__([*map(str, BootDevice), "none"])

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        word = value.lower()
        return super().convert(OTHER_DEVICES.get(word, word), param, ctx)


@click.group("node")
def command() -> None:
    """Nodes: list, show, power, boot, media, console, ssh, exec, logs, fault.

    NODE is a name, CLUSTER/NAME or a UUID.
    """


@command.command("list")
@click.option("--cluster", default="", help="Only of this cluster.", shell_complete=clusters)
@output_options
def list_(cluster: str, format_: str, columns: tuple[str, ...]) -> None:
    """List your nodes."""
    rows = connect.client().ask(list[NodeSummary], "GET", "/v1/nodes", cluster=cluster)
    print_rows(rows, format_=format_, columns=columns, names=COLUMNS, spare=("uuid",))


@command.command("show")
@click.argument("node", shell_complete=nodes)
@output_options
def show(node: str, format_: str, columns: tuple[str, ...]) -> None:
    """Show one node: shape, power, BMC, boot."""
    record = connect.client().ask(NodeDetails, "GET", f"/v1/nodes/{node}/show")
    print_record(record, format_=format_, columns=columns)


@command.command("power")
@click.argument("node", shell_complete=nodes)
@click.argument("what", type=click.Choice([*map(str, PowerCommand), "status"]))
def power(node: str, what: str) -> None:
    """Give NODE's BMC a chassis command, or show its power."""
    client = connect.client()
    if what == "status":
        known = client.ask(NodeDetails, "GET", f"/v1/nodes/{node}/show")
        echo(known.power)
        if known.power_commands:
            echo(
                f"{known.cluster}/{known.node}: under way: {', then '.join(known.power_commands)}",
                err=True,
            )
        return
    answer = client.ask(PowerResult, "POST", f"/v1/nodes/{node}/power", {"command": what})
    result = answer.result
    if result == "accepted":
        result += f"; `nospoon node power {node} status` shows when it is done"
    echo(f"{answer.node}: {result}", err=True)


@command.command("boot")
@click.argument("node", shell_complete=nodes)
@click.argument("target", type=_BootTarget())
@click.option("--persistent", is_flag=True, help="Until changed, not only for the next boot.")
@click.option(
    "--mode", type=click.Choice([str(mode) for mode in BootMode]), help="Firmware interface."
)
def boot(node: str, target: str, persistent: bool, mode: str | None) -> None:  # noqa: FBT001
    """Set the boot override of NODE's BMC: network, http, disk, cdrom, setup or none.

    The words of ipmitool and Redfish are taken, too, such as pxe, Hdd, Cd and bios.
    """
    enabled = OverrideEnabled.CONTINUOUS if persistent else OverrideEnabled.ONCE
    body = {"target": None if target == "none" else target, "enabled": enabled, "mode": mode}
    answer = connect.client().ask(BootSetting, "POST", f"/v1/nodes/{node}/boot", body)
    echo(f"{answer.node}: {answer.boot}", err=True)


@command.command("fault")
@click.argument("node", shell_complete=nodes)
@click.argument("kind", type=click.Choice([*map(str, Kind)]), required=False)
@click.option(
    "--for",
    "for_",
    type=FiniteRange(0, 31622400, min_open=True),
    metavar="SECONDS",
    help="Duration of the fault.",
)
@click.option("--probability", type=FiniteRange(0, 1, min_open=True), default=1.0)
@click.option("--count", type=click.IntRange(1), help="Maximum number of times.")
@click.option("--seconds", type=FiniteRange(0, 3600), default=5.0, help="How late or slow.")
@click.option("--sensor", default="", help="Of kind sensor: its name, as `ipmitool sdr` has it.")
@click.option("--value", type=FINITE, help="What that sensor reads, in its unit.")
@click.option("--clear", is_flag=True, help="End all faults of NODE.")
@output_options
def fault(
    node: str,
    kind: str | None,
    *,
    for_: float | None,
    probability: float,
    count: int | None,
    seconds: float,
    sensor: str,
    value: float | None,
    clear: bool,
    format_: str,
    columns: tuple[str, ...],
) -> None:
    """Inject a fault of KIND into NODE's BMC; without KIND, list its faults."""
    if clear and kind is not None:
        raise click.UsageError("--clear ends all faults of a node: leave the kind out.")
    client, path = connect.client(), f"/v1/nodes/{node}/faults"
    rows = client.ask(list[InjectedFault], "DELETE" if clear else "GET", path)
    if kind is not None:
        limits = {"for_seconds": for_, "probability": probability, "count": count}
        body = {"kind": kind, "seconds": seconds, "sensor": sensor, "value": value, **limits}
        rows = client.ask(list[InjectedFault], "POST", path, body)
    print_rows(rows, format_=format_, columns=columns, names=("kind", "fault", "about"))


@command.group("media")
def media() -> None:
    """Virtual media: ISO images in NODE's CD drive."""


@media.command("insert")
@click.argument("node", shell_complete=nodes)
@click.argument("image", shell_complete=files)
@click.option("--username", default="", help="For a URL that wants basic authentication.")
@click.option("--password-file", type=click.File(), help="File with its password.")
@click.option("--insecure", is_flag=True, help="Accept any certificate of its server.")
def insert(
    node: str,
    image: str,
    username: str,
    password_file: IO[str] | None,
    insecure: bool,  # noqa: FBT001
) -> None:
    """Put IMAGE, a file or an http(s) URL, into NODE's CD drive."""
    client = connect.client()
    if image.startswith(("http://", "https://")):
        password = password_file.read().strip() if password_file is not None else ""
        body = {"url": image, "username": username, "password": password, "verify": not insecure}
    else:
        body = {"sha256": upload(client, Path(image)), "name": Path(image).name}
    answer = client.ask(MediaSetting, "POST", f"/v1/nodes/{node}/media", body)
    echo(f"{answer.node}: inserted {image}", err=True)


@media.command("eject")
@click.argument("node", shell_complete=nodes)
def eject(node: str) -> None:
    """Empty NODE's CD drive."""
    answer = connect.client().ask(MediaSetting, "DELETE", f"/v1/nodes/{node}/media")
    echo(f"{answer.node}: ejected", err=True)


@command.command("console")
@click.argument("node", shell_complete=nodes)
@click.option("--log", is_flag=True, help="Print the record instead of attaching.")
@click.option("--follow", is_flag=True, help="With --log: go on as it grows.")
def console(node: str, log: bool, follow: bool) -> None:  # noqa: FBT001
    """Attach to NODE's serial console; Ctrl-] leaves it. With --log, print its record."""
    if follow and not log:
        raise click.UsageError("--follow goes with --log; without it you are attached anyway.")
    client = connect.client()
    if log:
        _print_log(client.stream(f"/v1/nodes/{node}/log", follow=str(follow).lower()))
        return
    from nospoon.cli.console import attach  # noqa: PLC0415  (imports websockets)

    attach(client, node)


_USER = click.option(
    "-l", "--user", default="", callback=lambda _, __, value: user_name(value),
    help="User there; default: as ssh_config(5) says, else yours here.",
)  # fmt: skip


@command.command("ssh")
@click.argument("node", shell_complete=nodes)
@_USER
def ssh(node: str, user: str) -> None:
    """Log in to NODE with ssh and your keys, at the address that it is given."""
    run_ssh(ssh_argv(_login(node), user))


@command.command("exec")
@click.argument("node", shell_complete=nodes)
@click.argument("argv", nargs=-1, required=True, metavar="-- COMMAND…")
@_USER
def exec_(node: str, argv: tuple[str, ...], user: str) -> None:
    """Run COMMAND on NODE with ssh; ends with its exit status, or 255 where ssh fails."""
    run_ssh(ssh_argv(_login(node), user, argv))


@command.command("logs")
@click.argument("node", shell_complete=nodes)
@_USER
@click.option("-u", "--unit", default="", help="Only of this systemd unit.")
@click.option(
    "-n", "--lines", type=click.IntRange(0), default=None, help="The last ones; default: all."
)
@click.option("-f", "--follow", is_flag=True, help="Wait for more.")
def logs(node: str, user: str, unit: str, lines: int | None, *, follow: bool) -> None:
    """Print the journal of NODE with ssh (journalctl(1) there)."""
    argv = ["journalctl", "--no-pager", "--quiet"]
    argv += [f"--unit={unit}"] if unit else []
    argv += [f"--lines={lines}"] if lines is not None else []
    argv += ["--follow"] if follow else []
    run_ssh(ssh_argv(_login(node), user, argv))


def _login(node: str) -> NodeLogin:
    return connect.client().ask(NodeLogin, "GET", f"/v1/nodes/{node}/login")


def _print_log(chunks: object) -> None:
    assert hasattr(chunks, "__iter__")
    try:
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
    except KeyboardInterrupt:
        return
