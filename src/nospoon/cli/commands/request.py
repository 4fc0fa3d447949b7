"""nospoon request."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nospoon.cli import connect
from nospoon.cli.echo import echo
from nospoon.cli.interrupted import INTERRUPTED
from nospoon.cli.output import check_columns, output_options, print_record, print_rows, row_of
from nospoon.errors import HostUnreachable, UsageError
from nospoon.model.host_facts import SizeOffered
from nospoon.model.lab import Disks
from nospoon.model.machine import PowerCommand
from nospoon.model.rest.labs import LeasePower, SetDetails, SetEnd, SetEvent, SetSummary
from nospoon.runtime.reasons import reason

if TYPE_CHECKING:
    from nospoon.api.client import Client
    from nospoon.lab.filter import Verdict
    from nospoon.lab.recipe import Recipe

MIB, GIB = 1 << 20, 1 << 30
COLUMNS = ("recipe", "line", "answer", "chosen", "flavors", "reasons", "notes", "disk_gib")
OF_LABS = (
    "recipe", "line", "lab", "answer", "chosen", "flavors", "machines", "distro", "starts",
    "reasons", "notes", "disk_gib",
)  # fmt: skip
UNSHOWN = 3
"""Columns of both, the last ones, that a table has only where they are named."""
SHOWN = ("set", "owner", "state", "lab", "recipes", "position", "result", "reason")
SETS = (
    "request", *SHOWN, "priority", "submitted", "expires", "whiteboard",
)  # fmt: skip
LEASES = (
    "lease", "recipe", "stage", "flavor", "machine", "distro", "since", "expires", "console",
    "panic", "why",
)  # fmt: skip
NESTED = ("leases", "history")
MOST_BYTES = 10 << 20
FIELDS = {"ID": str, "Name": str, "VCPUs": int, "RAM": int, "Disk": int}
"""Of `openstack flavor list -f json`: RAM in MiB, Disk in GiB."""
CALLED = {str: "a text", int: "a whole number"}
WITHOUT_A_MACHINE = 1


@click.group("request")
def command() -> None:
    """Requests of lab schedulers: check, submit, list, show, watch, extend, cancel, release."""


@command.command("check")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--flavors",
    "flavor_file",
    default=None,
    type=click.Path(exists=True, dir_okay=False),
    help="Without a daemon: what a lab offers, the output of `openstack flavor list -f json`.",
)
@click.option(
    "--lab",
    default="",
    help="Lab that is asked; default: all that you may use. With --flavors, the name that "
    "`labcontroller` compares.",
)
@click.option(
    "--disks",
    type=click.Choice([str(each) for each in Disks]),
    default="preclude",
    show_default=True,
    help="What recipes that ask for disks get: no dynamic machine, the flavor's disk, or one of "
    "the size that is asked for.",
)
@click.option(
    "--minimum-disk",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="GiB of disk that a flavor must have: what has less installs nothing.",
)
@output_options
def check(
    file: str,
    flavor_file: str | None,
    lab: str,
    disks: str,
    minimum_disk: int,
    format_: str,
    columns: tuple[str, ...],
) -> None:
    """Say which machine could be made for each recipe of FILE, and why none.

    FILE is Beaker's XML (a job, recipe set, recipe or hostRequires) or the same in JSON; - is
    standard input. Nothing is made. Exits with 1 where a recipe gets no machine. --disks and
    --minimum-disk are for --flavors; a lab has its own.
    """
    if flavor_file is None:
        _check_labs(file, lab, format_, columns)
        return
    from nospoon.clusterfile.requests import read_request  # noqa: PLC0415  (late)
    from nospoon.lab.filter import Offer  # noqa: PLC0415
    from nospoon.lab.recipe import verdict  # noqa: PLC0415

    check_columns(columns, COLUMNS)
    offer = Offer(lab, tuple(_flavors(Path(flavor_file))), Disks(disks), minimum_disk * GIB)
    name, data = _read(file, most=MOST_BYTES + 1)
    found = [(each, verdict(each, offer)) for each in read_request(data, file=name)]
    rows = [_row(recipe, each) for recipe, each in found]
    if format_ == "table":
        shown = columns or COLUMNS[:-UNSHOWN]
        print_rows([_in_a_line(row) for row in rows], format_=format_, columns=shown, names=COLUMNS)
        if not columns:
            for line in _why(name, found):
                echo(line)
    else:
        print_rows(rows, format_=format_, columns=columns, names=COLUMNS)
    if any(each.chosen is None for _, each in found):
        sys.exit(WITHOUT_A_MACHINE)


def _check_labs(file: str, lab: str, format_: str, columns: tuple[str, ...]) -> None:
    check_columns(columns, OF_LABS)
    name, data = _read(file, most=MOST_BYTES + 1)
    body = {"text": _decoded(data, name), "file": name, "lab": lab}
    rows = connect.client().post("/v1/requests/check", body)
    shown = columns or (OF_LABS[:-UNSHOWN] if format_ == "table" else ())
    if format_ == "table":
        flat = [
            {**row, "flavors": ", ".join(row["flavors"]), "machines": ", ".join(row["machines"])}
            for row in rows
        ]
        print_rows(flat, format_=format_, columns=shown, names=OF_LABS)
        for row in rows if not columns else ():
            for why in row["reasons"]:
                place = f"{name}:{why['line']}:{why['column']}"
                echo(f"{place}: {why['path']}: lab {row['lab']}: {why['why']}")
            for note in row["notes"]:
                echo(f"{name}:{note['line']}:{note['column']}: {note['path']}: {note['why']}")
    else:
        print_rows(rows, format_=format_, columns=columns, names=OF_LABS)
    recipes = {row["recipe"] for row in rows}
    if recipes != {row["recipe"] for row in rows if row["starts"]}:
        sys.exit(WITHOUT_A_MACHINE)


@command.command("schema")
def schema() -> None:
    """Print the RELAX NG of requests in XML, for editors and xmllint."""
    from nospoon.clusterfile.request_schema import relax_ng  # noqa: PLC0415  (seldom needed)

    echo(relax_ng())


@command.command("submit")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--lab", default="", help="Lab that serves it; default: one that fits.")
@click.option(
    "--owner", default="", help="Who gets the machines, where you operate the lab; default: you."
)
@click.option("--key", default="", help="A second request under the same key is the first.")
@click.option("--flavor", default="", help="Of all its machines; default: one that fits.")
@click.option("--wait", is_flag=True, help="Follow its recipe sets until they have ended.")
@output_options
def submit(
    file: str,
    lab: str,
    owner: str,
    key: str,
    flavor: str,
    format_: str,
    columns: tuple[str, ...],
    *,
    wait: bool,
) -> None:
    """Submit FILE: its recipe sets get machines as soon as there are all of them.

    Exits with 1 where, with --wait, a set does not end as completed.
    """
    check_columns(columns, SETS)
    name, data = _read(file, most=MOST_BYTES + 1)
    client = connect.client()
    body = {
        "text": _decoded(data, name), "file": name, "lab": lab, "owner": owner, "key": key,
        "flavor": flavor,
    }  # fmt: skip
    rows = client.ask(list[SetDetails], "POST", "/v1/requests", body)
    print_rows(rows, format_=format_, columns=columns or SHOWN, names=SETS)
    if wait and [row.set for row in rows if _follow(client, row.set) != "completed"]:
        sys.exit(1)


@command.command("list")
@click.option("--all", "everyone", is_flag=True, help="Of all owners, in labs that you operate.")
@output_options
def list_(format_: str, columns: tuple[str, ...], *, everyone: bool) -> None:
    """List recipe sets, oldest first."""
    client, query = connect.client(), {"everyone": str(everyone).lower()}
    rows = client.ask(list[SetSummary], "GET", "/v1/requests", **query)
    print_rows(rows, format_=format_, columns=columns or SHOWN, names=SETS)


@command.command("show")
@click.argument("set_id", metavar="SET")
@output_options
def show(set_id: str, format_: str, columns: tuple[str, ...]) -> None:
    """Show one recipe set, with its leases and what happened to it."""
    record = connect.client().ask(SetDetails, "GET", f"/v1/requests/{set_id}")
    if format_ != "table" or columns:
        print_record(record, format_=format_, columns=columns)
        return
    plain = {key: value for key, value in row_of(record).items() if key not in NESTED}
    print_record(plain, format_=format_)
    print_rows(record.leases, format_=format_, columns=LEASES, names=LEASES)
    for each in record.history:
        echo(_event_line(each))


@command.command("watch")
@click.argument("set_id", metavar="SET")
def watch(set_id: str) -> None:
    """Follow a recipe set until it has ended; exits with 1 unless it was completed."""
    if _follow(connect.client(), set_id) != "completed":
        sys.exit(1)


@command.command("extend")
@click.argument("lease", metavar="SET|LEASE")
@click.argument("time")
@click.option("--add", is_flag=True, help="Add TIME to what is left.")
def extend(lease: str, time: str, *, add: bool) -> None:
    """Let a lease, or all of a set, end TIME from now (`30min`, `2h`, `0s`: now)."""
    from nospoon.clusterfile.fields import parse_duration  # noqa: PLC0415  (imports pydantic)

    try:
        seconds = parse_duration(time)
    except ValueError as error:
        message = f"expected a time such as 30min, 2h or 0s, got {time!r}"
        raise click.BadParameter(message, param_hint="TIME") from error
    _change(lease, "extend", {"seconds": seconds, "add": add})


@command.command("release")
@click.argument("lease", metavar="SET|LEASE")
def release(lease: str) -> None:
    """Give a lease back, or all of a set; a set is removed with its last lease."""
    _change(lease, "release", {})


@command.command("cancel")
@click.argument("set_id", metavar="SET")
def cancel(set_id: str) -> None:
    """End a recipe set at once, whatever it is doing; its machines are removed."""
    _change(set_id, "cancel", {})


@command.command("power")
@click.argument("lease")
@click.argument(
    "command_", metavar="COMMAND", type=click.Choice([str(each) for each in PowerCommand])
)
def power(lease: str, command_: str) -> None:
    """Switch a lease's machine: on, off, soft, cycle, reset, diag."""
    body = {"command": command_}
    row = connect.client().ask(LeasePower, "POST", f"/v1/leases/{lease}/power", body)
    echo(f"{row.lease}: {row.result}", err=True)


@command.command("console")
@click.argument("lease")
@click.option("-f", "--follow", is_flag=True, help="Go on as it grows.")
def console(lease: str, *, follow: bool) -> None:
    """Print the console log of a lease's machine, also after it has ended."""
    path = f"/v1/leases/{lease}/console"
    try:
        for data in connect.client().stream(path, follow=str(follow).lower()):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    except KeyboardInterrupt:  # the way to stop following, as in `node console --log`
        return


def _change(lease: str, what: str, body: dict[str, object]) -> None:
    kind = "leases" if lease.count(".") > 1 else "requests"
    row = connect.client().ask(SetDetails, "POST", f"/v1/{kind}/{lease}/{what}", body)
    echo(f"recipe set {row.set} is {row.state}", err=True)


def _follow(client: Client, set_id: str) -> str:
    """Shows its events until it has ended. Returns its result."""
    try:
        for event in client.set_events(set_id):
            if isinstance(event, SetEnd):
                echo(f"{set_id}: {event.state}: {event.result} {event.message}".rstrip())
                return event.result
            echo(f"{set_id}: {_event_line(event)}")
    except KeyboardInterrupt:
        echo(
            f"\nThe request continues. `nospoon request watch {set_id}` follows it, "
            f"`nospoon request cancel {set_id}` ends it.",
            err=True,
        )
        raise click.exceptions.Exit(INTERRUPTED) from None
    raise HostUnreachable("the daemon ended", hint=f"Then: nospoon request watch {set_id}")


def _event_line(event: SetEvent) -> str:
    recipe = "" if event.recipe is None else f" recipe {event.recipe}"
    return f"{event.at}{recipe} {event.event} {event.message}".rstrip()


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{name}:{line}: not UTF-8", hint="Save it as UTF-8.") from error


def _row(recipe: Recipe, found: Verdict) -> dict[str, object]:
    from nospoon.lab.notes import notes  # noqa: PLC0415  (late)

    return {
        "recipe": recipe.at.path,
        "line": recipe.at.line,
        "answer": str(found.answer),
        "chosen": found.chosen.name if found.chosen is not None else "",
        "flavors": [each.name for each in found.flavors],
        "reasons": [f"{each.at.path}: {each.why}" for each in found.reasons],
        "notes": [f"{each.at.path}: {each.why}" for each in notes(recipe.at)],
        "disk_gib": found.chosen.disk // GIB if found.chosen is not None else 0,
    }


def _in_a_line(row: Mapping[str, Any]) -> dict[str, Any]:
    lists = {key: "; ".join(row[key]) for key in ("reasons", "notes")}
    return {**row, "flavors": ", ".join(row["flavors"]), **lists}


def _why(file: str, found: Sequence[tuple[Recipe, Verdict]]) -> Iterator[str]:
    from nospoon.lab.notes import notes  # noqa: PLC0415  (late)

    for recipe, each in found:
        for why in (*each.reasons, *notes(recipe.at)):
            yield f"{file}:{why.at.line}:{why.at.column}: {why.at.path}: {why.why}"


def _read(file: str, *, most: int) -> tuple[str, bytes]:
    if file == "-":
        return "<stdin>", sys.stdin.buffer.read(most)
    try:
        with Path(file).open("rb") as content:
            return file, content.read(most)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {reason(error)}") from error


def _flavors(file: Path) -> Iterator[SizeOffered]:
    how = "Write it with `openstack flavor list -f json`."
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read flavors of {file}: {reason(error)}", hint=how) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}: not JSON", hint=how) from error
    if not isinstance(rows, list):
        raise UsageError(f"{file}: expected a list of flavors", hint=how)
    for number, row in enumerate(rows):
        for field, kind in FIELDS.items():
            value = row.get(field) if isinstance(row, dict) else None
            if not isinstance(value, kind) or isinstance(value, bool):
                message = f"{file}: flavor {number}: expected {field}, {CALLED[kind]}"
                raise UsageError(f"{message}, got {json.dumps(value)[:40]}", hint=how)
        yield SizeOffered(row["Name"], row["ID"], row["VCPUs"], row["RAM"] * MIB, row["Disk"] * GIB)
