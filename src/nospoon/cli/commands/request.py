"""nospoon request."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nospoon.cli.echo import echo
from nospoon.cli.output import check_columns, output_options, print_rows
from nospoon.errors import UsageError
from nospoon.model.host_facts import SizeOffered
from nospoon.runtime.reasons import reason

if TYPE_CHECKING:
    from nospoon.lab.filter import Verdict
    from nospoon.lab.recipe import Recipe

MIB, GIB = 1 << 20, 1 << 30
COLUMNS = ("recipe", "line", "answer", "chosen", "flavors", "reasons")
FIELDS = {"ID": str, "Name": str, "VCPUs": int, "RAM": int, "Disk": int}
"""Of `openstack flavor list -f json`: RAM in MiB, Disk in GiB."""
CALLED = {str: "a text", int: "a whole number"}
WITHOUT_A_MACHINE = 1


@click.group("request")
def command() -> None:
    """Requests of lab schedulers for dynamic machines: check one."""


@command.command("check")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--flavors",
    "flavor_file",
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    help="What the lab offers: the output of `openstack flavor list -f json`.",
)
@click.option("--lab", default="", help="Name of the lab, as `labcontroller` compares it.")
@click.option(
    "--disks",
    type=click.Choice(["preclude", "flavor"]),
    default="preclude",
    show_default=True,
    help="What recipes that ask for disks get: no dynamic machine, or the flavor's disk.",
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
    flavor_file: str,
    lab: str,
    disks: str,
    minimum_disk: int,
    format_: str,
    columns: tuple[str, ...],
) -> None:
    """Say which machine could be made for each recipe of FILE, and why none.

    FILE is Beaker's XML: a job, recipe set, recipe or hostRequires; - is standard input. Nothing is
    made. Exits with 1 where a recipe gets no dynamic machine.
    """
    from nospoon.clusterfile.requests import MOST_BYTES, read_request  # noqa: PLC0415  (late)
    from nospoon.lab.filter import Disks, Offer  # noqa: PLC0415
    from nospoon.lab.recipe import verdict  # noqa: PLC0415

    check_columns(columns, COLUMNS)
    offer = Offer(lab, tuple(_flavors(Path(flavor_file))), Disks(disks), minimum_disk * GIB)
    name, data = _read(file, most=MOST_BYTES + 1)
    found = [(each, verdict(each, offer)) for each in read_request(data, file=name)]
    rows = [_row(recipe, each) for recipe, each in found]
    if format_ == "table":
        shown = columns or COLUMNS[:-1]
        print_rows([_in_a_line(row) for row in rows], format_=format_, columns=shown, names=COLUMNS)
        if not columns:
            for line in _why(name, [each for _, each in found]):
                echo(line)
    else:
        print_rows(rows, format_=format_, columns=columns, names=COLUMNS)
    if any(each.chosen is None for _, each in found):
        sys.exit(WITHOUT_A_MACHINE)


def _row(recipe: Recipe, found: Verdict) -> dict[str, Any]:
    return {
        "recipe": recipe.at.path,
        "line": recipe.at.line,
        "answer": str(found.answer),
        "chosen": found.chosen.name if found.chosen is not None else "",
        "flavors": [each.name for each in found.flavors],
        "reasons": [f"{each.at.path}: {each.why}" for each in found.reasons],
    }


def _in_a_line(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "flavors": ", ".join(row["flavors"]), "reasons": "; ".join(row["reasons"])}


def _why(file: str, found: Sequence[Verdict]) -> Iterator[str]:
    for each in found:
        for why in each.reasons:
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
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read flavors of {file}: {reason(error)}", hint=how) from error
    if not isinstance(rows, list):
        raise UsageError(f"{file}: expected a list of flavors", hint=how)
    for number, row in enumerate(rows):
        for field, kind in FIELDS.items():
            value = row.get(field) if isinstance(row, dict) else None
            if not isinstance(value, kind) or isinstance(value, bool):
                message = f"{file}: flavor {number}: expected {field}, {CALLED[kind]}"
                raise UsageError(f"{message}, got {json.dumps(value)[:40]}", hint=how)
        yield SizeOffered(row["Name"], row["ID"], row["VCPUs"], row["RAM"] * MIB, row["Disk"] * GIB)
