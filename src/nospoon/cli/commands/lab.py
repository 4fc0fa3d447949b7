"""nospoon lab."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

import click

from nospoon.cli import connect
from nospoon.cli.echo import echo
from nospoon.cli.follow import beginning, finish, follow
from nospoon.cli.numbers import FiniteRange
from nospoon.cli.output import output_options, print_record, print_rows, row_of
from nospoon.model.rest.labs import LabDetails, LabSummary, MachineStatus, RefusedFlavor
from nospoon.model.rest.operations import OperationDetails

COLUMNS = (
    "lab", "host", "state", "dynamic", "limit", "registered", "loaned", "broken", "queued",
)  # fmt: skip
MACHINES = (
    "machine", "state", "set", "reserved", "broken", "failures", "arch", "cpus", "memory_mib",
    "inventory", "bmc", "console",
)  # fmt: skip
FINDINGS = ("lab", "what", "state", "why")


@click.group("lab")
def command() -> None:
    """Labs: machines for the recipes of a lab scheduler. A cluster file with `labs:` makes them."""


@command.command("list")
@output_options
def list_(format_: str, columns: tuple[str, ...]) -> None:
    """List the labs that you may use."""
    found = connect.client().ask(list[LabSummary], "GET", "/v1/labs")
    rows = [row_of(each) for each in found]
    if format_ == "table":
        rows = [{**each, "limit": each["limit"] or None} for each in rows]
    print_rows(rows, format_=format_, columns=columns, names=COLUMNS)


@command.command("show")
@click.argument("lab")
@output_options
def show(lab: str, format_: str, columns: tuple[str, ...]) -> None:
    """Show what LAB offers and what is left of it."""
    record = connect.client().ask(LabDetails, "GET", f"/v1/labs/{lab}/show")
    if format_ != "table":
        print_record(record, format_=format_, columns=columns)
        return
    limits = {name: most or None for name, most in row_of(record.limits).items()}
    row = {**row_of(record), "limits": limits}
    short = {key: _short(value) for key, value in row.items() if key != "machines"}
    print_record(short, format_=format_, columns=columns)


@command.command("machines")
@click.argument("lab")
@output_options
def machines(lab: str, format_: str, columns: tuple[str, ...]) -> None:
    """List the registered machines of LAB."""
    record = connect.client().ask(LabDetails, "GET", f"/v1/labs/{lab}/show")
    print_rows(record.machines, format_=format_, columns=columns, names=MACHINES)


@command.command("check")
@click.argument("lab")
@output_options
def check(lab: str, format_: str, columns: tuple[str, ...]) -> None:
    """List what LAB is without, and what keeps it from making or loaning machines, for which it
    exits with 1. For its operators a machine of each flavor is planned.
    """
    client = connect.client()
    record = client.ask(LabDetails, "GET", f"/v1/labs/{lab}/show")
    refused = client.ask(list[RefusedFlavor], "GET", f"/v1/labs/{lab}/refusals")
    rows = list(_findings(record, refused))
    print_rows(rows, format_=format_, columns=columns, names=FINDINGS)
    if any(row["state"] not in ("ok", "without") for row in rows):
        sys.exit(1)


@command.command("drain")
@click.argument("lab")
@click.option("--undo", is_flag=True, help="Start recipe sets there again.")
def drain(lab: str, *, undo: bool) -> None:
    """Start no recipe set in LAB any more; what is leased stays until it ends."""
    body = {"drained": not undo}
    row = connect.client().ask(LabSummary, "POST", f"/v1/labs/{lab}/drain", body)
    echo(f"lab {row.lab} is {row.state}", err=True)


@command.command("repair")
@click.argument("lab")
@click.argument("machine")
@click.option("--broken", default="", help="Mark it as broken, with this reason.")
def repair(lab: str, machine: str, broken: str) -> None:
    """Loan MACHINE of LAB again after it counted as broken."""
    row = _changed(lab, machine, {"broken": broken})
    echo(f"machine {machine} is {row.state}", err=True)


@command.command("reserve")
@click.argument("lab")
@click.argument("machine")
@click.option("--for", "owner", default="", help="User who gets it; default: you.")
@click.option("--return", "back", is_flag=True, help="Give it back.")
def reserve(lab: str, machine: str, owner: str, *, back: bool) -> None:
    """Keep MACHINE of LAB for a person: no recipe gets it."""
    import getpass  # noqa: PLC0415  (slow to import)

    wanted = "" if back else owner or getpass.getuser()
    row = _changed(lab, machine, {"reserved": wanted})
    echo(f"machine {machine} is {row.state}", err=True)


@command.command("inventory")
@click.argument("lab")
@click.argument("machine")
@click.option(
    "--timeout",
    type=FiniteRange(0, 3600, min_open=True),
    default=900.0,
    show_default=True,
    help="Seconds in which the probe reports.",
)
@output_options
def inventory(
    lab: str, machine: str, timeout: float, format_: str, columns: tuple[str, ...]
) -> None:
    """Boot the probe on MACHINE of LAB over its BMC. What it finds are the machine's attributes
    from then on, unless the file has others. The machine is off afterwards.
    """
    client = connect.client()
    with beginning():
        path = f"/v1/labs/{lab}/machines/{machine}/inventory"
        operation = client.ask(OperationDetails, "POST", path, {"timeout": timeout})
    final = follow(client, operation.id)
    if final.result.machine is not None:
        print_record(row_of(final.result.machine), format_=format_, columns=columns)
    finish(final)


def _changed(lab: str, machine: str, body: Mapping[str, object]) -> MachineStatus:
    path = f"/v1/labs/{lab}/machines/{machine}"
    return connect.client().ask(MachineStatus, "POST", path, body)


def _short(value: object) -> object:
    if isinstance(value, dict):
        named = ((key, "no limit" if each is None else each) for key, each in value.items())
        return ", ".join(f"{key} {each}" for key, each in named)
    if isinstance(value, list):
        return ", ".join(str(each.get("name", each)) if isinstance(each, dict) else str(each)
                         for each in value)  # fmt: skip
    return value


def _findings(record: LabDetails, refused: Sequence[RefusedFlavor]) -> Iterator[dict[str, object]]:
    lab = record.lab
    if record.state == "drained":
        yield _finding(lab, "lab", "drained", "`nospoon lab drain --undo` starts recipe sets again")
    if not record.flavors:
        yield _finding(lab, "dynamic", "without", "it makes no dynamic machines (`dynamic: false`)")
        if not record.registered:
            why = "none is registered: no recipe gets any. Add `machines:` to the lab"
            yield _finding(lab, "machines", "missing", why)
    if not record.distros:
        yield _finding(lab, "distros", "missing", "machines are started, and nothing installs them")
    if record.flavors and all(not each.disk_gib for each in record.flavors):
        yield _finding(lab, "flavors", "missing", "no flavor has a disk")
    for flavor in refused:
        yield _finding(lab, f"flavor {flavor.flavor}", "refused", flavor.why)
    for each in record.machines:
        if each.broken:
            yield _finding(lab, f"machine {each.machine}", "broken", each.broken)
        if each.beyond:
            yield _finding(lab, f"BMC of {each.machine}", "refused", each.beyond)
        if each.console:
            yield _finding(lab, f"console of {each.machine}", "without", each.console)
        if record.distros and not each.macs:
            why = "no MAC address of it is known: write `macs`, or take its inventory"
            yield _finding(lab, f"installer of {each.machine}", "without", why)
    yield _finding(lab, "limits", "ok", _short(row_of(record.free)))


def _finding(lab: str, what: str, state: str, why: object) -> dict[str, object]:
    return {"lab": lab, "what": what, "state": state, "why": why}
